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
        num_sms, self._in_loop = (
            torch.cuda.get_device_properties(out.device).multi_processor_count,
            config.split_in_loop,
        )
        self._device = out.device
        self._a = OperandTerms.of(a, 0, num_sms, for_registers=self._in_loop)
        end = self._a.end
        self._b = OperandTerms.none(b_rows, end) if self._in_loop else OperandTerms.of(b_rows, end, num_sms)
        self._split = SplitLaunch(self._a, self._b, out.device.index)
        self._strides = tuple((one.stride(1), one.stride(2), one.stride(0)) for one in (a, b_rows))
        workspace = self._new_workspace()
        sides = self._a.views(workspace), (b_rows, b_rows) if self._in_loop else self._b.views(workspace)
        if config.swapped:
            sides, out, residual = (sides[1], sides[0]), out.mT, None if residual is None else residual.mT
        self._product = GemmLaunch(config, variant, sides[0], sides[1], out, residual)

    def _new_workspace(self) -> Tensor:
        return torch.empty(self._b.end, dtype=torch.uint8, device=self._device)

    def __call__(
        self, a: Tensor, b: Tensor, bias: Tensor | None, residual: Tensor | None, alpha: float, beta: float, out: Tensor
    ) -> None:
        """Launch on the current stream; `b` may be given by rows or by columns."""
        workspace = self._new_workspace()
        base, stream = workspace.data_ptr(), torch._C._cuda_getCurrentRawStream(self._device.index)
        left, right = a.data_ptr(), b.data_ptr()
        self._split(stream, left, right, base)
        sides = (base + self._a.offset, base + self._a.low), (base + self._b.offset, base + self._b.low)
        scales = base + self._a.inverse_scale, base + self._b.inverse_scale
        operands = (left, *self._strides[0]), (right, *self._strides[1])
        if self._in_loop:  # rows and columns are swapped
            sides, scales, operands = ((right, right), sides[0]), scales[::-1], operands[::-1]
        extra = (0 if one is None else one.data_ptr() for one in (bias, residual))
        self._product(
            stream,
            (*sides[0], *sides[1]),
            out.data_ptr(),
            (*extra, *scales, 0),
            alpha,
            beta,
            (*operands[0], *operands[1]),
        )
