"""Generates Triton for attention of FP32 tensors on the tensor cores, without loss of accuracy.

Queries, keys and values are split into two FP16 terms, as the operands of products are (see `contractions`), and so are
the weights of each tile; three products of the terms are as accurate as one of FP32. The softmax is computed tile by
tile in FP32, and the sum of each tile is added to the result in FP32. Dao et al. 2022, arXiv:2205.14135. Where a value
is infinite, its column of the result is NaN.
"""

from __future__ import annotations

import math

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.call import CallRegion
from kernelwright.compiler.regions.contraction import Matrix
from kernelwright.compiler.triton.kernel import Kernel, indented, print_kernel, print_launcher
from kernelwright.compiler.triton.operand_packing import INT32_ELEMENTS, SplitMatrix, power_of_two, round_up
from kernelwright.compiler.triton.triton_source import TritonSource
from kernelwright.core.record import Record

MIN_HEAD, MAX_HEAD = 16, 128
"""Elements of a head in a tile."""
WEIGHT_SCALE = 2**15
"""The largest weight of a row in FP16."""
LOG2_E = math.log2(math.e)
_TILES = ((128, 64, 8, 2), (64, 64, 4, 2), (128, 32, 4, 2), (64, 32, 4, 3))


class AttentionTiles(Record, frozen=True, kw_only=True):
    """A tile of `BLOCK_M` queries, and steps of `BLOCK_N` keys."""

    BLOCK_M: int
    BLOCK_N: int
    num_warps: int
    num_stages: int


def generate_attention_tiles(region: CallRegion) -> list[AttentionTiles]:
    """Return the tiles for attention of FP32 tensors; none where it is not supported."""
    try:
        _require_supported(region)
    except Unsupported:
        return []
    names = ("BLOCK_M", "BLOCK_N", "num_warps", "num_stages")
    return [AttentionTiles(**dict(zip(names, tile, strict=True))) for tile in _TILES]


def print_split_attention(region: CallRegion, arguments: dict[str, str], config: AttentionTiles) -> TritonSource:
    """Generate the kernels of attention and the function that launches them.

    Args:
        arguments: the literals of the call by parameter, as Python source.
    Raises:
        Unsupported: tensors are not FP32, or not of four dimensions, or the heads are too large.
    """
    _require_supported(region)
    return _Printer(region, arguments, config).generate()


def _require_supported(region: CallRegion) -> None:
    query, key, value = (region.shapes[one] for one in ("query", "key", "value"))
    if any(region.tensors[one][1] != "float32" for one in ("query", "key", "value")):
        raise Unsupported("attention that is not of FP32 tensors")
    if len(query) != 4 or query[:2] != key[:2] or key[:3] != value[:3] or max(query[-1], value[-1]) > MAX_HEAD:
        raise Unsupported("attention of large heads, or with other dimensions than images, heads, rows and elements")
    if region.tensors.get("attn_mask", ("", "bool"))[1] not in ("bool", "float32"):
        raise Unsupported("a mask that is neither bool nor FP32")


