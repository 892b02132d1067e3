"""One operator call: arguments by schema name, and the metadata that FLOP formulas use."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import Any

import torch

from kernelwright.work.storages import as_int

SHORT_DTYPES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32",
    "int16": "i16", "int8": "i8", "uint8": "u8", "complex64": "c64", "complex128": "c128",
}  # fmt: skip
MAX_SHAPES = 6
OPERATOR_ALIASES = {
    "to_copy": "to",
    "convolution_overrideable": "convolution",
    "cudnn_convolution": "convolution",
    "local_scalar_dense": "item",
    "mkldnn_rnn_layer": "rnn_layer",
    "mkldnn_rnn_layer_backward": "rnn_layer_backward",
    "cudnn_rnn": "rnn",
    "cudnn_rnn_backward": "rnn_backward",
    "thnn_fused_lstm_cell": "lstm_cell",
    "thnn_fused_lstm_cell_backward_impl": "lstm_cell_backward",
    "thnn_fused_gru_cell": "gru_cell",
    "thnn_fused_gru_cell_backward": "gru_cell_backward",
    "softmax_backward_data": "softmax_backward",
    "log_softmax_backward_data": "log_softmax_backward",
    "nll_loss_forward": "nll_loss",
    "nll_loss2d_forward": "nll_loss",
    "nll_loss2d_backward": "nll_loss_backward",
    "native_batch_norm_legit": "batch_norm",
    "native_batch_norm_legit_functional": "batch_norm",
    "native_batch_norm_legit_no_training": "batch_norm",
    "batch_norm_with_update": "batch_norm",
    "cudnn_batch_norm": "batch_norm",
    "cudnn_batch_norm_backward": "batch_norm_backward",
    "max_pool2d_with_indices": "max_pool2d",
    "max_pool2d_with_indices_backward": "max_pool2d_backward",
    "max_pool3d_with_indices": "max_pool3d",
    "fused_rms_norm": "rms_norm",
    "fused_rms_norm_backward": "rms_norm_backward",
    "safe_softmax": "softmax",
    "index_put_impl": "index_put",
    "unsafe_index": "index",
    "unsafe_index_put": "index_put",
    "unsafe_view": "view",
    "embedding_bag_forward_only": "embedding_bag",
}
"""Common names of operators whose aten name describes the implementation."""


@dataclass(frozen=True)
class SchemaArgument:
    """One argument of an operator schema."""

    name: str
    mutated: bool
    is_out: bool
    default: Any = None
    takes_tensors: bool = True


@dataclass(frozen=True, eq=False)
class OperatorSchema:
    """The schema of an operator.

    Attributes:
        key: name of its formula: without namespace (for aten), underscores and variant.
        is_composite: torch can decompose it into other operators.
    """

    key: str
    name: str
    namespace: str
    arguments: tuple[SchemaArgument, ...]
    is_composite: bool
    tags: frozenset[str]


@cache
def get_schema(func: Any) -> OperatorSchema:
    """The schema of an OpOverload; for a higher-order operator only its name."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        name = str(getattr(func, "name", lambda: func)())
        return OperatorSchema(name, name, "higher_order", (), False, frozenset())
    namespace, _, base = schema.name.partition("::")
    key, name = _key_and_name(namespace, base)
    arguments = tuple(
        SchemaArgument(
            a.name,
            a.alias_info is not None and a.alias_info.is_write,
            a.is_out,
            a.default_value,
            "Tensor" in str(a.type),
        )
        for a in schema.arguments
    )
    tags = frozenset(tag.name for tag in func.tags)
    composite = namespace != "prim" and func._can_decompose()
    return OperatorSchema(key, name, namespace, arguments, composite, tags)


def _key_and_name(namespace: str, base: str) -> tuple[str, str]:
    if namespace not in ("aten", "prims"):
        return f"{namespace}.{base}", f"{namespace}.{base}"
    in_place = "_" if base.endswith("_") and not base.endswith("__") else ""
    key = base.strip("_")
    if key.startswith("scaled_dot_product_"):
        key = "scaled_dot_product_attention" + ("_backward" if key.endswith("_backward") else "")
    key = OPERATOR_ALIASES.get(key, key.removeprefix("native_"))
    return key, key + in_place


