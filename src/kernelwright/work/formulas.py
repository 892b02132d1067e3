"""FLOPs per operator: one table for matrix operators, one for all others, and registration of custom operators.

A multiply-add counts as two. Matrix FLOPs count in the dtype of the operands (`matrix/bfloat16`), all others in the
dtype of the computation (`vector/float32`, or `special/float32` for exp and similar functions). Integer and bool
operations count as operations too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

from kernelwright.core.work import OperatorKind
from kernelwright.work.calls import OperatorCall, OperatorSchema, get_schema, shape_of
from kernelwright.work.vector import SPECIAL_FUNCTIONS, find_vector_formula

FlopFunction = Callable[[OperatorCall], "dict[str, int] | int"]


@dataclass(frozen=True)
class Formula:
    """Kind and FLOPs of an operator: FLOPs per unit, or a plain number for the vector unit."""

    kind: OperatorKind
    count_flops: FlopFunction

    def flops(self, call: OperatorCall) -> dict[str, int]:
        """FLOPs per unit of one call."""
        counted = self.count_flops(call)
        unit = "special" if call.schema.key in SPECIAL_FUNCTIONS else "vector"
        units = {f"{unit}/{call.dtype}": counted} if isinstance(counted, int) else counted
        return {unit: flops for unit, flops in units.items() if flops}


FORMULAS: dict[str, Formula] = {}
"""Formulas by operator: `mm` stands for every overload, in-place, out= and private variant of aten's mm."""


def register_flop_formula(operator: Any, formula: FlopFunction, kind: OperatorKind = "other") -> None:
    """Register the FLOPs of a custom operator, so that programs with it can be diagnosed and compared with a floor.

    Args:
        operator: `torch.ops.mylib.myop`, an overload of it, or the name `mylib::myop`.
        formula: called with the `OperatorCall`; returns FLOPs as a number (vector unit) or `{"matrix/float16": n}`.
        kind: kind of operator; `pointwise`, `reduction`, `scan`, `copy` and `random` may be fused with adjacent ones.
    """
    FORMULAS[_operator_key(operator)] = Formula(kind, formula)


def _operator_key(operator: Any) -> str:
    if isinstance(operator, str):
        namespace, _, name = operator.replace("::", ".").rpartition(".")
        return name if namespace in ("", "aten") else f"{namespace}.{name}"
    overloads = getattr(operator, "overloads", None)
    return get_schema(getattr(operator, overloads()[0]) if overloads else operator).key


def formula_of(call: OperatorCall) -> Formula | None:
    """The formula of a call, None if none is registered."""
    if (formula := FORMULAS.get(call.schema.key)) is not None:
        return formula
    return _find_table_formula(call.schema)


@cache
def _find_table_formula(signature: OperatorSchema) -> Formula | None:
    entry = find_vector_formula(signature) if signature.namespace in ("aten", "prims") else None
    return Formula(*entry) if entry else None


def flop_formula(kind: OperatorKind, *names: str) -> Callable[[FlopFunction], FlopFunction]:
    """Decorator that registers a function as the formula of these operators."""

    def register(count: FlopFunction) -> FlopFunction:
        FORMULAS.update({name: Formula(kind, count) for name in names})
        return count

    return register


# ---- Matrix multiplication


@flop_formula("matrix", "mm", "int_mm", "scaled_mm", "scaled_mm_v2", "bmm", "weight_int8pack_mm")
def _mm(call: OperatorCall) -> dict[str, int]:
    rows = prod(call.shape("self"))
    columns = call.out_numel // max(1, prod(call.shape("self")[:-1]))
    bias = call.out_numel if call.tensors("bias") else 0
    return call.matrix_flops(2 * rows * columns) | ({f"vector/{call.dtype}": bias} if bias else {})


@flop_formula("matrix", "addmm", "baddbmm", "addbmm", "addmm_activation")
def _addmm(call: OperatorCall) -> dict[str, int]:
    left = "batch1" if call["batch1"] is not None else "mat1"
    right = "batch2" if left == "batch1" else "mat2"
    matmul_flops = 2 * prod(call.shape(left)) * call.shape(right)[-1]
    return call.matrix_flops(matmul_flops, left) | call.vector_flops(call.out_numel)