class _Printer:
    def __init__(self, region: CallRegion, arguments: dict[str, str], config: AttentionTiles) -> None:
        self.region, self.config = region, config
        self.images, self.heads, self.num_queries, head = region.shapes["query"]
        self.num_keys, self.width = region.shapes["value"][2:]
        self.is_causal = arguments["is_causal"] == "True"
        scale = arguments["scale"]
        self.scale = LOG2_E * (1 / math.sqrt(head) if scale == "None" else float(scale))
        self.padded_head, self.padded_width = (max(power_of_two(size), MIN_HEAD) for size in (head, self.width))
        rows, keys = round_up(self.num_queries, config.BLOCK_M), round_up(self.num_keys, config.BLOCK_N)
        self.queries = self._split("query", (2, 3), rows, self.padded_head)
        self.keys = self._split("key", (2, 3), keys, self.padded_head)
        self.values = self._split("value", (3, 2), self.padded_width, keys)
        self.operands = (self.queries, self.keys, self.values)

    def _split(self, parameter: str, dims: tuple[int, int], padded_rows: int, padded_k: int) -> SplitMatrix:
        """A tensor as matrices with rows along one dimension, summed along the other."""
        shape, strides = self.region.shapes[parameter], self.region.strides[parameter]
        row, k = dims
        prefix = f"{parameter}_terms"
        while any(name.startswith(f"{prefix}_") for name in (*self.region.reads, *self.region.writes)):
            prefix = f"{prefix}_of_call"
        return SplitMatrix(
            prefix=prefix,
            matrix=Matrix(
                buffer=self.region.tensors[parameter][0], dtype="float32", offset=0, batch_stride=strides[0],
                row_stride=strides[row], k_stride=strides[k], batch_axes=((shape[1], strides[1]),),
            ),
            batch=shape[0] * shape[1], rows=shape[row], padded_rows=padded_rows, k=shape[k], padded_k=padded_k,
            all_finite=True,
        )  # fmt: skip

    def generate(self) -> TritonSource:
        name = self.region.name
        kernels = [kernel for operand in self.operands for kernel in operand.kernels(name)]
        kernels.append(self._main_kernel())
        scratch = {buffer: size for operand in self.operands for buffer, size in operand.buffers.items()}
        return TritonSource(
            launcher_name=f"launch_{name}",
            kernels="\n\n".join(kernel.source for kernel in kernels),
            kernel_names=tuple(kernel.name for kernel in kernels),
            scratch={buffer: dtype for buffer, (_, dtype) in scratch.items()},
            launcher=print_launcher(self.region, kernels, scratch),
        )

    # ---- the kernel of a tile

    def _main_kernel(self) -> Kernel:
        config, name = self.config, f"{self.region.name}_kernel"
        tiles = -(-self.num_queries // config.BLOCK_M)
        end = f"tl.minimum((tile + 1) * {config.BLOCK_M}, {self.num_keys})" if self.is_causal else f"{self.num_keys}"
        infinite = 'float("-inf")'
        body = [
            f"tile, batch = tl.program_id(0) % {tiles}, tl.program_id(0) // {tiles}",
            *([f"tile = {tiles - 1} - tile"] if self.is_causal else []),  # the longest first
            f"offs_m = tile * {config.BLOCK_M} + tl.arange(0, {config.BLOCK_M})",
            f"offs_head, offs_width = tl.arange(0, {self.padded_head}), tl.arange(0, {self.padded_width})",
            f"query_rows = batch * {self.queries.padded_rows} + offs_m",
            f"query_offsets = query_rows{self._wide(self.queries)}[:, None] * {self.padded_head} + offs_head[None, :]",
            *self._load("query", self.queries),
            f"query_scale = tl.load({self.queries.prefix}_scale_ptr + query_rows) * {self.scale!r}",
            f"total = tl.zeros(({config.BLOCK_M}, {self.padded_width}), tl.float32)",
            f"weight = tl.zeros(({config.BLOCK_M},), tl.float32)",
            f"largest = tl.full(({config.BLOCK_M},), {infinite}, tl.float32)",
            f"for start in tl.range(0, {end}, {config.BLOCK_N}, num_stages={config.num_stages}):",
            *indented([*self._scores(), *self._softmax(), *self._weighted_sum()]),
            f"value_scale = tl.load({self.values.prefix}_scale_ptr + batch * {self.padded_width} + offs_width, "
            f"mask=offs_width < {self.width}, other=0.0)",
            "inverse = tl.where(weight == 0, 0.0, 1.0 / weight)",
            "result = total * inverse[:, None] * value_scale[None, :]",
            *self._store(),
        ]  # fmt: skip
        mask = [self.region.tensors["attn_mask"][0]] if "attn_mask" in self.region.tensors else []
        scratch = [buffer for operand in self.operands for buffer in operand.buffers]
        tensors = [*mask, self.region.output.buffer, *scratch]
        doc = f"{self.images} x {self.heads} heads of {self.num_queries:,} queries and {self.num_keys:,} keys"
        source = print_kernel(name, tensors, doc, body)
        return Kernel(name, source, tensors, tiles * self.images * self.heads, config.num_warps)

    def _scores(self) -> list[str]:
        """The logarithm to base 2 of the weights of a tile, but for a constant of each row."""
        lines = [
            f"offs_n = start + tl.arange(0, {self.config.BLOCK_N})",
            f"key_rows = batch * {self.keys.padded_rows} + offs_n",
            f"key_offsets = key_rows{self._wide(self.keys)}[None, :] * {self.padded_head} + offs_head[:, None]",
            *self._load("key", self.keys),
            f"key_scale = tl.load({self.keys.prefix}_scale_ptr + key_rows)",
            "cross = tl.dot(query_lo, key_hi)",
            "cross = tl.dot(query_hi, key_lo, cross)",
            "main = tl.dot(query_hi, key_hi)",
            "scores = (main + cross * (1.0 / 2048.0)) * query_scale[:, None] * key_scale[None, :]",
        ]
        visible = [f"(offs_n < {self.num_keys})[None, :]"] if self.num_keys % self.config.BLOCK_N else []
        if self.is_causal:
            visible.append("(offs_n[None, :] <= offs_m[:, None])")
        if "attn_mask" in self.region.tensors:
            lines += self._load_mask()
            is_bool = self.region.tensors["attn_mask"][1] == "bool"
            visible += ["mask"] if is_bool else []
            lines += [] if is_bool else [f"scores += mask * {LOG2_E!r}"]
        return [*lines, f'scores = tl.where({" & ".join(visible)}, scores, float("-inf"))'] if visible else lines

    def _load_mask(self) -> list[str]:
        shape, strides = self.region.shapes["attn_mask"], self.region.strides["attn_mask"]
        padding = 4 - len(shape)
        steps = [0] * padding + [0 if size == 1 else stride for size, stride in zip(shape, strides, strict=True)]
        places = (f"batch // {self.heads}", f"batch % {self.heads}", "offs_m[:, None]", "offs_n[None, :]")
        wide = (f"({place}).to(tl.int64) * {step}" for place, step in zip(places, steps, strict=True))
        within = f"(offs_m < {self.num_queries})[:, None] & (offs_n < {self.num_keys})[None, :]"
        name = self.region.tensors["attn_mask"][0]
        return [f"mask = tl.load({name}_ptr + {' + '.join(wide)}, mask={within}, other=0)"]

    def _softmax(self) -> list[str]:
        return [
            "new_largest = tl.maximum(largest, tl.max(scores, axis=1))",
            'shift = tl.where(new_largest == float("-inf"), 0.0, new_largest)',
            f"weights = tl.exp2(scores - shift[:, None]) * {float(WEIGHT_SCALE)}",
            "carried = tl.exp2(largest - shift)",
            "largest = new_largest",
            "weight = weight * carried + tl.sum(weights, axis=1)",
            "weights_hi = weights.to(tl.float16)",
            "weights_lo = ((weights - weights_hi.to(tl.float32)) * 2048.0).to(tl.float16)",
        ]

    def _weighted_sum(self) -> list[str]:
        rows = f"(batch * {self.padded_width} + offs_width)"
        return [
            f"value_offsets = {rows}{self._wide(self.values)}[None, :] * {self.values.padded_k} + offs_n[:, None]",
            *self._load("value", self.values),
            "cross = tl.dot(weights_lo, value_hi)",
            "cross = tl.dot(weights_hi, value_lo, cross)",
            "main = tl.dot(weights_hi, value_hi)",
            "total = total * carried[:, None] + (main + cross * (1.0 / 2048.0))",
        ]

    def _load(self, name: str, operand: SplitMatrix) -> list[str]:
        return [f"{name}_{part} = tl.load({operand.prefix}_{part}_ptr + {name}_offsets)" for part in ("hi", "lo")]

    def _store(self) -> list[str]:
        output = self.region.output
        places = (f"batch // {self.heads}", f"batch % {self.heads}", "offs_m[:, None]", "offs_width[None, :]")
        terms = (f"({place}).to(tl.int64) * {step}" for place, step in zip(places, output.shape_strides, strict=True))
        within = f"(offs_m < {self.num_queries})[:, None] & (offs_width < {self.width})[None, :]"
        return [f"offsets = {' + '.join(terms)}", f"tl.store({output.buffer}_ptr + offsets, result, mask={within})"]

    @staticmethod
    def _wide(operand: SplitMatrix) -> str:
        """Index arithmetic in 64 bits where an operand is that large."""
        elements = operand.batch * operand.padded_rows * operand.padded_k
        return ".to(tl.int64)" if elements > INT32_ELEMENTS else ""
