"""Reader of cubin files: 64-bit ELF with NVIDIA's sections and attributes.

Source: the ELF-64 specification; NVIDIA's undocumented attributes as `cuobjdump -elf` prints them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from kernelwright.core.errors import UsageError

MAGIC, CUDA_MACHINE = b"\x7fELF", 190
_NO_BITS, _FUNCTION, _ENTRY = 8, 2, 0x10
_SIZED = 4
"""Format of an attribute whose value is the size of the content that follows it."""
_ACCELERATOR, _SUFFIX = 9, {1: "a", 2: "f"}
"""Attribute of .nv.compat for architecture- or family-specific code, and the suffix of the architecture's name."""


@dataclass(frozen=True)
class Section:
    """An ELF section; `kind` is its sh_type, `content` is empty for SHT_NOBITS."""

    name: str
    kind: int
    content: bytes
    size: int


@dataclass(frozen=True)
class Function:
    """A function symbol: a kernel, or a device function that was not inlined."""

    name: str
    symbol_index: int
    section: str
    start: int
    size: int
    is_kernel: bool


class CubinFile:
    """A parsed cubin: machine code for one architecture.

    Raises:
        UsageError: not an ELF file, one for another machine, or truncated.
    """

    def __init__(self, content: bytes) -> None:
        if not content.startswith(MAGIC):
            raise UsageError(f"not a cubin: it starts with {_preview(content)}", next=_suggest_next(content))
        try:
            self._read(content)
        except (struct.error, IndexError, UnicodeDecodeError, ValueError) as fault:
            raise UsageError(
                f"this cubin is truncated or damaged: {len(content):,} bytes, {fault}", next="build it again"
            ) from fault

    def _read(self, content: bytes) -> None:
        machine, self.version = struct.unpack_from("<HI", content, 18)
        if content[4] != 2 or machine != CUDA_MACHINE:
            raise UsageError(
                f"this ELF file is for machine {machine}, not for a GPU ({CUDA_MACHINE})",
                next="pass a .cubin: nvcc -cubin -arch=sm_90a, or kernel.asm['cubin'] of Triton",
            )
        self.abi, (flags,) = content[8], struct.unpack_from("<I", content, 48)
        self.sections = _sections(content)
        self.compute = flags >> 8 & 0xFF if self.abi >= 8 else flags & 0xFF
        suffix = "a" * bool(flags & 0x800) if self.abi < 8 else self._suffix()
        self.arch = f"sm_{self.compute}{suffix}"
        self.functions = self._functions()

    def section(self, name: str) -> Section | None:
        """The section of this name, or None."""
        return next((section for section in self.sections if section.name == name), None)

    def kernels(self) -> list[Function]:
        """Functions that are kernels, in the order of the symbol table."""
        return [function for function in self.functions if function.is_kernel]

    def attributes(self, section: str) -> Iterator[tuple[int, bytes]]:
        """Number and content of each attribute of an NVIDIA section (.nv.info and others)."""
        match = self.section(section)
        data, offset = match.content if match else b"", 0
        while offset + 4 <= len(data):
            form, number, value = struct.unpack_from("<BBH", data, offset)
            offset += 4
            size = value if form == _SIZED else 0
            yield number, data[offset : offset + size] if form == _SIZED else struct.pack("<H", value)
            offset += size

    def _suffix(self) -> str:
        accelerated = dict(self.attributes(".nv.compat")).get(_ACCELERATOR, b"")
        return _SUFFIX.get(accelerated[0], "") if accelerated else ""

    def _functions(self) -> list[Function]:
        symbols, names = self.section(".symtab"), self.section(".strtab")
        functions = []
        for number in range(symbols.size // 24 if symbols and names else 0):
            assert symbols and names
            name, info, other, index, start, size = struct.unpack_from("<IBBHQQ", symbols.content, 24 * number)
            if info & 15 == _FUNCTION and 0 < index < len(self.sections):
                section, is_kernel = self.sections[index].name, bool(other & _ENTRY)
                functions.append(Function(_name(names.content, name), number, section, start, size, is_kernel))
        return functions


def _sections(content: bytes) -> list[Section]:
    segments, table = struct.unpack_from("<QQ", content, 32)
    segment_bytes, segment_count, _, count, names_index = struct.unpack_from("<HHHHH", content, 54)
    if (end := max(segments + segment_bytes * segment_count, table + 64 * count)) > len(content):
        raise ValueError(f"its tables end at {end:,}")
    headers = [struct.unpack_from("<IIQQQQIIQQ", content, table + 64 * i) for i in range(count)]
    names = _bytes(content, headers[names_index]) if headers else b""
    return [Section(_name(names, header[0]), header[1], _bytes(content, header), header[5]) for header in headers]


def _bytes(content: bytes, header: tuple[int, ...]) -> bytes:
    if header[1] == _NO_BITS:
        return b""
    if header[4] + header[5] > len(content):
        raise ValueError(f"a section ends at {header[4] + header[5]:,}")
    return content[header[4] : header[4] + header[5]]


def _name(names: bytes, offset: int) -> str:
    return names[offset : names.index(b"\0", offset)].decode()


def _preview(content: bytes) -> str:
    return repr(content[:8]) if content else "nothing: it is empty"


def _suggest_next(content: bytes) -> str:
    if content[:4] == b"\x50\xed\x55\xba":
        return "it is a fat binary: extract its cubins with cuobjdump -xelf all FILE"
    return "pass a .cubin: nvcc -cubin -arch=sm_90a, or kernel.asm['cubin'] of Triton"