@flop_formula("matrix", "mv", "dot", "vdot")
def _mv(call: OperatorCall) -> dict[str, int]:
    return call.matrix_flops(2 * prod(call.shape("self")))


@flop_formula("matrix", "addmv")
def _addmv(call: OperatorCall) -> dict[str, int]:
    return call.matrix_flops(2 * call.numel("mat"), "mat") | call.vector_flops(call.out_numel)


@flop_formula("matrix", "addr")
def _addr(call: OperatorCall) -> dict[str, int]:
    return call.matrix_flops(2 * call.out_numel, "vec1")


@flop_formula("matrix", "linear", "mkldnn_linear")
def _linear(call: OperatorCall) -> dict[str, int]:
    units = call.matrix_flops(2 * call.out_numel * call.shape("weight")[-1], "weight")
    return units | (call.vector_flops(call.out_numel) if call.tensors("bias") else {})


@flop_formula("matrix", "grouped_mm", "scaled_grouped_mm")
def _grouped_mm(call: OperatorCall) -> dict[str, int]:
    """Each row of `self` belongs to one group: (M, K) by (G, K, N), or groups along K: (M, K) by (K, N), or batched."""
    left, right = call.shape("self"), call.shape("mat2")
    return call.matrix_flops(2 * prod(left) * right[-1])


# ---- Convolution


@flop_formula("convolution", "convolution", "mkldnn_convolution", "conv_depthwise2d", "conv_depthwise3d",
         "slow_conv2d_forward", "slow_conv3d_forward")  # fmt: skip
def _convolution(call: OperatorCall) -> dict[str, int]:
    """One filter per output (transposed: input) element; padding counts, as in every convention."""
    operand = "input" if call["input"] is not None else "self"
    weight = call.shape("weight")
    pixels = call.numel(operand) if call["transposed"] else call.out_numel
    units = call.matrix_flops(2 * pixels * prod(weight[1:]), operand)
    return units | (call.vector_flops(call.out_numel) if call.tensors("bias") else {})


@flop_formula("convolution", "convolution_backward", "convolution_backward_overrideable")
def _convolution_backward(call: OperatorCall) -> dict[str, int]:
    """One matmul each for the gradients of input and weight, one sum for that of the bias."""
    pixels = call.numel("input") if call["transposed"] else call.numel("grad_output")
    num_matmuls = sum(call["output_mask"][:2])
    units = call.matrix_flops(num_matmuls * 2 * pixels * prod(call.shape("weight")[1:]), "grad_output")
    return units | (call.vector_flops(call.numel("grad_output")) if call["output_mask"][2] else {})


# ---- Attention


def _query_key_pairs(call: OperatorCall) -> int:
    """Number of (query, key) pairs of one head; causal means key <= query, both counted from 0."""
    queries, keys = call.shape("query")[-2], call.shape("key")[-2]
    if not call["is_causal"]:
        return queries * keys
    inside = min(queries, keys)
    return inside * (inside + 1) // 2 + (queries - inside) * keys


@flop_formula("attention", "scaled_dot_product_attention")
def _attention(call: OperatorCall) -> dict[str, int]:
    """Q by K and P by V. The softmax is left out, as in published counts: it overlaps the matmuls."""
    *heads, _, width = call.shape("query")
    return call.matrix_flops(2 * prod(heads) * _query_key_pairs(call) * (width + call.shape("value")[-1]), "query")


@flop_formula("attention", "scaled_dot_product_attention_backward")
def _attention_backward(call: OperatorCall) -> dict[str, int]:
    """Scores again, then the gradients of P, V, Q and K: three matmuls of Q's width, two of V's."""
    *heads, _, width = call.shape("query")
    return call.matrix_flops(
        2 * prod(heads) * _query_key_pairs(call) * (3 * width + 2 * call.shape("value")[-1]), "query"
    )


@flop_formula("attention", "flash_attention_forward", "efficient_attention_forward")
def _flash_attention(call: OperatorCall) -> dict[str, int]:
    return _blhd_attention(call, head_dim_products=1, value_dim_products=1)


