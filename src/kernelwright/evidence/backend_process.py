"""Times the first call of a compiled model in this process, and for our backend also later calls of all its forms.

`python -m kernelwright.evidence.backend_process FILE SIZE DEVICE FORM CACHE_BYTES` prints a `FormRun`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import msgspec
import torch
from torch.utils import _pytree as pytree

from kernelwright.core.median_times import EAGER, OURS, TORCH_COMPILE, MedianTime
from kernelwright.core.record import Record
from kernelwright.measure.clock import clock_for, synchronize, wall_s
from kernelwright.measure.paired import time_variants
from kernelwright.problems import load_problem
from kernelwright.problems.problem import Args, tensor_leaves
from kernelwright.verification.accuracy.expected import compute_expected
from kernelwright.verification.outcome import tf32_as_set
from kernelwright.verification.quick_check import find_program_mismatch

BATCH_FACTORS = {"small": 1, "large": 4}
"""The batch of each size, in batches of the inputs that a model's file defines."""
TIMING_BUDGET_S = 2.0
Forms = dict[str, Callable[..., Any]]


class FormRun(Record, frozen=True, kw_only=True):
    """The result of a process.

    Attributes:
        first_call_s: seconds of `torch.compile` and the first call.
        mismatch: the form whose results are wrong, and how; there are no times then.
        times: of all forms; only in the process of our backend.
    """

    first_call_s: float
    mismatch: str = ""
    times: dict[str, MedianTime] = msgspec.field(default_factory=dict)


def measure_form(path: str, size: str, device: str, form: str, cache_bytes: int) -> FormRun:
    """Compile a model in evaluation mode, without gradients, and call it.

    Args:
        path: a problem file.
        size: one of `BATCH_FACTORS`.
        form: `TORCH_COMPILE` or `OURS`.
        cache_bytes: capacity of the device's last-level cache.
    Raises:
        KernelwrightError: the file is not a problem, or the device is not available.
    """
    problem = load_problem(path)
    program, inputs = problem.program_on(device), enlarge_batch(problem.inputs(device, 0), BATCH_FACTORS[size])
    if isinstance(program, torch.nn.Module):
        program.eval()
    with torch.no_grad():
        program(*inputs[0], **inputs[1])  # loads the libraries that eager torch needs
        synchronize(device)
        start_s = wall_s()
        compiled = _compile(program, form)
        compiled(*inputs[0], **inputs[1])
        synchronize(device)
        first_call_s = wall_s() - start_s
        if form != OURS:
            return FormRun(first_call_s=first_call_s)
        forms = {EAGER: program, TORCH_COMPILE: _compile(program, TORCH_COMPILE), OURS: compiled}
        if mismatch := _find_mismatch(forms, inputs):
            return FormRun(first_call_s=first_call_s, mismatch=mismatch)
        return FormRun(first_call_s=first_call_s, times=_time_forms(forms, inputs, device, cache_bytes))


def enlarge_batch(inputs: Args, factor: int) -> Args:
    """Repeat all tensors along their first dimension that have as many rows there as the first one."""
    rows = tensor_leaves(inputs)[0].shape[:1]
    return pytree.tree_map_only(
        torch.Tensor, lambda one: torch.cat([one] * factor) if rows and one.shape[:1] == rows else one, inputs
    )


def _compile(program: Callable[..., Any], form: str) -> Callable[..., Any]:
    if form == TORCH_COMPILE:
        return torch.compile(program)
    from kernelwright.compiler.dynamo_backend import kernelwright  # a user's first call imports it too

    return torch.compile(program, backend=kernelwright)


def _find_mismatch(forms: Forms, inputs: Args) -> str:
    """The first form whose results are less accurate than the error budget allows; empty if there is none."""
    program = forms[EAGER]
    with tf32_as_set():
        expected = compute_expected(program, program if isinstance(program, torch.nn.Module) else None, inputs)
    mismatches = ((name, find_program_mismatch(form, inputs, expected)) for name, form in forms.items())
    return next((f"{name}: {mismatch}" for name, mismatch in mismatches if mismatch), "")


def _time_forms(forms: Forms, inputs: Args, device: str, cache_bytes: int) -> dict[str, MedianTime]:
    rounds = time_variants(
        forms,
        inputs,
        device=device,
        last_cache_bytes=cache_bytes,
        budget_s=TIMING_BUDGET_S,
        clock=clock_for(device),  # never that of a CUDA graph, which excludes the host's time
    )
    return {
        name: MedianTime(time_us=one.time_us, low_us=one.low_us, high_us=one.high_us)
        for name, one in rounds.timings.items()
    }


if __name__ == "__main__":
    print(msgspec.json.encode(measure_form(*sys.argv[1:-1], cache_bytes=int(sys.argv[-1]))).decode())
