"""Where kernels are tested: on a GPU, or by Triton's interpreter in a process of its own."""

import os
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu"
# the same tests are a GPU's where one is, the interpreter's in its own process, and nobody's here
runs_kernels = (
    pytest.mark.gpu if DEVICE == "cuda" else pytest.mark.skipif(not INTERPRETED, reason="no CUDA device here")
)
pytest.importorskip("triton")
EPS = {torch.float32: 2**-24, torch.bfloat16: 2**-8, torch.float16: 2**-11}
LONG, LONGER = (9000, 11000) if INTERPRETED else (17001, 40001)
"""Columns of rows that are shared out in FP32, and that no cluster can read; the interpreter does one part after
another."""
ROUNDED_ONCE = 1.0 if INTERPRETED else 0.5
"""In roundings; the interpreter cuts bfloat16 off instead."""


def shapes_with_slow_long_rows(shapes, longest=5000):
    """Shapes of a parametrised test: those of rows that are longer are in the slow tier."""
    return [shape if shape[-1] <= longest else pytest.param(shape, marks=pytest.mark.slow) for shape in shapes]


if INTERPRETED:
    sys.path.insert(0, str(Path(__file__).parent))
    import brisk_interpreter  # noqa: F401 - it patches Triton's interpreter
    from triton.runtime import interpreter

    def fused(self, x, y, z):
        """As a GPU has it: a product is not rounded before something is added."""
        exact = x.data.astype("float64") * y.data + z.data
        return interpreter.TensorHandle(exact.astype(x.data.dtype), x.dtype.scalar)

    interpreter.InterpreterBuilder.create_fma = fused


def random(*shape, dtype=torch.float32, scale=1.0, shift=0.0, grad=False):
    return (torch.randn(shape) * scale + shift).to(DEVICE, dtype).requires_grad_(grad)


def poisoned(run, *args, **kwargs):
    """What `run` returns where memory that it does not write is not a number."""
    held = [torch.full((1 << size,), float("nan"), device=DEVICE) for size in range(2, 18 if INTERPRETED else 22)]
    del held
    return run(*args, **kwargs)


def rms(x):
    return x.double().square().mean().sqrt().item()


def require_close(got, want, *, budget=4.0, terms=0.0, what=""):
    """The error's rms is within `budget` roundings of the result, and no element's beyond 16 of the largest one.

    Args:
        terms: the size of what was added up, where the result is less by cancellation.
    """
    assert got.shape == want.shape, what
    assert torch.isfinite(got).all(), what
    if not got.numel():
        return
    error, unit = got.double() - want.double(), EPS[got.dtype] * max(rms(want), terms, 2**-60)
    assert rms(error) <= budget * unit, f"{what}: rms error of {rms(error) / unit:.2f} roundings"
    most = EPS[got.dtype] * want.double().abs().max().item()
    assert error.abs().max().item() <= 16 * budget * max(most, unit), f"{what}: an element is off"


@contextmanager
def recorded_launches():
    """The kernel and the constants of every launch meanwhile."""
    from kernelwright.kernels.rows import launcher

    seen, start = [], launcher.launch_programs

    def watched(kernel, programs, device, arguments, **constants):
        seen.append((kernel, constants))
        start(kernel, programs, device, arguments, **constants)

    launcher.launch_programs = watched
    yield seen
    launcher.launch_programs = start