@flop_formula("attention", "flash_attention_backward", "efficient_attention_backward")
def _flash_attention_backward(call: OperatorCall) -> dict[str, int]:
    return _blhd_attention(call, head_dim_products=3, value_dim_products=2)


def _blhd_attention(call: OperatorCall, head_dim_products: int, value_dim_products: int) -> dict[str, int]:
    """Layout (B, L, H, D), or (total, H, D) with packed sequences, which are assumed to have equal lengths."""
    query, key, value = call.shape("query"), call.shape("key"), call.shape("value")
    starts = call.tensors("cum_seq_q") or call.tensors("cu_seqlens_q")
    packed = len(query) == 3 or bool(starts)
    sequences = max(1, shape_of(starts[0])[0] - 1) if starts else query[0]
    length, keys = (query[-3] // sequences, key[-3] // sequences) if packed else (query[1], key[1])
    pairs = length * keys
    if call["is_causal"] or call["custom_mask_type"]:
        inside = min(length, keys)
        pairs = inside * (inside + 1) // 2 + (length - inside) * keys
    width = head_dim_products * query[-1] + value_dim_products * value[-1]
    return call.matrix_flops(2 * sequences * query[-2] * pairs * width, "query")


@flop_formula("attention", "multi_head_attention", "transformer_encoder_layer_fwd")
def _fused_layer(call: OperatorCall) -> dict[str, int]:
    """Layers that inference runs as one call: every token by every weight, and attention over (B, L, E)."""
    operand = "query" if call["query"] is not None else "src"
    batch, length, width = call.shape(operand)
    keys = call.shape("key")[1] if call["key"] is not None else length
    weights = [t for name in call.values if "weight" in name for t in call.tensors(name) if t.dim() == 2]
    products = sum(prod(shape_of(t)) for t in weights) + 2 * keys * width
    return call.matrix_flops(2 * batch * length * products, operand)


# ---- Recurrent layers: gate additions, three sigmoids, two tanhs, and the update of the state, per hidden element

LSTM_CELL_FLOPS = 4 * 3 + 3 * 10 + 2 * 10 + 4
GRU_CELL_FLOPS = 3 * 3 + 2 * 10 + 10 + 5
CELL_FLOPS = {0: 3, 1: 2 + 10, 2: LSTM_CELL_FLOPS, 3: GRU_CELL_FLOPS}
"""FLOPs per hidden element of one step, by torch's `mode`: relu, tanh, LSTM, GRU."""


def _rnn(call: OperatorCall, weights: str, factor: int) -> dict[str, int]:
    matrices = [t for t in _weights(call, weights) if t.dim() >= 2]
    rows = call.numel("input") // max(1, call.shape("input")[-1])
    products = 2 * rows * sum(prod(shape_of(t)) for t in matrices)
    cells = rows * int(call["hidden_size"]) * max(1, len(matrices) // 2) * CELL_FLOPS[call["mode"]]
    dtype = call.matrix_flops(factor * products, "input")
    return dtype | {next(iter(dtype)).replace("matrix", "vector"): factor * cells}


def _weights(call: OperatorCall, prefix: str) -> list[Any]:
    return [t for name in call.values if name.startswith(prefix) for t in call.tensors(name)]


@flop_formula("matrix", "rnn_layer", "rnn")
def _rnn_forward(call: OperatorCall) -> dict[str, int]:
    return _rnn(call, "weight", 1)


@flop_formula("matrix", "rnn_layer_backward", "rnn_backward")
def _rnn_backward(call: OperatorCall) -> dict[str, int]:
    return _rnn(call, "weight", 2)


@flop_formula("pointwise", "lstm_cell", "lstm_cell_backward")
def _lstm_cell(call: OperatorCall) -> int:
    return call.out_numel * LSTM_CELL_FLOPS


@flop_formula("pointwise", "gru_cell", "gru_cell_backward")
def _gru_cell(call: OperatorCall) -> int:
    return call.out_numel * GRU_CELL_FLOPS
