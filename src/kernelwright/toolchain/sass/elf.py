"""The parts of a cubin that say what a kernel takes: an ELF file of 64 bits with NVIDIA's own sections.

Source: the ELF-64 specification; NVIDIA's attributes are undocumented, as `cuobjdump -elf` prints them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from kernelwright.core.errors import UsageError

MAGIC, CUDA_MACHINE = b"\x7fELF", 190
_NO_BITS, _FUNCTION, _ENTRY = 8, 2, 0x10
_SIZED = 4
"""The format of an attribute that is followed by as many bytes as it says."""
_ACCELERATOR, _SUFFIX = 9, {1: "a", 2: "f"}
"""The attribute of .nv.compat that says for whom alone the code is, and what that adds to the architecture's name."""


@dataclass(frozen=True)
class Section:
    name: str
    kind: int
    content: bytes
    size: int


@dataclass(frozen=True)
class Function:
    """A symbol of code: an entry is a kernel, another one a device function that was not inlined."""

    name: str
    symbol_index: int
    section: str
    start: int
    size: int
    is_kernel: bool


class CubinFile:
    """A file of machine code for one architecture.

    Raises:
        UsageError: no ELF file, one for another machine, or one that is cut short.
    """

    def __init__(self, content: bytes) -> None:
        if not content.startswith(MAGIC):
            raise UsageError(f"this is no cubin: it begins with {_preview(content)}", next=_suggest_next(content))
        try:
            self._read(content)
        except (struct.error, IndexError, UnicodeDecodeError, ValueError) as fault:
            raise UsageError(
                f"this cubin is cut short or damaged: {len(content):,} bytes, {fault}", next="build it again"
            ) from fault

    def _read(self, content: bytes) -> None:
        machine, self.version = struct.unpack_from("<HI", content, 18)
        if content[4] != 2 or machine != CUDA_MACHINE:
            raise UsageError(
                f"this ELF file is for machine {machine}, not for a GPU ({CUDA_MACHINE})",
                next="hand over a .cubin: nvcc -cubin -arch=sm_90a, or kernel.asm['cubin'] of Triton",
            )
        self.abi, (flags,) = content[8], struct.unpack_from("<I", content, 48)
        self.sections = _sections(content)
        self.compute = flags >> 8 & 0xFF if self.abi >= 8 else flags & 0xFF
        suffix = "a" * bool(flags & 0x800) if self.abi < 8 else self._suffix()
        self.arch = f"sm_{self.compute}{suffix}"
        self.functions = self._functions()

    def section(self, name: str) -> Section | None:
        return next((section for section in self.sections if section.name == name), None)

    def kernels(self) -> list[Function]:
        return [function for function in self.functions if function.is_kernel]

    def attributes(self, section: str) -> Iterator[tuple[int, bytes]]:
        """Number and content of each attribute of a section of NVIDIA's."""
        found = self.section(section)
        data, at = found.content if found else b"", 0
        while at + 4 <= len(data):
            form, number, value = struct.unpack_from("<BBH", data, at)
            at += 4
            size = value if form == _SIZED else 0
            yield number, data[at : at + size] if form == _SIZED else struct.pack("<H", value)
            at += size

    def _suffix(self) -> str:
        accelerated = dict(self.attributes(".nv.compat")).get(_ACCELERATOR, b"")
        return _SUFFIX.get(accelerated[0], "") if accelerated else ""

    def _functions(self) -> list[Function]:
        symbols, names = self.section(".symtab"), self.section(".strtab")
        found = []
        for number in range(symbols.size // 24 if symbols and names else 0):
            assert symbols and names
            name, kind, other, home, start, size = struct.unpack_from("<IBBHQQ", symbols.content, 24 * number)
            if kind & 15 == _FUNCTION and 0 < home < len(self.sections):
                section = self.sections[home].name
                found.append(Function(_name(names.content, name), number, section, start, size, bool(other & _ENTRY)))
        return found


def _sections(content: bytes) -> list[Section]:
    segments, table = struct.unpack_from("<QQ", content, 32)
    segment_bytes, segment_count, _, count, names_at = struct.unpack_from("<HHHHH", content, 54)
    if (end := max(segments + segment_bytes * segment_count, table + 64 * count)) > len(content):
        raise ValueError(f"its tables end at {end:,}")
    heads = [struct.unpack_from("<IIQQQQIIQQ", content, table + 64 * i) for i in range(count)]
    names = _bytes(content, heads[names_at]) if heads else b""
    return [Section(_name(names, head[0]), head[1], _bytes(content, head), head[5]) for head in heads]


def _bytes(content: bytes, head: tuple[int, ...]) -> bytes:
    if head[1] == _NO_BITS:
        return b""
    if head[4] + head[5] > len(content):
        raise ValueError(f"a section ends at {head[4] + head[5]:,}")
    return content[head[4] : head[4] + head[5]]


def _name(names: bytes, at: int) -> str:
    return names[at : names.index(b"\0", at)].decode()


def _preview(content: bytes) -> str:
    return repr(content[:8]) if content else "nothing: it is empty"


def _suggest_next(content: bytes) -> str:
    if content[:4] == b"\x50\xed\x55\xba":
        return "it is a fat binary: cuobjdump -xelf all FILE takes the cubins out of it"
    return "hand over a .cubin: nvcc -cubin -arch=sm_90a, or kernel.asm['cubin'] of Triton"
