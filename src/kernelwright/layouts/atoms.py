"""The fragments of tensor-core instructions as layouts: which thread holds which element of a matrix.

One formula covers all of them. Four threads are adjacent along a row, each with as many adjacent elements as fill a
32-bit register; eight such rows form an 8-row core matrix; core matrices repeat down the rows first, then along the
columns; the warps of a warpgroup are stacked along the rows. `evidence/*/fragments` holds measurements of the
instructions. Source: PTX ISA, matrix fragments of mma.m16n8k*, wgmma.m64nNk*, ldmatrix and stmatrix.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelwright.layouts.errors import LayoutError
from kernelwright.layouts.layout import Layout, size
from kernelwright.layouts.tuples import format_tuple, idx2crd, is_int, product


def fragment(rows: int, columns: int, values_per_register: int, warps: int = 1) -> Layout:
    """(thread, value) -> row + rows * column of a matrix distributed over the threads of `warps` warps.

    Args:
        values_per_register: adjacent elements of a row in one register: 2 of 16 bits, 1 of 32, 4 of 8.
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
    nontrivial = [mode for mode in modes if mode[0] > 1]
    if len(nontrivial) <= 1:
        return nontrivial[0] if nontrivial else (1, 0)
    return tuple(zip(*nontrivial, strict=True))


@dataclass(frozen=True)
class MmaAtom:
    """A matrix instruction D = A B + C: its shape, its types, and the TV layouts of its operands.

    A is (M, K) at m + M k, B is (N, K) at n + N k, C and D are (M, N) at m + M n. `a` or `b` is None if the instruction
    reads that operand from shared memory.
    """

    name: str
    shape: tuple[int, int, int]
    types: tuple[str, str, str]
    """PTX types of A, B and C."""
    a: Layout | None
    b: Layout | None
    c: Layout
    lanes: Layout | None = None
    """Thread of the atom -> thread of the warp; None if they are the same."""

    @property
    def threads(self) -> Layout:
        """Thread of the atom -> thread of its group."""
        return self.lanes or Layout(self.c[0].size())

    def operand(self, which: str) -> tuple[Layout, tuple[int, int]]:
        """The layout of A, B or C with the (rows, columns) of its matrix.

        Raises:
            LayoutError: no such operand, or one that is not in registers.
        """
        m, n, k = self.shape
        shapes = {"A": (m, k), "B": (n, k), "C": (m, n)}
        if which not in shapes:
            raise LayoutError(f"{self.name} has no operand {which!r}: A, B or C")
        tv_layout = {"A": self.a, "B": self.b, "C": self.c}[which]
        if tv_layout is None:
            raise LayoutError(f"{self.name} reads {which} from shared memory: it is not in registers")
        return tv_layout, shapes[which]


@dataclass(frozen=True)
class CopyAtom:
    """A copy by one warp between rows in shared memory and registers.

    Both sides map (thread, value) to 8 * row + column of stacked 8x8 matrices of 16-bit elements: `memory` for the
    thread that supplies the row address, `registers` for the thread that holds the element.
    """

    name: str
    memory: Layout
    registers: Layout


DTYPE_BITS = {"f64": 64, "tf32": 32, "f16": 16, "bf16": 16, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8}


