"""The fragments of tensor-core instructions as layouts: which thread holds which element of a matrix.

One formula makes all of them. Four threads stand side by side along the columns, each with as many neighbours as fill a
32-bit register; eight such rows make an 8-row core matrix; core matrices follow down the rows first, then along the
columns; the warps of a warpgroup stand below each other. `evidence/*/fragments` holds what the instructions themselves
said. Source: PTX ISA, matrix fragments of mma.m16n8k*, wgmma.m64nNk*, ldmatrix and stmatrix.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelwright.layouts.errors import LayoutError
from kernelwright.layouts.layout import Layout, size
from kernelwright.layouts.tuples import format_tuple, idx2crd, is_int, product


def fragment(rows: int, columns: int, values_per_register: int, warps: int = 1) -> Layout:
    """(thread, value) -> row + rows * column of a matrix that the threads of `warps` warps share.

    Args:
        values_per_register: neighbours along a row in one register: 2 of 16 bits, 1 of 32, 4 of 8.
    """
    threads = [(4, values_per_register * rows), (8, 1), (warps, rows // warps)]
    values = [
        (values_per_register, rows),
        (rows // warps // 8, 8),
        (columns // (4 * values_per_register), 4 * values_per_register * rows),
    ]
    return Layout(*zip(_drop_unit_modes(threads), _drop_unit_modes(values), strict=True))


def _drop_unit_modes(modes: list[tuple[int, int]]) -> tuple:
    """Shape and stride without modes of size 1."""
    kept = [mode for mode in modes if mode[0] > 1]
    if len(kept) <= 1:
        return kept[0] if kept else (1, 0)
    return tuple(zip(*kept, strict=True))


@dataclass(frozen=True)
class MmaAtom:
    """A matrix instruction D = A B + C: its shape, its types, and who holds what.

    A is (M, K) at m + M k, B is (N, K) at n + N k, C and D are (M, N) at m + M n. `a` or `b` is None where the
    instruction reads that operand from shared memory.
    """

    name: str
    shape: tuple[int, int, int]
    types: tuple[str, str, str]
    """Of A, B and C, in PTX's words."""
    a: Layout | None
    b: Layout | None
    c: Layout
    lanes: Layout | None = None
    """Which thread of the warp is which of the atom's; None where they are the same."""

    @property
    def threads(self) -> Layout:
        """Thread of the atom -> thread of its group."""
        return self.lanes or Layout(self.c[0].size())

    def operand(self, which: str) -> tuple[Layout, tuple[int, int]]:
        """The layout of A, B or C with the (rows, columns) of its matrix.

        Raises:
            LayoutError: no such operand, or one that threads do not hold.
        """
        m, n, k = self.shape
        shapes = {"A": (m, k), "B": (n, k), "C": (m, n)}
        if which not in shapes:
            raise LayoutError(f"{self.name} has no operand {which!r}: A, B or C")
        held = {"A": self.a, "B": self.b, "C": self.c}[which]
        if held is None:
            raise LayoutError(f"{self.name} reads {which} from shared memory: no thread holds it")
        return held, shapes[which]


@dataclass(frozen=True)
class CopyAtom:
    """A copy by the threads of one warp between rows in shared memory and registers.

    Both sides map (thread, value) to 8 * row + column of 8x8 matrices of 16-bit elements, one below the other.
    `memory` says whose address points to a row, `registers` who holds an element.
    """

    name: str
    memory: Layout
    registers: Layout


DTYPE_BITS = {"f64": 64, "tf32": 32, "f16": 16, "bf16": 16, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8}


