"""A product and statistics of its rows, for the norm, softmax or loss that follows, in one pass over the result."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from kernelwright.core.errors import UsageError
from kernelwright.kernels.matmul.epilogue import STATISTICS, Epilogue
from kernelwright.kernels.matmul.op import Activation, check_operands
from kernelwright.kernels.matmul.product import compute, is_fused, multiply, result_shape
from kernelwright.kernels.operators import Operator, require

__all__ = ["gemm_with_row_statistics"]
RowStatistics = Literal["square_sum", "log_sum_exp"]


def gemm_with_row_statistics(
    a: Tensor,
    b: Tensor,
    statistics: RowStatistics,
    *,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    activation: Activation = "none",
    alpha: float = 1.0,
    beta: float = 1.0,
    out_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """`gemm` and, of each row of its rounded result, the sum of squares or the logarithm of the sum of exponentials.

    Args:
        a, b, bias, residual, activation, alpha, beta, out_dtype: as in `gemm`; a in bf16, fp16 or fp32.
        statistics: `square_sum`, from which an RMSNorm of the result follows, or `log_sum_exp`, for a softmax or a
            cross-entropy.
    Returns:
        The result (..., M, N), and the statistics (..., M) in FP32.
    Raises:
        ShapeError, UsageError, DeviceError: as in `gemm`. No gradients.
    Cost: that of `gemm`; the result is not read again, except where FP32 is emulated.
    """
    if statistics not in STATISTICS or statistics == "none":
        raise UsageError(f"no statistics {statistics!r}; there are square_sum and log_sum_exp")
    require(activation != "swiglu" and a.element_size() > 1, lambda: "row statistics exclude swiglu and FP8 operands")
    check_operands(a, b, bias, residual, None, None, activation, out_dtype, "default")
    return _GEMM_WITH_ROW_STATISTICS(a, b, bias, residual, statistics, activation, alpha, beta, out_dtype or a.dtype)


def _compute(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    statistics: str,
    activation: str,
    alpha: float,
    beta: float,
    out_dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    out = a.new_empty(result_shape(a, b, activation), dtype=out_dtype)
    epilogue = Epilogue(bias, residual, None, None, activation, alpha, beta, statistics)
    is_emulated = a.dtype == torch.float32  # rows that two FP16 terms cannot hold are computed afterwards
    if is_emulated or not is_fused(a, b, "default"):
        compute(a, b, epilogue._replace(statistics="none"), out, "default")
        rows = out.float()
        return out, rows.square().sum(-1) if statistics == "square_sum" else rows.logsumexp(-1)
    parts = multiply(a, b, epilogue, out, "default")
    assert parts is not None
    if statistics == "square_sum":
        return out, parts.sum(-1).reshape(out.shape[:-1])
    return out, (parts[..., 0] + parts[..., 1].log()).logsumexp(-1).reshape(out.shape[:-1])


def _fake(a: Tensor, b: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    shape = result_shape(a, b, "none")
    return a.new_empty(shape, dtype=rest[-1]), a.new_empty(shape[:-1], dtype=torch.float32)


_GEMM_WITH_ROW_STATISTICS = Operator(
    "gemm_with_row_statistics(Tensor a, Tensor b, Tensor? bias, Tensor? residual, str statistics, str activation, "
    "float alpha, float beta, ScalarType out_dtype) -> (Tensor, Tensor)",
    _compute,
    _fake,
)