def _mma_atom(m: int, n: int, k: int, dtype: str) -> MmaAtom:
    per_register = max(1, 32 // DTYPE_BITS[dtype])
    accumulator = {"f64": "f64", "s8": "s32", "u8": "s32"}.get(dtype, "f32")
    operands = fragment(m, k, per_register), fragment(n, k, per_register), fragment(m, n, 2)
    return MmaAtom(f"mma.m{m}n{n}k{k}.{dtype}", (m, n, k), (dtype, dtype, accumulator), *operands)


def wgmma_atom(n: int, dtype: str = "bf16", *, a_in_registers: bool = False) -> MmaAtom:
    """A wgmma instruction: 128 threads hold the 64 x N accumulators; B, and usually A, are in shared memory.

    Args:
        n: multiple of 8 up to 256.
        dtype: f16, bf16, tf32, e4m3, e5m2, s8 or u8; K is 32 bytes.
    Raises:
        LayoutError: an unsupported n or dtype.
    """
    if not is_int(n) or n % 8 or not 8 <= n <= 256:
        raise LayoutError(f"wgmma: N must be a multiple of 8 up to 256, not {n!r}")
    if dtype not in DTYPE_BITS or dtype == "f64":
        raise LayoutError(
            f"wgmma: unsupported dtype {dtype!r}; one of {', '.join(name for name in DTYPE_BITS if name != 'f64')}"
        )
    if dtype in ("s8", "u8") and n > 32 and n % 16:
        raise LayoutError(f"wgmma: N of {dtype} must be a multiple of 16 beyond 32, not {n}")
    k, per_register = 256 // DTYPE_BITS[dtype], 32 // DTYPE_BITS[dtype]
    a = fragment(64, k, per_register, warps=4) if a_in_registers else None
    name = f"wgmma.m64n{n}k{k}.{dtype}{'.rs' if a_in_registers else ''}"
    accumulator = "s32" if dtype in ("s8", "u8") else "f32"
    return MmaAtom(name, (64, n, k), (dtype, dtype, accumulator), a, None, fragment(64, n, 2, warps=4))


def _address_layout(matrices: int) -> Layout:
    """Thread i supplies the address of row i with its 8 elements."""
    return Layout((8 * matrices, 8), (8, 1))


def _register_layout(matrices: int, transposed: bool) -> Layout:
    """TV layout of 8x8 matrices: pairs along a row, or down a column if transposed."""
    stride_pair, stride_4, stride_8 = (8, 16, 1) if transposed else (1, 2, 8)
    values = ((2, matrices), (stride_pair, 64)) if matrices > 1 else (2, stride_pair)
    return Layout(((4, 8), values[0]), ((stride_4, stride_8), values[1]))


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
        LayoutError: unknown instruction.
    """
    if name in MMA_ATOMS:
        return MMA_ATOMS[name]
    if name in COPY_ATOMS:
        return COPY_ATOMS[name]
    if parts := _WGMMA.fullmatch(name):
        atom = wgmma_atom(int(parts["n"]), parts["kind"], a_in_registers=bool(parts["rs"]))
        if atom.shape[2] == int(parts["k"]):
            return atom
        raise LayoutError(f"{name}: K of {parts['kind']} is {atom.shape[2]}")
    raise LayoutError(
        f"unknown instruction {name!r}", next=f"{', '.join([*MMA_ATOMS, *COPY_ATOMS])}, wgmma.m64nNk16.bf16"
    )


def element_owners(tv_layout: Layout, shape: tuple[int, int]) -> list[list[tuple[int, int]]]:
    """The (thread, value) that holds each element of a matrix, by row.

    Args:
        tv_layout: (thread, value) -> row + rows * column.
    Raises:
        LayoutError: an element that no thread or more than one holds, or one outside the matrix.
    """
    if size(tv_layout) > product(shape) or max(tv_layout.offsets()) >= product(shape):
        raise LayoutError(f"{tv_layout} has elements outside a {format_tuple(shape)} matrix")
    owners: dict[int, tuple[int, int]] = {}
    threads = size(tv_layout[0])
    for i, offset in enumerate(tv_layout.offsets()):
        if offset in owners:
            raise LayoutError(f"{tv_layout}: {idx2crd(offset, shape)} is held by {owners[offset]} and by another")
        owners[offset] = i % threads, i // threads
    rows, columns = shape
    if missing := [i for i in range(rows * columns) if i not in owners]:
        raise LayoutError(f"{tv_layout}: no thread holds {idx2crd(missing[0], shape)} of {rows}x{columns}")
    return [[owners[row + rows * column] for column in range(columns)] for row in range(rows)]
