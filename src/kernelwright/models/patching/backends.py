"""The fastest backend of `scaled_dot_product_attention` for given shapes, measured at the first call with them.

torch selects a backend by a fixed order, and which one is fastest depends on the GPU, the versions of torch and cuDNN,
and the shapes. A choice is kept for the process. It can differ between runs where two backends take about the same
time, and their results differ in rounding, so deterministic mode keeps torch's own selection.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernelwright.measure.clock import EventClock

CANDIDATES = (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)
MIN_SPEEDUP = 1.03
"""Speed-up over torch's own selection below which that is kept."""
MAX_ROUNDINGS = 4
"""Maximum difference from the result of torch's own selection, in roundings of its dtype (relative L2 norm)."""
MAX_CHOICES = 16
"""Number of shapes that are measured in a process. A measurement takes milliseconds, and cuDNN builds a plan for each
shape, which costs more than it saves where every batch has another length: torch selects for all further shapes."""
ROUNDS, REPETITIONS = 2, 2

Attention = Callable[..., Tensor]
"""Of query, key and value, returns attention."""

_ENABLED = {
    SDPBackend.FLASH_ATTENTION: torch.backends.cuda.flash_sdp_enabled,
    SDPBackend.EFFICIENT_ATTENTION: torch.backends.cuda.mem_efficient_sdp_enabled,
    SDPBackend.CUDNN_ATTENTION: torch.backends.cuda.cudnn_sdp_enabled,
    SDPBackend.MATH: torch.backends.cuda.math_sdp_enabled,
}
_choices: dict[Hashable, SDPBackend | None] = {}
_lock = threading.Lock()


def prefer_fastest(attention: Attention, inputs: Sequence[Tensor], options: Hashable) -> AbstractContextManager[Any]:
    """A context in which `scaled_dot_product_attention` runs on the backend that is fastest for `inputs`, forward and
    backward; torch's own selection if none is faster.

    Args:
        attention: computes attention with these options.
        inputs: query, key and value on a CUDA device.
        options: what else the time depends on.
    """
    enabled = tuple(backend for backend, is_enabled in _ENABLED.items() if is_enabled())
    device_type = inputs[0].device.type
    autocast_dtype = torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else None
    layouts = tuple((one.device, one.dtype, one.shape, one.stride()) for one in inputs)
    key = layouts, options, enabled, autocast_dtype
    if key not in _choices:
        if len(_choices) >= MAX_CHOICES or torch.cuda.is_current_stream_capturing():
            return nullcontext()
        with _lock:
            if key not in _choices:
                _choices[key] = choose_backend(attention, inputs, enabled)
    choice = _choices[key]
    if choice is None:
        return nullcontext()
    return sdpa_kernel([choice, *(one for one in enabled if one is not choice)], set_priority=True)


def choose_backend(attention: Attention, inputs: Sequence[Tensor], enabled: Sequence[SDPBackend]) -> SDPBackend | None:
    """The backend that computes attention and its gradients of random inputs fastest, among the enabled ones whose
    results are those of torch's own selection; None if that is fastest, or on any error, such as no memory.

    Args:
        inputs: query, key and value; only their devices, dtypes, shapes and strides are used.
    """
    # a checkpoint that is active would count tensors that are saved here, the innermost hooks take them instead
    saved_here = torch.autograd.graph.saved_tensors_hooks(Tensor.detach, Tensor.detach)
    with warnings.catch_warnings(), torch.inference_mode(False), torch.enable_grad(), saved_here:
        warnings.simplefilter("ignore")  # torch warns about each reason why a backend does not support the inputs
        try:
            trial = _Trial(attention, inputs)
            expected = trial.run()  # first: torch sets its order at the first call, also where a context has set one
            backends = [None, *(one for one in CANDIDATES if one in enabled and trial.agrees(one, expected))]
            times_us = [[trial.time_us(one) for one in backends] for _ in range(ROUNDS)]
        except RuntimeError:
            return None
    own_us, *candidates_us = (min(times) for times in zip(*times_us, strict=True))
    fastest_us = min(candidates_us, default=own_us)
    return backends[1 + candidates_us.index(fastest_us)] if own_us >= MIN_SPEEDUP * fastest_us else None


class _Trial:
    """Attention and its gradients of random inputs."""

    def __init__(self, attention: Attention, inputs: Sequence[Tensor]) -> None:
        generator = torch.Generator(inputs[0].device).manual_seed(0)
        self._attention, self._generator = attention, generator
        self._inputs = [
            torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device=one.device)
            .normal_(generator=generator)
            .requires_grad_()
            for one in inputs
        ]
        self._gradient: Tensor | None = None

    def run(self, backend: SDPBackend | None = None) -> list[Tensor]:
        """The result and the gradients of query, key and value.

        Raises:
            RuntimeError: the backend does not support the inputs.
        """
        with nullcontext() if backend is None else sdpa_kernel(backend):
            y = self._attention(*self._inputs)
        if self._gradient is None:
            self._gradient = torch.empty_like(y).normal_(generator=self._generator)
        return [y.detach(), *torch.autograd.grad(y, self._inputs, self._gradient)]

    def agrees(self, backend: SDPBackend, expected: Sequence[Tensor]) -> bool:
        """Whether a backend supports the inputs, and its results are the expected ones up to rounding."""
        try:
            results = self.run(backend)
        except RuntimeError:
            return False
        tolerance = MAX_ROUNDINGS * torch.finfo(expected[0].dtype).eps
        norms = [((x.float() - y.float()).norm(), y.float().norm()) for x, y in zip(results, expected, strict=True)]
        return all(bool(error <= tolerance * norm) for error, norm in norms)

    def time_us(self, backend: SDPBackend | None) -> float:
        """Device time of `run`."""
        return EventClock().time_us(lambda: self.run(backend), REPETITIONS)
