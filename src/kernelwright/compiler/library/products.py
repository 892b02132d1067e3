"""The library's product kernel as a candidate for a product with its epilogue, on the GPUs that it is written for.

`kernelwright.kernels.gemm` computes as much of the epilogue as it can, from its first step on, and a Triton kernel the
rest. A file with it needs Kernelwright: without it the original program runs.
"""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from itertools import pairwise
from math import prod
from pathlib import Path

import msgspec

from kernelwright.compiler.library.product_epilogues import (
    ProductEpilogue,
    View,
    empty_epilogue,
    match_epilogue,
    remaining_region,
)
from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.contraction import Contraction, ContractionRegion, Matrix
from kernelwright.compiler.triton.configs import generate_configs
from kernelwright.compiler.triton.printer import print_triton
from kernelwright.compiler.triton.source_lines import wrap_line
from kernelwright.compiler.triton.target import Target, current_target
from kernelwright.compiler.triton.triton_source import TritonSource
from kernelwright.core.cache import digest
from kernelwright.core.record import Record
from kernelwright.kernels.matmul.product import CAPABILITY
from kernelwright.kernels.matmul.recorded import PACKAGED, VARIABLE

TILE, MIN_SPLIT_K = 128, 1024
"""Rows and columns of the tile of FP32, and the least K that a part of a split sum has."""
MAX_SKINNY_ROWS = 128
"""In half precision, `gemm` splits products with fewer rows itself."""
GEMM = "library_gemm"
MISSING_GEMM_CHECK = f"{GEMM} is None or "
FIND_GEMM = f'''def find_gemm():
    """The product kernel of Kernelwright; None, and the original program runs, where it is not installed."""
    try:
        from kernelwright.kernels import gemm, gemm_is_available
    except ImportError:
        reason = "kernelwright is not installed"
    else:
        if gemm_is_available():
            return gemm
        reason = "kernelwright.kernels.gemm needs the extra cuda"
    import warnings

    warnings.warn(f"{{reason}}, running the original program", RuntimeWarning, stacklevel=2)
    return None


{GEMM} = find_gemm()
'''


@functools.cache
def kernel_digest() -> str:
    """Digest of the library's product kernels and of a user's table of tiles: times depend on them."""
    files = sorted(path for path in PACKAGED.parent.iterdir() if path.is_file())
    table = os.environ.get(VARIABLE, "")
    own = [Path(table).read_text("utf-8")] if table else []
    return digest(*(path.read_text("utf-8") for path in files), *own)


class ProductConfig(Record, frozen=True, kw_only=True):
    """`kernelwright.kernels.gemm` with its argument `precision`.

    Attributes:
        num_splits: parts of K, which are a batch of products that are added then: for results of a few tiles.
    """

    library: str = "kernelwright.kernels.gemm"
    precision: str = "default"
    num_splits: int = 1


def generate_product_configs(region: ContractionRegion, target: Target | None = None) -> list[ProductConfig]:
    """Return the library's kernel for a product of matrices; nothing for a convolution, or on another GPU."""
    one, target = region.contraction, target or current_target()
    matrices = isinstance(one.left, Matrix) and isinstance(one.right, Matrix)
    if not matrices or target.capability != CAPABILITY:
        return []
    fp32 = "tf32" if one.tf32 else "fp32_emulated"
    whole = ProductConfig(precision=fp32 if one.left.dtype == "float32" else "default")
    num_splits = _num_splits(one, target)
    return [msgspec.structs.replace(whole, num_splits=num_splits), whole] if num_splits > 1 else [whole]