@dataclass
class OperatorCall:
    """An operator call as formulas see it: shapes and dtypes by argument name, never tensor values.

    Attributes:
        values: value of each schema argument, including defaults; `arg0`, `arg1`... without a schema.
        outputs: the returned tensors.
    """

    schema: OperatorSchema
    values: dict[str, Any]
    outputs: list[torch.Tensor] = field(default_factory=list)

    @classmethod
    def bind(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OperatorCall:
        """Match arguments to the operator's schema; outputs stay empty."""
        signature = get_schema(func)
        names = [argument.name for argument in signature.arguments]
        names += [f"arg{i}" for i in range(len(names), len(args))]
        values = {a.name: a.default for a in signature.arguments}
        return cls(signature, values | dict(zip(names, args, strict=False)) | kwargs)

    def __getitem__(self, name: str) -> Any:
        return self.values.get(name)

    def tensors(self, name: str) -> list[torch.Tensor]:
        """The tensors of one argument, which may be a tensor, a list with None entries, or None."""
        return tensors_in(self.values.get(name))

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of the first tensor of an argument."""
        return shape_of(self.tensors(name)[0])

    def numel(self, name: str) -> int:
        """Number of elements of all tensors of an argument; 0 if it has none."""
        return sum(math.prod(shape_of(t)) for t in self.tensors(name))

    @cached_property
    def inputs(self) -> list[torch.Tensor]:
        """All tensors among the arguments, in order."""
        named = [a.name for a in self.schema.arguments if a.takes_tensors] or self.values
        return [tensor for name in named for tensor in tensors_in(self.values.get(name))]

    @property
    def out_numel(self) -> int:
        """Elements of the first output; for a call without outputs, of all tensors of its first argument."""
        if self.outputs:
            return math.prod(shape_of(self.outputs[0]))
        return self.numel(self.schema.arguments[0].name) if self.schema.arguments else 0

    @property
    def is_complex(self) -> bool:
        """Whether it computes in a complex dtype."""
        return self.dtype.startswith("complex")

    @property
    def dtype(self) -> str:
        """The dtype it computes in: the output's if that is a float, else the first input's."""
        tensors = [*self.outputs[:1], *self.inputs]
        floats = (t for t in tensors if t.dtype.is_floating_point or t.dtype.is_complex)
        for tensor in (*floats, *self.inputs, *tensors):
            return dtype_name(tensor)
        return "int64"

    def vector_flops(self, flops: int) -> dict[str, int]:
        """FLOPs of the vector unit; a complex addition counts as two real ones."""
        return {f"vector/{self.dtype}": flops * (2 if self.is_complex else 1)}

    def matrix_flops(self, flops: int, operand: str = "self") -> dict[str, int]:
        """FLOPs of the matrix unit in the named operand's dtype; a complex multiply-add counts as eight, not two."""
        values = self.tensors(operand)[0]
        return {f"matrix/{dtype_name(values)}": flops * (4 if values.dtype.is_complex else 1)}

    def window_numel(self, name: str, dims: int) -> int:
        """Elements of a pooling window with `dims` dimensions; a single size applies to each of them."""
        size = self.values[name]
        sizes = [size] if isinstance(size, int) else list(size)
        return math.prod(sizes * dims if len(sizes) == 1 else sizes)

    def describe_shapes(self) -> str:
        """Shapes of the inputs, or of the outputs of a call without inputs: `f32[64, 128], f32[128]`."""
        tensors = self.inputs or self.outputs
        texts = [_shape_text(dtype_name(t), shape_of(t)) for t in tensors[:MAX_SHAPES]]
        return ", ".join(texts) + (f", and {len(tensors) - MAX_SHAPES} more" if len(tensors) > MAX_SHAPES else "")


def tensors_in(value: Any) -> list[torch.Tensor]:
    """All tensors in a nested value, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in tensors_in(item)]
    if isinstance(value, dict):
        return [t for item in value.values() for t in tensors_in(item)]
    return []


def shape_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """Shape of a tensor with symbolic sizes replaced by their hints."""
    return tuple(as_int(size) for size in tensor.shape)


def dtype_name(tensor: torch.Tensor) -> str:
    """Name of a tensor's dtype: `float32`."""
    return _dtype_text(tensor.dtype)


@cache
def _dtype_text(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@lru_cache(maxsize=65536)
def _shape_text(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{SHORT_DTYPES.get(dtype, dtype)}[{', '.join(map(str, shape))}]"
