"""Times the library's kernels against other implementations of the same workload on the local GPU."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import cycle
from typing import Any

import torch
from torch import Tensor

from kernelwright.core.library import EAGER, OURS, TORCH_COMPILE, KernelRow, VariantResult
from kernelwright.core.progress import report_stage
from kernelwright.core.pytree import tensor_leaves
from kernelwright.kernels.catalog import family_package
from kernelwright.kernels.workload import Workload, make_backward
from kernelwright.measure.buffers import MAX_COPIES
from kernelwright.measure.clock import EventClock, GraphClock, capture_graph
from kernelwright.measure.paired import time_variants

_COPY_FUNCTIONS = {"copy": torch.clone, "pass": torch.bitwise_not}
"""A device-to-device copy and an element-wise kernel; the faster one is the bandwidth baseline."""
BUDGET_S = 0.15
"""For each variant of a row."""
MAX_RELATIVE_ERROR = 0.05
"""Larger relative errors are not due to rounding."""
SMALL_WORKLOAD_BYTES = 2**20
"""A workload that moves fewer bytes ends before Python launches the next; its call is timed too."""


LIBRARY_PEERS = {"cublasLt": "kernelwright.benchmark.cublaslt:BestHeuristic"}
"""Baselines that choose by timing, by the names in `Workload.library_peers`."""


def load_workloads(name: str) -> Iterator[Workload]:
    """The workloads on which a library kernel is measured."""
    return map(add_library_peers, import_module(f"{family_package(name)}.workloads").workloads(name))


def add_library_peers(workload: Workload) -> Workload:
    """The workload with those baselines as implementations; nothing is loaded before their first call."""
    peers = {name: _LazyPeer(LIBRARY_PEERS[name]) for name in workload.library_peers}
    return replace(workload, implementations={**workload.implementations, **peers}) if peers else workload


class _LazyPeer:
    """A baseline that is imported in its first call."""

    def __init__(self, path: str) -> None:
        self._path, self._program = path, None

    def __call__(self, *inputs: Tensor) -> Any:
        if self._program is None:
            module, _, name = self._path.partition(":")
            self._program = getattr(import_module(module), name)()
        return self._program(*inputs)


def measure_workload(workload: Workload) -> KernelRow:
    """Check the results of all implementations against FP64, then time them interleaved."""
    report_stage(f"{workload.kernel} {workload.use_case} {'x'.join(map(str, workload.size))}")
    torch._dynamo.reset()
    _free_cuda_memory()
    compiled = torch.compile(workload.implementations[EAGER], dynamic=False)
    programs = {**workload.implementations, TORCH_COMPILE: compiled}
    variants = {name: _TimedProgram(workload, run) for name, run in programs.items()}
    errors, failed = _measure_errors(workload, variants)
    working = {name: variant for name, variant in variants.items() if name not in failed}
    inputs, cache_bytes = (workload.make_inputs(), {}), torch.cuda.get_device_properties().L2_cache_size
    moved = workload.work.bytes_read + workload.work.bytes_written
    copies = {name: _CopyBaseline(copy, moved, cache_bytes) for name, copy in _COPY_FUNCTIONS.items()}
    timed = {**working, **copies}
    sets = 2 + 2 * cache_bytes // max(1, sum(one.nbytes for one in inputs[0]))
    options: dict[str, Any] = {"device": "cuda", "last_cache_bytes": cache_bytes, "budget_s": BUDGET_S * len(timed)}
    with _without_donated_buffers():
        times = time_variants(timed, inputs, **options, clock=GraphClock(), warmup=min(sets, MAX_COPIES)).timings
        small = moved < SMALL_WORKLOAD_BYTES
        calls = time_variants(dict(working), inputs, **options, clock=EventClock()).timings if small else {}
    for variant in variants.values():
        variant.clear()
    return KernelRow(
        use_case=workload.use_case,
        size=workload.size,
        bytes=moved,
        flops=workload.work.total_flops,
        copy_us=min(times[name].time_us for name in copies),
        variants=tuple(
            VariantResult(name=name, failure=failed[name])
            if name in failed
            else VariantResult(
                name=name,
                time_us=times[name].time_us,
                low_us=times[name].low_us,
                high_us=times[name].high_us,
                call_us=calls[name].time_us if name in calls else None,
                errors=errors[name],
            )
            for name in sorted(variants, key=(OURS, EAGER, TORCH_COMPILE, *variants).index)
        ),
    )


def _free_cuda_memory() -> None:
    """Release memory held by CUDA graphs of earlier rows, which is lost to later ones and fragmented."""
    gc.collect()
    torch.cuda.empty_cache()


def _without_donated_buffers() -> Any:
    """Let the backward pass of a compiled program run more than once."""
    from torch._functorch import config

    return config.patch(donated_buffer=False)


def _capture_stream() -> torch.cuda.Stream:
    """The capture stream of CUDA graphs: autograd runs a gradient on the stream of its forward result."""
    graph: Any = torch.cuda.graph
    graph.default_capture_stream = graph.default_capture_stream or torch.cuda.Stream()
    return graph.default_capture_stream


class _TimedProgram:
    """The timed part of a program. For the backward pass alone, the forward pass runs once per set of buffers."""

    def __init__(self, workload: Workload, program: Callable[..., Any]) -> None:
        self.direction, self.program = workload.direction, program
        self._backward_calls: dict[int, Callable[[], Any]] = {}

    def __call__(self, *inputs: Tensor) -> Any:
        if self.direction == "forward":
            with torch.no_grad():
                return self.program(*inputs)
        if self.direction == "both":
            result = self.program(*inputs)
            return result.detach(), *torch.autograd.grad(result, [one for one in inputs if one.requires_grad])
        key = inputs[0].data_ptr()
        if key not in self._backward_calls:
            stream, current = _capture_stream(), torch.cuda.current_stream()
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                self._backward_calls[key] = make_backward(inputs, self.program(*inputs))
            current.wait_stream(stream)
        return self._backward_calls[key]()

    def clear(self) -> None:
        """Drop the stored forward results."""
        self._backward_calls.clear()


class _CopyBaseline:
    """Copies `moved` bytes (reads and writes together) between buffers that rotate so that they are never cached."""

    def __init__(self, copy: Callable[[Tensor], Tensor], moved: int, cache_bytes: int) -> None:
        words = max(1, moved // 8)
        sets = min(MAX_COPIES, 2 * cache_bytes // (4 * words) + 2)
        self._copy = copy
        self._buffers = cycle([torch.zeros(words, dtype=torch.int32, device="cuda") for _ in range(sets)])

    def __call__(self, *_: Tensor) -> Tensor:
        return self._copy(next(self._buffers))


def _measure_errors(
    workload: Workload, programs: dict[str, _TimedProgram]
) -> tuple[dict[str, tuple[float, ...]], dict[str, str]]:
    """RMS errors of the results by program, and the failure message of each program that has none."""
    inputs = workload.make_inputs()
    expected = _compute_expected(workload, inputs) if workload.reference else []
    errors, failed = {}, {}
    for name, program in programs.items():
        try:
            errors[name] = _result_errors(program, inputs, expected)
        except Exception as error:
            if name in (OURS, EAGER):
                raise
            failed[name] = (str(error).splitlines() or [type(error).__name__])[0]
            # A failed capture keeps torch's generator registered until the next successful one.
            capture_graph(lambda: torch.zeros(1, device="cuda"))
        program.clear()
    return errors, failed


def _result_errors(program: _TimedProgram, inputs: Sequence[Tensor], expected: Sequence[Tensor]) -> tuple[float, ...]:
    """RMS error of each result relative to the expected one.

    Raises:
        ValueError: the number of results differs, or an error exceeds `MAX_RELATIVE_ERROR`.
    """
    copies = tuple(one.detach().clone().requires_grad_(one.requires_grad) for one in inputs)
    with _without_donated_buffers():
        got = tensor_leaves(program(*copies))
        errors = tuple(_rms_error(a, b) for a, b in zip(got, expected, strict=True)) if expected else ()
        if not all(error < MAX_RELATIVE_ERROR for error in errors):
            raise ValueError(f"wrong result: relative errors {', '.join(f'{error:.2g}' for error in errors)}")
        capture_graph(lambda: program(*copies))  # the timing needs a CUDA graph
    return errors


def _compute_expected(workload: Workload, inputs: Sequence[Tensor]) -> list[Tensor]:
    wide = [
        one.detach().double().requires_grad_(one.requires_grad) if one.is_floating_point() else one for one in inputs
    ]
    assert workload.reference
    return [one.detach() for one in tensor_leaves(_TimedProgram(workload, workload.reference)(*wide))]


def _rms_error(got: Tensor, expected: Tensor) -> float:
    difference = got.double().sub_(expected).norm()
    return float(difference / expected.norm().clamp_min(1e-300))