def _mma_atom(m: int, n: int, k: int, dtype: str) -> MmaAtom:
    together = max(1, 32 // DTYPE_BITS[dtype])
    total = {"f64": "f64", "s8": "s32", "u8": "s32"}.get(dtype, "f32")
    operands = fragment(m, k, together), fragment(n, k, together), fragment(m, n, 2)
    return MmaAtom(f"mma.m{m}n{n}k{k}.{dtype}", (m, n, k), (dtype, dtype, total), *operands)


def wgmma_atom(n: int, dtype: str = "bf16", *, a_in_registers: bool = False) -> MmaAtom:
    """wgmma.m64nNk16 and its like: 128 threads hold the 64 x N accumulators; B, and usually A, lie in shared memory.

    Args:
        n: multiple of 8 up to 256.
        dtype: f16, bf16, tf32, e4m3, e5m2, s8 or u8; K is 32 bytes.
    Raises:
        LayoutError: another n or kind.
    """
    if not is_int(n) or n % 8 or not 8 <= n <= 256:
        raise LayoutError(f"wgmma: N is a multiple of 8 up to 256, not {n!r}")
    if dtype not in DTYPE_BITS or dtype == "f64":
        raise LayoutError(
            f"wgmma: no kind {dtype!r}; there are {', '.join(name for name in DTYPE_BITS if name != 'f64')}"
        )
    if dtype in ("s8", "u8") and n > 32 and n % 16:
        raise LayoutError(f"wgmma: N of {dtype} is a multiple of 16 beyond 32, not {n}")
    k, together = 256 // DTYPE_BITS[dtype], 32 // DTYPE_BITS[dtype]
    a = fragment(64, k, together, warps=4) if a_in_registers else None
    name = f"wgmma.m64n{n}k{k}.{dtype}{'.rs' if a_in_registers else ''}"
    total = "s32" if dtype in ("s8", "u8") else "f32"
    return MmaAtom(name, (64, n, k), (dtype, dtype, total), a, None, fragment(64, n, 2, warps=4))


def _address_layout(matrices: int) -> Layout:
    """Whose address points where: thread i to row i, with its 8 elements."""
    return Layout((8 * matrices, 8), (8, 1))


def _register_layout(matrices: int, transposed: bool) -> Layout:
    """Who holds what of 8x8 matrices: pairs along a row, or down a column."""
    pair, four, eight = (8, 16, 1) if transposed else (1, 2, 8)
    values = ((2, matrices), (pair, 64)) if matrices > 1 else (2, pair)
    return Layout(((4, 8), values[0]), ((four, eight), values[1]))


MMA_ATOMS: dict[str, MmaAtom] = {
    atom.name: atom
    for atom in (
        *(_mma_atom(16, 8, k, kind) for kind in ("f16", "bf16") for k in (8, 16)),
        *(_mma_atom(16, 8, k, "tf32") for k in (4, 8)),
        *(_mma_atom(16, 8, k, kind) for kind in ("s8", "u8") for k in (16, 32)),
        *(_mma_atom(16, 8, 32, kind) for kind in ("e4m3", "e5m2")),
        _mma_atom(8, 8, 4, "f64"),
    )
}
COPY_ATOMS: dict[str, CopyAtom] = {
    atom.name: atom
    for atom in (
        CopyAtom(
            f"{name}.x{matrices}{'.trans' * transposed}",
            _address_layout(matrices),
            _register_layout(matrices, transposed),
        )
        for name in ("ldmatrix", "stmatrix")
        for matrices in (1, 2, 4)
        for transposed in (False, True)
    )
}


_WGMMA = re.compile(r"wgmma\.m64n(?P<n>[0-9]{1,3})k(?P<k>[0-9]{1,3})\.(?P<kind>\w+)(?P<rs>\.rs)?")


def get_atom(name: str) -> MmaAtom | CopyAtom:
    """An instruction by its name: mma.m16n8k16.bf16, wgmma.m64n128k16.bf16, ldmatrix.x4.trans.

    Raises:
        LayoutError: no such instruction here.
    """
    if name in MMA_ATOMS:
        return MMA_ATOMS[name]
    if name in COPY_ATOMS:
        return COPY_ATOMS[name]
    if parts := _WGMMA.fullmatch(name):
        found = wgmma_atom(int(parts["n"]), parts["kind"], a_in_registers=bool(parts["rs"]))
        if found.shape[2] == int(parts["k"]):
            return found
        raise LayoutError(f"{name}: K of {parts['kind']} is {found.shape[2]}")
    raise LayoutError(f"no instruction {name!r}", next=f"{', '.join([*MMA_ATOMS, *COPY_ATOMS])}, wgmma.m64nNk16.bf16")


def element_owners(tv_layout: Layout, shape: tuple[int, int]) -> list[list[tuple[int, int]]]:
    """Who holds each element of a matrix: rows of (thread, value).

    Args:
        tv_layout: (thread, value) -> row + rows * column.
    Raises:
        LayoutError: an element that nobody holds, or two hold; or one outside the matrix.
    """
    if size(tv_layout) > product(shape) or max(tv_layout.offsets()) >= product(shape):
        raise LayoutError(f"{tv_layout} holds more than the elements of {format_tuple(shape)}")
    found: dict[int, tuple[int, int]] = {}
    threads = size(tv_layout[0])
    for at, offset in enumerate(tv_layout.offsets()):
        if offset in found:
            raise LayoutError(f"{tv_layout}: {idx2crd(offset, shape)} is held by {found[offset]} and by another")
        found[offset] = at % threads, at // threads
    rows, columns = shape
    if missing := [at for at in range(rows * columns) if at not in found]:
        raise LayoutError(f"{tv_layout}: nobody holds {idx2crd(missing[0], shape)} of {rows}x{columns}")
    return [[found[row + rows * column] for column in range(columns)] for row in range(rows)]
