"""Asks the instructions themselves who holds what, and holds the layouts of `layouts.atoms` against the answer.

Numbers are small integers, so that every sum is exact. An operand that threads hold is probed element by element: 1 in
one place, 0 everywhere else, against a random matrix; the accumulators through products of random matrices. What
stands in shared memory is laid there by `pack_smem`. Of an mma whose A and B are both in registers, the order along K
is seen up to a permutation that both share: no product depends on it, and nothing here could tell. With A in registers
and B in shared memory wgmma fixes it, since memory has an order of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from kernelwright.core.errors import DeviceError
from kernelwright.core.layout import FragmentOutcome
from kernelwright.core.progress import report_stage
from kernelwright.hwcheck.ptx_probes import copy_source, mma_source, wgmma_source
from kernelwright.layouts import COPY_ATOMS, MMA_ATOMS, CopyAtom, Layout, MmaAtom, Swizzle, recast, size, wgmma_atom
from kernelwright.layouts.atoms import DTYPE_BITS
from kernelwright.toolchain.cuda.launcher import CudaKernel

NUM_RANDOM_PROBES = 16
WGMMA_ATOMS = [
    *(wgmma_atom(n, "bf16") for n in (8, 16, 64, 128, 192, 256)),
    *(wgmma_atom(64, kind) for kind in ("f16", "tf32", "e4m3", "e5m2", "s8", "u8")),
    *(wgmma_atom(n, kind, a_in_registers=True) for n in (64, 256) for kind in ("bf16", "f16")),
    *(wgmma_atom(64, kind, a_in_registers=True) for kind in ("tf32", "e4m3", "s8")),
]
SWIZZLES = {0: Swizzle(0, 0, 0), 128: Swizzle(3, 4, 3), 64: Swizzle(2, 4, 3), 32: Swizzle(1, 4, 3)}
"""Of byte addresses, by the width of a row that wgmma and TMA name them after."""
_SWIZZLE_MODES = {0: 0, 128: 1, 64: 2, 32: 3}
"""In a descriptor of shared memory."""


def describe_device() -> tuple[str, dict[str, str]]:
    """The name of the GPU and the versions of what compiles and launches.

    Raises:
        DeviceError: no CUDA device here.
    """
    import torch

    if not torch.cuda.is_available():
        raise DeviceError("no CUDA device here", next="run it on a machine with one")
    versions = {name: version(name) for name in ("torch", "cuda-core", "cuda-bindings")}
    return torch.cuda.get_device_name(), {**versions, "cuda": str(torch.version.cuda)}


def check_fragments() -> Iterator[FragmentOutcome]:
    """Every instruction, operand by operand."""
    for atom in MMA_ATOMS.values():
        report_stage(f"asking {atom.name}")
        yield from check_mma(atom)
    for atom in WGMMA_ATOMS:
        report_stage(f"asking {atom.name}")
        yield from check_wgmma(atom)
    for row_bytes in (128, 64, 32):
        yield from check_wgmma(wgmma_atom(64, "bf16"), row_bytes)
    for atom in COPY_ATOMS.values():
        yield check_copy(atom)


def check_mma(atom: MmaAtom) -> Iterator[FragmentOutcome]:
    """A, B and C of an instruction that takes everything from registers."""
    assert atom.a and atom.b
    counts = [_num_registers(held, kind) for held, kind in zip((atom.a, atom.b, atom.c), atom.types, strict=True)]
    kernel = CudaKernel(mma_source(atom, tuple(counts)), "probe")  # type: ignore[arg-type]  # a tuple of three
    wrong = {}
    for name, (a, b) in _make_probes(atom).items():
        registers = pack_registers(a, atom.a, atom.types[0]), pack_registers(b, atom.b, atom.types[1])
        out = _poisoned_output(len(a), atom, counts[2])
        kernel(len(a), size(atom.threads), [*registers, out])
        wrong[name] = _mismatch_mask(out, a, b, atom.c)
    for name, held in (("A", atom.a), ("B", atom.b), ("C", atom.c)):
        yield FragmentOutcome(
            instruction=atom.name,
            operand=name,
            layout=str(held),
            elements=size(held),
            mismatches=_count_mismatches(wrong[name], name),
        )


def check_wgmma(atom: MmaAtom, row_bytes: int = 0) -> Iterator[FragmentOutcome]:
    """C, and A where threads hold it; shared memory in rows of `row_bytes` with their swizzle, 0 for core matrices."""
    m, n, k = atom.shape
    bits = DTYPE_BITS[atom.types[0]]
    count = size(atom.c[1])
    (a_layout, a_swizzle, a_step), (b_layout, b_swizzle, b_step) = (
        smem_operand_layout(rows, k, bits, row_bytes) for rows in (m, n)
    )
    descriptors = tuple(_SWIZZLE_MODES[row_bytes] << 62 | step << 32 | (128 >> 4) << 16 for step in (a_step, b_step))
    reach = [0 if atom.a else _image_bytes(a_layout, bits), _image_bytes(b_layout, bits)]
    # A tuple of two, which a comprehension does not tell the type checker.
    kernel = CudaKernel(wgmma_source(atom, count, (reach[0], reach[1]), descriptors), "probe")  # type: ignore[arg-type]
    for name, (a, b) in _make_probes(atom).items():
        kind = atom.types[0]
        given = pack_registers(a, atom.a, kind) if atom.a else pack_smem(a, a_layout, a_swizzle, kind, reach[0])
        out = _poisoned_output(len(a), atom, count)
        shared_bytes = sum(reach)
        kernel(len(a), 128, [given, pack_smem(b, b_layout, b_swizzle, kind, reach[1]), out], shared_bytes)
        held = atom.a if name == "A" and atom.a else atom.c
        yield FragmentOutcome(
            instruction=f"{atom.name}{f', rows of {row_bytes} B, {a_swizzle}' if row_bytes else ''}",
            operand=name,
            layout=str(held),
            elements=size(held),
            mismatches=_count_mismatches(_mismatch_mask(out, a, b, atom.c), name),
        )


def check_copy(atom: CopyAtom) -> FragmentOutcome:
    """ldmatrix from memory whose elements are numbered, stmatrix of registers that are numbered as the layout says."""
    import torch

    count = size(atom.memory)
    numbered = torch.arange(count, dtype=torch.int16, device="cuda")
    expected = numbered[_register_offsets(atom.registers)]
    out = torch.full((count,), -1, dtype=torch.int16, device="cuda")
    loads = atom.name.startswith("ldmatrix")
    CudaKernel(copy_source(atom), "probe")(1, 32, [numbered if loads else expected, out])
    wrong = int((out != (expected if loads else numbered)).sum())
    return FragmentOutcome(
        instruction=atom.name, operand="registers", layout=str(atom.registers), elements=count, mismatches=wrong
    )


def pack_registers(matrices: Any, layout: Layout, kind: str) -> Any:
    """The registers of every thread of every probe that hold matrices (probe, row, column) as the layout says."""
    flat = matrices.transpose(1, 2).reshape(len(matrices), -1)
    return _to_dtype(flat[:, _register_offsets(layout)], kind)


def smem_operand_layout(rows: int, k: int, bits: int, row_bytes: int) -> tuple[Layout, Swizzle, int]:
    """How an operand of wgmma lies in shared memory: (row, k) -> element, the swizzle of elements, and the step of a
    descriptor from 8 rows to the next, in 16 bytes."""
    wide = 128 // bits
    if row_bytes == 0:  # 8x16-byte core matrices, along K first
        step = 8 * k
        matrices = Layout(((8, rows // 8), (wide, k // wide)), ((wide, step), (1, 8 * wide)))
        return matrices, Swizzle(0, 0, 0), step * bits // 128
    across = row_bytes * 8 // bits
    return Layout((rows, k), (across, 1)), recast(SWIZZLES[row_bytes], 8, bits), 8 * row_bytes // 16


def pack_smem(matrices: Any, layout: Layout, swizzle: Swizzle, kind: str, image_bytes: int) -> Any:
    """Bytes of shared memory that hold matrices (probe, row, k); what nobody should read is poison."""
    import torch

    flat = matrices.transpose(1, 2).reshape(len(matrices), -1)
    elements = image_bytes * 8 // DTYPE_BITS[kind]
    image = torch.full((len(matrices), elements), 3, dtype=flat.dtype, device=flat.device)
    places = torch.tensor([swizzle(offset) for offset in layout.offsets()], device=flat.device)
    image[:, places] = flat
    return _to_dtype(image, kind)


def _make_probes(atom: MmaAtom) -> dict[str, tuple[Any, Any]]:
    """Pairs of A (probe, M, K) and B (probe, N, K): one element of A at a time, one of B at a time, and random ones."""
    import torch

    m, n, k = atom.shape
    draw = torch.Generator().manual_seed(0)
    low = 0 if atom.types[0] == "u8" else -3

    def random(*shape: int) -> Any:
        return torch.randint(low, 4, shape, generator=draw).double().cuda()

    def one_by_one(rows: int) -> Any:
        return torch.eye(rows * k, dtype=torch.float64, device="cuda").reshape(rows * k, rows, k)

    found = {"C": (random(NUM_RANDOM_PROBES, m, k), random(NUM_RANDOM_PROBES, n, k))}
    if atom.a is not None:
        found["A"] = one_by_one(m), random(1, n, k).expand(m * k, n, k)
    if atom.b is not None:
        found["B"] = random(1, m, k).expand(n * k, m, k), one_by_one(n)
    return found


def _mismatch_mask(out: Any, a: Any, b: Any, layout: Layout) -> Any:
    """Which elements (probe, M N) are not what A B is, read from registers as the layout says."""
    import torch

    expected = (a @ b.transpose(1, 2)).transpose(1, 2).reshape(len(a), -1)
    got = torch.full_like(expected, float("nan"))
    got[:, _register_offsets(layout)] = out.reshape(len(a), -1).double()
    return got != expected


def _count_mismatches(wrong: Any, operand: str) -> int:
    """Elements in the wrong place: of C by element, of A and B by probe, each of which has one element."""
    return int(wrong.any(dim=0 if operand == "C" else 1).sum())


def _register_offsets(layout: Layout) -> Any:
    """Offsets in the order of registers: thread by thread, and value by value in each."""
    import torch

    offsets, threads = layout.offsets(), size(layout[0])
    return torch.tensor([offsets[at + threads * value] for at in range(threads) for value in range(size(layout[1]))])


def _to_dtype(values: Any, kind: str) -> Any:
    import torch

    types = {
        "f64": torch.float64,
        "tf32": torch.float32,
        "f16": torch.float16,
        "bf16": torch.bfloat16,
        "s8": torch.int8,
        "u8": torch.uint8,
        "e4m3": torch.float8_e4m3fn,
        "e5m2": torch.float8_e5m2,
    }
    return values.to(types[kind]).contiguous()


def _num_registers(layout: Layout, kind: str) -> int:
    """How many registers a thread needs for its values: 32-bit ones, or 64-bit ones for doubles."""
    return size(layout[1]) * min(DTYPE_BITS.get(kind, 32), 32) // 32


def _poisoned_output(probes: int, atom: MmaAtom, count: int) -> Any:
    import torch

    kinds = {"f64": torch.float64, "f32": torch.float32, "s32": torch.int32}
    return torch.full((probes, size(atom.c[0]), count), -77, dtype=kinds[atom.types[2]], device="cuda")


def _image_bytes(layout: Layout, bits: int) -> int:
    """Bytes of an image, rounded up to a whole swizzle of 1,024."""
    return -(-layout.cosize() * bits // 8 // 1024) * 1024