def _num_splits(one: Contraction, target: Target) -> int:
    """The parts of K with which tiles occupy the GPU: a power of two."""
    tiles, num_splits = -(-one.m // TILE) * -(-one.n // TILE), 1
    if one.batch > 1 or (one.left.dtype != "float32" and one.m <= MAX_SKINNY_ROWS):
        return 1
    while 2 * num_splits * tiles <= target.multiprocessors and one.k % (2 * num_splits * MIN_SPLIT_K) == 0:
        num_splits *= 2
    return num_splits


def print_product(region: ContractionRegion, config: ProductConfig) -> TritonSource:
    """Generate the function of a product: the call of the library, and the kernel of what is left of the epilogue.

    Raises:
        Unsupported: an operand is reversed, their batches have different dimensions, or the epilogue has a step that
            has no Triton code.
    """
    one, is_split = region.contraction, config.num_splits > 1
    matched = empty_epilogue(region) if is_split else match_epilogue(region)
    store, name = matched.find_store(region), "product"
    while name in (*region.reads, *region.writes):
        name = f"{name}_"
    compute = _sum_parts if is_split else _multiply
    dtype = store.dtype if store else matched.result_dtype(region)
    lines = compute(name, region, matched, config, dtype)
    if store:
        doc = f'"""A product with its epilogue, {one.batch} x {one.m:,} x {one.n:,} over {one.k:,}."""'
        body = [f"    {line}" for line in (doc, *lines, f"return {name}.view({store.shape})")]
        text = [
            wrapped for line in (f"def {region.name}({', '.join(region.reads)}):", *body) for wrapped in wrap_line(line)
        ]
        return TritonSource(helpers=(FIND_GEMM,), launcher="\n".join(text) + "\n")
    rest = remaining_region(region, matched, name, dtype)
    printed = print_triton(rest, generate_configs(rest)[0])
    return msgspec.structs.replace(
        printed,
        helpers=(FIND_GEMM, *printed.helpers),
        setup=tuple(wrapped for line in lines for wrapped in wrap_line(line)),
        launcher_reads=tuple(rest.reads),
    )


def _multiply(
    name: str, region: ContractionRegion, matched: ProductEpilogue, config: ProductConfig, out_dtype: str
) -> list[str]:
    return [f"{name} = {_call(region, matched, config, out_dtype)}"]


def _sum_parts(
    name: str, region: ContractionRegion, matched: ProductEpilogue, config: ProductConfig, out_dtype: str
) -> list[str]:
    """The products of parts of K as a batch, and their sum with the bias."""
    one, parts = region.contraction, config.num_splits
    assert isinstance(one.left, Matrix)
    assert isinstance(one.right, Matrix)
    k = one.k // parts
    left, right = (
        msgspec.structs.replace(side, batch_stride=k * side.k_stride, batch_axes=()) for side in (one.left, one.right)
    )
    batched = msgspec.structs.replace(one, batch=parts, k=k, left=left, right=right)
    call = _call(msgspec.structs.replace(region, contraction=batched), matched, config, "float32")
    bias = f".add_({one.bias[0]})" if one.bias else ""
    dtype = "" if out_dtype == "float32" else f".to(torch.{out_dtype})"
    return [f"{name} = {call}", f"{name} = {name}.sum(0){bias}{dtype}"]


def _call(region: ContractionRegion, matched: ProductEpilogue, config: ProductConfig, out_dtype: str) -> str:
    """The call of the library."""
    one = region.contraction
    arguments = [*_operands(one)]
    if bias := _bias(matched, one):
        arguments.append(f"bias={bias}")
    if matched.activation != "none":
        arguments.append(f'activation="{matched.activation}"')
    if matched.residual:
        view, beta = matched.residual
        shape = (*_batch_sizes(one), one.m, one.n)
        arguments.append(f"residual={_tensor(replace(view, shape=shape))}")
        arguments += [f"beta={beta!r}"] if beta != 1 else []
    if matched.alpha != 1:
        arguments.append(f"alpha={matched.alpha!r}")
    if out_dtype != one.left.dtype:
        arguments.append(f"out_dtype=torch.{out_dtype}")
    if config.precision != "default":
        arguments.append(f'precision="{config.precision}"')
    return f"{GEMM}({', '.join(arguments)})"


def _bias(matched: ProductEpilogue, one: Contraction) -> str:
    """The sum of the vectors that are added to each row; empty if there is none."""
    terms = [_tensor(view) if factor == 1 else f"{_tensor(view)} * {factor!r}" for view, factor in matched.biases]
    if matched.shift and not terms:
        return f"{one.left.buffer}.new_full(({one.n},), {matched.shift!r})"
    return " + ".join([*terms, *[repr(matched.shift)] * bool(matched.shift)])


def _operands(one: Contraction) -> tuple[str, str]:
    """The expressions of the operands, (..., M, K) and (..., K, N); a right one of all batches is (K, N).

    Raises:
        Unsupported: an operand has a negative stride, which torch's tensors cannot have; see `_batch_sizes`.
    """
    left, right, batches = one.left, one.right, _batch_sizes(one)
    assert isinstance(left, Matrix)
    assert isinstance(right, Matrix)
    if min(left.row_stride, left.k_stride, right.row_stride, right.k_stride) < 0:
        raise Unsupported("a reversed operand")
    shape, strides = (*batches, one.m, one.k), (*_batch_strides(left, batches), left.row_stride, left.k_stride)
    a = _tensor(View(left.buffer, shape, strides, left.offset, shape))
    outer = (batches, _batch_strides(right, batches)) if right.has_batch else ((), ())
    shape, strides = (*outer[0], one.k, one.n), (*outer[1], right.k_stride, right.row_stride)
    return a, _tensor(View(right.buffer, shape, strides, right.offset, shape))


def _batch_sizes(one: Contraction) -> tuple[int, ...]:
    """The dimensions of the batch, such that each has one stride in both operands; none without a batch.

    Raises:
        Unsupported: the dimensions of one operand do not divide those of the other.
    """
    inner: set[int] = {1, one.batch}
    for matrix in (one.left, one.right):
        assert isinstance(matrix, Matrix)
        sizes = [size for size, _ in matrix.batch_axes]
        inner |= {prod(sizes[at:]) for at in range(len(sizes))}
    ordered = sorted(inner, reverse=True)
    if any(outer % size for outer, size in pairwise(ordered)):
        raise Unsupported("batches with different dimensions")
    return tuple(outer // size for outer, size in pairwise(ordered))


def _batch_strides(matrix: Matrix, sizes: tuple[int, ...]) -> list[int]:
    """The strides of a matrix for these dimensions of its batch."""
    known = [  # the stride of each dimension, and the batches that one step of it passes
        (stride, prod(size for size, _ in matrix.batch_axes[at:]))
        for at, stride in enumerate([matrix.batch_stride, *(stride for _, stride in matrix.batch_axes)])
    ]
    strides = []
    for at in range(len(sizes)):
        step = prod(sizes[at + 1 :])
        stride, unit = next((stride, unit) for stride, unit in known if step % unit == 0 and step >= unit)
        strides.append(stride * (step // unit))
    return strides


def _tensor(view: View) -> str:
    """The expression of a view; `as_strided` starts where the tensor does, unless it is given an offset."""
    place = f", {view.buffer}.storage_offset() + {view.offset}" if view.offset else ""
    text = f"{view.buffer}.as_strided({view.sizes}, {view.strides}{place})"
    return text if view.sizes == view.shape else f"{text}.reshape({view.shape})"
