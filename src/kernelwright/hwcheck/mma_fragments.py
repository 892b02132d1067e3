"""Register layouts of mma, wgmma, ldmatrix and stmatrix, measured on the GPU and compared with `layouts.atoms`.

Values are small integers, so that every sum is exact. A register operand is probed one element at a time (1 there, 0
elsewhere) against a random matrix, the accumulators through products of random matrices. Shared memory operands are
laid out by `pack_smem`. If A and B are both in registers, the order along K is determined only up to a permutation
common to both: no product depends on it. With A in registers and B in shared memory, wgmma determines it, because the
order in memory is known.
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
"""Swizzles of byte addresses by row width in bytes, as wgmma and TMA name them."""
_SWIZZLE_MODES = {0: 0, 128: 1, 64: 2, 32: 3}
"""Swizzle field of a shared memory descriptor, by row width in bytes."""


def describe_device() -> tuple[str, dict[str, str]]:
    """Name of the GPU, and the versions of the packages that compile and launch.

    Raises:
        DeviceError: no CUDA device here.
    """
    import torch

    if not torch.cuda.is_available():
        raise DeviceError("no CUDA device here", next="run it on a machine with one")
    versions = {name: version(name) for name in ("torch", "cuda-core", "cuda-bindings")}
    return torch.cuda.get_device_name(), {**versions, "cuda": str(torch.version.cuda)}


def check_fragments() -> Iterator[FragmentOutcome]:
    """Check the layout of every operand of every instruction."""
    for atom in MMA_ATOMS.values():
        report_stage(f"probing {atom.name}")
        yield from check_mma(atom)
    for atom in WGMMA_ATOMS:
        report_stage(f"probing {atom.name}")
        yield from check_wgmma(atom)
    for row_bytes in (128, 64, 32):
        yield from check_wgmma(wgmma_atom(64, "bf16"), row_bytes)
    for atom in COPY_ATOMS.values():
        yield check_copy(atom)


def check_mma(atom: MmaAtom) -> Iterator[FragmentOutcome]:
    """Check A, B and C of an instruction with all operands in registers."""
    assert atom.a and atom.b
    counts = [_num_registers(layout, kind) for layout, kind in zip((atom.a, atom.b, atom.c), atom.types, strict=True)]
    kernel = CudaKernel(mma_source(atom, tuple(counts)), "probe")  # type: ignore[arg-type]  # a tuple of three
    wrong = {}
    for name, (a, b) in _make_probes(atom).items():
        registers = pack_registers(a, atom.a, atom.types[0]), pack_registers(b, atom.b, atom.types[1])
        out = _sentinel_output(len(a), atom, counts[2])
        kernel(len(a), size(atom.threads), [*registers, out])
        wrong[name] = _mismatch_mask(out, a, b, atom.c)
    for name, layout in (("A", atom.a), ("B", atom.b), ("C", atom.c)):
        yield FragmentOutcome(
            instruction=atom.name,
            operand=name,
            layout=str(layout),
            elements=size(layout),
            mismatches=_count_mismatches(wrong[name], name),
        )


def check_wgmma(atom: MmaAtom, row_bytes: int = 0) -> Iterator[FragmentOutcome]:
    """Check C, and A if it is in registers.

    Args:
        row_bytes: width of swizzled rows in shared memory; 0 for unswizzled core matrices.
    """
    m, n, k = atom.shape
    bits = DTYPE_BITS[atom.types[0]]
    count = size(atom.c[1])
    (a_layout, a_swizzle, a_stride), (b_layout, b_swizzle, b_stride) = (
        smem_operand_layout(rows, k, bits, row_bytes) for rows in (m, n)
    )
    a_descriptor, b_descriptor = (
        _SWIZZLE_MODES[row_bytes] << 62 | stride << 32 | (128 >> 4) << 16 for stride in (a_stride, b_stride)
    )
    a_bytes, b_bytes = 0 if atom.a else _image_bytes(a_layout, bits), _image_bytes(b_layout, bits)
    kernel = CudaKernel(wgmma_source(atom, count, (a_bytes, b_bytes), (a_descriptor, b_descriptor)), "probe")
    for name, (a, b) in _make_probes(atom).items():
        kind = atom.types[0]
        a_operand = pack_registers(a, atom.a, kind) if atom.a else pack_smem(a, a_layout, a_swizzle, kind, a_bytes)
        b_operand = pack_smem(b, b_layout, b_swizzle, kind, b_bytes)
        out = _sentinel_output(len(a), atom, count)
        kernel(len(a), 128, [a_operand, b_operand, out], a_bytes + b_bytes)
        layout = atom.a if name == "A" and atom.a else atom.c
        yield FragmentOutcome(
            instruction=f"{atom.name}{f', rows of {row_bytes} B, {a_swizzle}' if row_bytes else ''}",
            operand=name,
            layout=str(layout),
            elements=size(layout),
            mismatches=_count_mismatches(_mismatch_mask(out, a, b, atom.c), name),
        )


def check_copy(atom: CopyAtom) -> FragmentOutcome:
    """Check ldmatrix on memory with numbered elements, stmatrix on registers numbered according to the layout."""
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
    """Pack matrices (probe, row, column) into registers (probe, thread and value) according to a layout."""
    flat = matrices.transpose(1, 2).reshape(len(matrices), -1)
    return _to_dtype(flat[:, _register_offsets(layout)], kind)


def smem_operand_layout(rows: int, k: int, bits: int, row_bytes: int) -> tuple[Layout, Swizzle, int]:
    """Shared memory layout of a wgmma operand.

    Returns:
        The layout (row, k) -> element, the swizzle of elements, and the descriptor's stride between groups of 8 rows,
        in units of 16 bytes.
    """
    core_elements = 128 // bits  # of a 16-byte row of a core matrix
    if row_bytes == 0:  # 8x16-byte core matrices, along K first
        stride = 8 * k
        layout = Layout(
            ((8, rows // 8), (core_elements, k // core_elements)), ((core_elements, stride), (1, 8 * core_elements))
        )
        return layout, Swizzle(0, 0, 0), stride * bits // 128
    row_elements = row_bytes * 8 // bits
    return Layout((rows, k), (row_elements, 1)), recast(SWIZZLES[row_bytes], 8, bits), 8 * row_bytes // 16


def pack_smem(matrices: Any, layout: Layout, swizzle: Swizzle, kind: str, image_bytes: int) -> Any:
    """Pack matrices (probe, row, k) into shared memory images; unused elements are filled with 3, to expose reads."""
    import torch

    flat = matrices.transpose(1, 2).reshape(len(matrices), -1)
    elements = image_bytes * 8 // DTYPE_BITS[kind]
    image = torch.full((len(matrices), elements), 3, dtype=flat.dtype, device=flat.device)
    offsets = torch.tensor([swizzle(offset) for offset in layout.offsets()], device=flat.device)
    image[:, offsets] = flat
    return _to_dtype(image, kind)


def _make_probes(atom: MmaAtom) -> dict[str, tuple[Any, Any]]:
    """Pairs of A (probe, M, K) and B (probe, N, K) by operand under test: one-hot A, one-hot B, and random for C."""
    import torch

    m, n, k = atom.shape
    generator = torch.Generator().manual_seed(0)
    low = 0 if atom.types[0] == "u8" else -3

    def random(*shape: int) -> Any:
        return torch.randint(low, 4, shape, generator=generator).double().cuda()

    def one_hot(rows: int) -> Any:
        return torch.eye(rows * k, dtype=torch.float64, device="cuda").reshape(rows * k, rows, k)

    probes = {"C": (random(NUM_RANDOM_PROBES, m, k), random(NUM_RANDOM_PROBES, n, k))}
    if atom.a is not None:
        probes["A"] = one_hot(m), random(1, n, k).expand(m * k, n, k)
    if atom.b is not None:
        probes["B"] = random(1, m, k).expand(n * k, m, k), one_hot(n)
    return probes


def _mismatch_mask(out: Any, a: Any, b: Any, layout: Layout) -> Any:
    """Elements (probe, M N) of the output registers, read according to the layout, that differ from A B."""
    import torch

    expected = (a @ b.transpose(1, 2)).transpose(1, 2).reshape(len(a), -1)
    actual = torch.full_like(expected, float("nan"))
    actual[:, _register_offsets(layout)] = out.reshape(len(a), -1).double()
    return actual != expected


def _count_mismatches(wrong: Any, operand: str) -> int:
    """Number of misplaced elements: for C by element, for A and B by probe, because each probe tests one element."""
    return int(wrong.any(dim=0 if operand == "C" else 1).sum())


def _register_offsets(layout: Layout) -> Any:
    """Offsets in register order: by thread, then by value."""
    import torch

    offsets, threads, values = layout.offsets(), size(layout[0]), size(layout[1])
    return torch.tensor([offsets[thread + threads * value] for thread in range(threads) for value in range(values)])


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
    """Number of registers per thread for its values: 32-bit registers, 64-bit for doubles."""
    return size(layout[1]) * min(DTYPE_BITS.get(kind, 32), 32) // 32


def _sentinel_output(probes: int, atom: MmaAtom, count: int) -> Any:
    """Output registers filled with the sentinel -77, so that registers that the kernel does not write show."""
    import torch

    kinds = {"f64": torch.float64, "f32": torch.float32, "s32": torch.int32}
    return torch.full((probes, size(atom.c[0]), count), -77, dtype=kinds[atom.types[2]], device="cuda")


def _image_bytes(layout: Layout, bits: int) -> int:
    """Bytes of a shared memory image, rounded up to 1,024, the period of the widest swizzle."""
    return -(-layout.cosize() * bits // 8 // 1024) * 1024
