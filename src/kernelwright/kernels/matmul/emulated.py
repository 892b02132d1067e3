"""FP32 products on tensor cores: splits both operands into FP16 terms, multiplies these, and computes with FMAs what
they cannot hold."""

from __future__ import annotations

import torch
from torch import Tensor

from kernelwright.kernels.matmul.configs import GemmConfig, Variant
from kernelwright.kernels.matmul.launch import GemmLaunch
from kernelwright.kernels.matmul.split_operands import OperandTerms, SplitLaunch


class EmulatedLaunch:
    """Launches for one shape and one set of strides; like `Repeat`, it takes the operands of a call.

    Args:
        a, b_rows, out, residual: examples, (batch, M, K), (batch, N, K) and (batch, M, N); the operands are contiguous
            along K or their rows.
        config, variant: of the product; the variant's layouts are those of the terms.
    """

    def __init__(
        self,
        a: Tensor,
        b_rows: Tensor,
        out: Tensor,
        residual: Tensor | None,
        config: GemmConfig,
        variant: Variant,
    ) -> None:
        num_sms = torch.cuda.get_device_properties(out.device).multi_processor_count
        self._device = out.device
        self._a = OperandTerms.of(a, 0, num_sms)
        self._b = OperandTerms.of(b_rows, self._a.end, num_sms)
        self._split = SplitLaunch(self._a, self._b, out.device.index)
        workspace = self._new_workspace()
        self._product = GemmLaunch(config, variant, self._a.views(workspace), self._b.views(workspace), out, residual)
        self._strides = tuple((one.stride(1), one.stride(2), one.stride(0)) for one in (a, b_rows))

    def _new_workspace(self) -> Tensor:
        return torch.empty(self._b.end, dtype=torch.uint8, device=self._device)

    def __call__(
        self, a: Tensor, b: Tensor, bias: Tensor | None, residual: Tensor | None, alpha: float, beta: float, out: Tensor
    ) -> None:
        """Launch on the current stream; `b` may be given by rows or by columns."""
        workspace = self._new_workspace()
        base, stream = workspace.data_ptr(), torch._C._cuda_getCurrentRawStream(self._device.index)
        left, right, first, second = a.data_ptr(), b.data_ptr(), self._a, self._b
        self._split(stream, left, right, base)
        self._product(
            stream,
            (base + first.offset, base + first.low, base + second.offset, base + second.low),
            out.data_ptr(),
            (
                0 if bias is None else bias.data_ptr(),
                0 if residual is None else residual.data_ptr(),
                base + first.inverse_scale,
                base + second.inverse_scale,
                0,
            ),
            alpha,
            beta,
            (left, *self._strides[0], right, *self._strides[1]),
        )
