"""FP32 products on tensor cores: splits both operands into FP16 terms, multiplies these, and computes with FMAs what
they cannot hold."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from kernelwright.core.errors import UsageError
from kernelwright.kernels.matmul.configs import GemmConfig, Variant
from kernelwright.kernels.matmul.epilogue import Epilogue
from kernelwright.kernels.matmul.launch import GemmLaunch, count_multiprocessors
from kernelwright.kernels.matmul.operands import is_readable
from kernelwright.kernels.matmul.repeats import THREAD
from kernelwright.kernels.matmul.selection import can_split_in_loop, choose_emulated
from kernelwright.kernels.matmul.split_operands import OperandTerms, SplitLaunch


def launch_emulated(
    a: Tensor, b_rows: Tensor, out: Tensor, epilogue: Epilogue, variant: Variant, config: GemmConfig | None
) -> EmulatedLaunch | None:
    """Launch for (batch, M, K), (batch, N, K) and (batch, M, N).

    Args:
        variant: of the output and the epilogue.
        config: replaces the choice for this shape.
    Returns:
        How to repeat it; None if operands were copied.
    Raises:
        UsageError: the configuration is not for these operands.
    """
    (batch, m, k), n = a.shape, b_rows.shape[1]
    right = b_rows if 1 in (b_rows.stride(1), b_rows.stride(2)) else b_rows.contiguous()
    variant = replace(variant, scales=True, transpose_b=right.stride(2) != 1)
    in_loop = can_split_in_loop(m, k, batch) and is_readable(right)
    if config is None:
        num_sms = count_multiprocessors(out.device)
        config = choose_emulated(m, n, k, batch, variant, num_sms, in_loop=in_loop)
    elif config.swapped != config.split_in_loop or (config.split_in_loop and not in_loop):
        raise UsageError(f"{config} is not for these operands", next="leave out the configuration")
    is_read = a.stride(2) == 1 or (a.stride(1) == 1 and not config.split_in_loop)
    left, residual = a if is_read else a.contiguous(), epilogue.residual
    variant = replace(variant, transpose_a=left.stride(2) != 1).oriented(config)
    tensors = [left, right, out, *([] if residual is None else [residual])]
    key = ("emulated", config, variant, out.device.index, *((one.shape, one.stride()) for one in tensors))
    launch = THREAD.launches.get(key)
    if launch is None:
        launch = EmulatedLaunch(left, right, out, residual, config, variant)
        THREAD.remember(THREAD.launches, key, launch)
    launch(left, right, epilogue.bias, residual, epilogue.alpha, epilogue.beta, out)
    return launch if left is a and right is b_rows else None


class EmulatedLaunch:
    """Launches for one shape and one set of strides; like `Repeat`, it takes the operands of a call. To split b in the
    main loop, rows and columns of the product are swapped.

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
        self._device, self._is_cpu, self._in_loop = out.device, out.device.type == "cpu", config.split_in_loop
        num_sms = count_multiprocessors(out.device)
        self._a = OperandTerms.of(a, 0, num_sms, for_registers=self._in_loop)
        end = self._a.end
        self._b = OperandTerms.none(b_rows, end) if self._in_loop else OperandTerms.of(b_rows, end, num_sms)
        self._split = SplitLaunch(self._a, self._b, out.device)
        self._strides = tuple((one.stride(1), one.stride(2), one.stride(0)) for one in (a, b_rows))
        workspace = self._new_workspace()
        sides = self._a.views(workspace), (b_rows, b_rows) if self._in_loop else self._b.views(workspace)
        if self._in_loop:
            sides, out, residual = (sides[1], sides[0]), out.mT, None if residual is None else residual.mT
        self._product = GemmLaunch(config, variant, sides[0], sides[1], out, residual)

    def _new_workspace(self) -> Tensor:
        return torch.empty(self._b.end, dtype=torch.uint8, device=self._device)

    def __call__(
        self, a: Tensor, b: Tensor, bias: Tensor | None, residual: Tensor | None, alpha: float, beta: float, out: Tensor
    ) -> None:
        """Launch on the current stream; `b` may be given by rows or by columns."""
        workspace = self._new_workspace()
        base, stream = (
            workspace.data_ptr(),
            0 if self._is_cpu else torch._C._cuda_getCurrentRawStream(self._device.index),
        )
        left, right = a.data_ptr(), b.data_ptr()
        self._split(stream, left, right, base)
        sides = (base + self._a.offset, base + self._a.low), (base + self._b.offset, base + self._b.low)
        scales = base + self._a.inverse_scale, base + self._b.inverse_scale
        operands = (left, *self._strides[0]), (right, *self._strides[1])
        if self._in_loop:
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
