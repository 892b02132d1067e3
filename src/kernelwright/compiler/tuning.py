"""Autotuning of a region on this machine: every config of a backend, eager torch and torch.compile.

The search space is a list of config records, so that the exhaustive search can be replaced by another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
import torch
from torch import fx

from kernelwright.compiler.backends import Backend
from kernelwright.compiler.compile_pool import CompilePool, CompileTask
from kernelwright.compiler.cuda_graph import measure_in_graph_us
from kernelwright.compiler.kernel_source import RegionKernel, kernel_lines, summarize
from kernelwright.compiler.reference import format_reference
from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.call import CallRegion
from kernelwright.compiler.regions.contraction import AnyRegion
from kernelwright.compiler.regions.region import Region
from kernelwright.compiler.trial_store import TrialStore
from kernelwright.core.diagnosis import Floor
from kernelwright.core.errors import SetupError
from kernelwright.core.machine import Machine
from kernelwright.core.optimization import TORCH, TORCH_COMPILE, Attempt, ConfigValues, RegionOutcome
from kernelwright.core.progress import report_stage
from kernelwright.diagnosis.observation import special_function_us
from kernelwright.diagnosis.recommendations import SPECIAL_FUNCTION_FACTOR, WELL_WRITTEN_FACTOR, min_call_us
from kernelwright.machines.floor import datasheet_bound_us, floor, last_cache_bytes
from kernelwright.measure.buffers import RotatingBuffers
from kernelwright.measure.clock import measure_steady_us, wall_s
from kernelwright.measure.paired import GRAPH_BELOW_US, InterleavedTimings, time_variants
from kernelwright.verification.outcome import tf32_as_set
from kernelwright.verification.quick_check import find_mismatch
from kernelwright.work import count_work, first_read_bytes

NUM_FINALISTS = 3
QUICK_BUDGET_S, MIN_TIMING_S = 0.05, 0.2
MIN_COMPILE_S = 1.5
"""What torch.compile of a region takes; with less time left it is no variant."""
MIN_SPEEDUP = 1.005
"""Least significant speedup over eager torch that justifies a generated kernel."""
CLEAR_SPEEDUP = 1.02
"""Least speedup of torch.compile over a generated kernel: it recompiles wherever the file runs."""
ProgramsByAttempt = dict[str, tuple[RegionKernel, Callable[..., Any]]]
"""Kernel and compiled function by the name of the attempt."""


@dataclass
class TuningResult:
    """The outcome of a region, and the winning kernel; None if eager torch won."""

    outcome: RegionOutcome
    kernel: RegionKernel | None


@dataclass
class Tuner:
    """Autotuner of regions on one device.

    Args:
        use_torch_compile: time torch.compile as a variant too.
        pool: compiles ahead in other processes.
    """

    backend: Backend
    device: str
    machine: Machine
    use_torch_compile: bool = True
    budget_s: float = 1.0
    pool: CompilePool | None = None
    _num_tried: int = field(default=0, init=False)
    _num_cached: int = field(default=0, init=False)

    def notes(self) -> list[str]:
        """Notes for the user on how the tuning ran."""
        reused = f"{self._num_cached} of {self._num_tried} configs reused from an earlier run"
        return [reused] if self._num_cached else []

    @property
    def compiles_ahead(self) -> bool:
        """Whether other processes compile while kernels are timed here: on a CPU they would disturb that."""
        return self.pool is not None and self.device == "cuda"

    def compile_ahead(self, region: AnyRegion, count: int | None = None) -> list[CompileTask]:
        """Start to compile the first `count` configs of a region, or all, in other processes."""
        tasks = []
        for config in self.backend.generate_configs(region)[:count] if self.pool else ():
            with suppress(Exception):  # it occurs again, and is reported, when the config is tried
                tasks.append(self._submit(RegionKernel(region, config)))
        return tasks

    def is_compiled(self, tasks: Sequence[CompileTask]) -> bool:
        """Whether other processes have ended what they were given."""
        return self.pool is None or all(map(self.pool.is_done, tasks))

    def stop_compiling(self) -> None:
        """Leave the processor to other steps."""
        if self.pool:
            self.pool.cancel()

    def compile_for_file(self, kernels: Sequence[RegionKernel], text: str, limit_s: float) -> None:
        """Compile kernels in other processes for the file of which they are part, and wait for them."""
        if self.pool is None:
            return
        lines = tuple(kernel_lines(text).items())
        self.pool.wait([self._submit(one, lines) for one in kernels if not one.torch_source], limit_s)

    def _submit(self, kernel: RegionKernel, lines: tuple[tuple[str, int], ...] = ()) -> CompileTask:
        region = kernel.region
        dtype_of = {load.buffer: load.dtype for load in region.loads}
        task = CompileTask(
            text=self.backend.emit_module([kernel]),
            name=region.name,
            dtypes=tuple(dtype_of[name] for name in region.reads),
            shapes=() if isinstance(region, Region) else region.argument_shapes,
            lines=lines,
        )
        if self.pool:
            self.pool.submit(task)
        return task

    def tune(
        self, region: AnyRegion, reference: fx.GraphModule, inputs: Sequence[torch.Tensor], limit_s: float = math.inf
    ) -> TuningResult:
        """Find the fastest correct kernel of a region; eager torch where none is faster.

        Args:
            limit_s: no further config is tried after this time, nor torch.compile.
        """
        deadline_s = wall_s() + limit_s
        report_stage(f"{region.name}: counting its work")
        least, bound_us, predicted = self._predict(reference, inputs)
        before = self._quick_time_us(reference, inputs)
        outcome = RegionOutcome(
            name=region.name,
            summary=summarize(region),
            text=str(region),
            bytes_moved=sum(region.bytes_moved),
            floor_us=least.time_us,
            limiter=least.limiter,
            before_us=before,
            predicted_us=min(predicted, before),
            after_us=before,
            winner=TORCH,
            winner_reason=f"already at {before / least.time_us:.2f}x its lower bound" if least.time_us else "",
        )
        if max(bound_us, min_call_us(self.machine) / 4) >= before:
            return TuningResult(outcome, None)
        programs, attempts = self._try_configs(region, inputs, deadline_s)
        checker = CandidateChecker(
            region, reference, inputs, {name: program for name, (_, program) in programs.items()}
        )
        finalists = self._select_finalists([attempt for attempt in attempts if attempt.name in programs], checker)
        rounds, disqualified = self._time_finalists(
            region, reference, inputs, {name: programs[name][1] for name in finalists}, deadline_s
        )
        times = {name: timing.time_us for name, timing in rounds.timings.items()}
        winner = self._select_winner(rounds, checker, disqualified)
        attempts = [
            msgspec.structs.replace(checker.annotate(attempt), time_us=times.get(attempt.name, attempt.time_us))
            for attempt in attempts
        ]
        torch_variants = [
            (name, reason) for name, reason in ((TORCH, ""), (TORCH_COMPILE, disqualified)) if name in times
        ]
        attempts += [Attempt(name=name, time_us=times[name], reason=reason) for name, reason in torch_variants]
        kernel = programs[winner][0] if winner in programs else None
        if winner == TORCH_COMPILE:
            kernel = RegionKernel(region, None, format_reference(reference, f"{region.name}_plain"))
        eligible = _eligible_times(rounds, disqualified)
        correct = {name: time for name, time in eligible.items() if not checker.failures.get(name)}
        outcome = msgspec.structs.replace(
            outcome,
            before_us=times[TORCH],
            after_us=times[winner],
            winner=winner,
            winner_reason=_explain_winner(winner, correct),
            attempts=tuple(attempts),
        )
        return TuningResult(outcome, kernel)

    def _predict(self, reference: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> tuple[Floor, float, float]:
        """Return the floor of a region, its datasheet bound, and the predicted time of a well-written kernel.

        The floor uses the bandwidth of a copy, which a kernel can exceed slightly; only the datasheet bound is hard.
        """
        work = count_work(reference, list(inputs))
        cold = sum(first_read_bytes(work).values())
        least = floor(work.fused, self.machine, cold_bytes=cold if work.fused.total_bytes > 2**20 else 0)
        special = SPECIAL_FUNCTION_FACTOR * special_function_us(self.machine, work.fused)
        bound = datasheet_bound_us(work.fused, self.machine.spec) if self.machine.spec else least.time_us
        return least, bound, max(WELL_WRITTEN_FACTOR * least.time_us, special, min_call_us(self.machine) / 2)

    def _quick_time_us(self, program: Callable[..., Any], args: Sequence[Any], kwargs: Any = None) -> float:
        call = RotatingBuffers((list(args), kwargs or {}), last_cache_bytes(self.machine)).bind(program)
        with torch.no_grad():
            return measure_steady_us(call, self.device, budget_s=QUICK_BUDGET_S)

    def _time_attempt(
        self, name: str, values: ConfigValues, program: Callable[..., Any], inputs: Sequence[torch.Tensor]
    ) -> Attempt:
        """Time a kernel quickly; one that may be launch-bound, also without its launches, in a CUDA graph."""
        attempt = Attempt(name=name, config=values, time_us=self._quick_time_us(program, inputs))
        if not self._may_be_launch_bound(attempt):
            return attempt
        call = RotatingBuffers((list(inputs), {}), last_cache_bytes(self.machine)).bind(program)
        with torch.no_grad():
            return msgspec.structs.replace(attempt, device_time_us=measure_in_graph_us(call))

    def _may_be_launch_bound(self, attempt: Attempt) -> bool:
        return self.device == "cuda" and attempt.time_us is not None and attempt.time_us < GRAPH_BELOW_US

    def _try_configs(
        self, region: AnyRegion, inputs: Sequence[torch.Tensor], deadline_s: float
    ) -> tuple[ProgramsByAttempt, list[Attempt]]:
        """Build and quickly time every config of the backend, as long as there is time; at least one that works."""
        trials, programs, attempts = TrialStore(region, self.machine), {}, []
        tasks = self.compile_ahead(region)
        if self.pool and self.device == "cpu":  # compilers that run meanwhile would disturb the timing
            self.pool.wait(tasks, deadline_s - wall_s())
        configs = self.backend.generate_configs(region)
        for number, config in enumerate(configs, 1):
            if programs and wall_s() > deadline_s:
                break
            report_stage(f"{region.name}: config {number} of {len(configs)}")
            values = msgspec.to_builtins(config)
            name = ", ".join(f"{key} {value}" for key, value in values.items())
            text = name
            try:
                text = self.backend.emit_module([RegionKernel(region, config)])
                attempt = trials.get(text)
                if attempt and self._may_be_launch_bound(attempt) and attempt.device_time_us is None:
                    attempt = None
                self._num_tried, self._num_cached = self._num_tried + 1, self._num_cached + bool(attempt)
                if attempt is None or attempt.time_us is not None:
                    if self.pool:
                        self.pool.wait([task for task in tasks if task.text == text], deadline_s - wall_s())
                    program = getattr(self.backend.load(text), region.name)
                    attempt = attempt or self._time_attempt(name, values, program, inputs)
                    programs[name] = RegionKernel(region, config), program
            except Unsupported as reason:
                attempt = Attempt(name=name, config=values, accepted=False, reason=str(reason))
            except (SetupError, torch.OutOfMemoryError) as error:  # of this process: another one may succeed
                attempts.append(Attempt(name=name, config=values, accepted=False, reason=f"{error}"[:200]))
                continue
            except Exception as error:  # a generated kernel that does not build or run is our bug: record it
                reason = f"{type(error).__name__}: {str(error).strip().splitlines()[-1][:200] if str(error) else ''}"
                attempt = Attempt(name=name, config=values, accepted=False, reason=reason)
            trials.put(text, attempt)
            attempts.append(attempt)
        return programs, attempts

    def _select_finalists(self, attempts: Sequence[Attempt], checker: CandidateChecker) -> list[str]:
        """Return the names of the fastest few; only the fastest correct one where launch overhead hides the kernel."""
        best = sorted(attempts, key=self._cost_us)
        hidden = (
            best
            and all(a.device_time_us for a in best[:NUM_FINALISTS])
            and self._cost_us(best[0]) < min_call_us(self.machine)
        )
        if hidden:
            return [next(a.name for a in best if checker.is_correct(a.name) or a is best[-1])]
        return [a.name for a in best[:NUM_FINALISTS]]

    def _cost_us(self, attempt: Attempt) -> float:
        """The quick timing, plus the host cost of the second launch of a split row on a GPU."""
        second_launch = self.device == "cuda" and attempt.config.get("num_splits", 1) != 1
        return (attempt.device_time_us or attempt.time_us or 0.0) + second_launch * min_call_us(self.machine) / 4

    def _time_finalists(
        self,
        region: AnyRegion,
        reference: fx.GraphModule,
        inputs: Sequence[torch.Tensor],
        finalists: dict[str, Callable[..., Any]],
        deadline_s: float,
    ) -> tuple[InterleavedTimings, str]:
        """Time the finalists and the torch variants, interleaved."""
        variants = dict(finalists)
        is_unrolled = isinstance(region, CallRegion) and region.is_unrolled_by_compile
        if self.use_torch_compile and variants and not is_unrolled and deadline_s - wall_s() > MIN_COMPILE_S:
            report_stage(f"{region.name}: torch.compile", 300)
            torch._dynamo.reset()
            variants[TORCH_COMPILE] = torch.compile(reference, dynamic=False)
        variants[TORCH] = reference
        report_stage(f"{region.name}: timing {len(variants)} variants")
        budget_s = min(self.budget_s, max(deadline_s - wall_s(), MIN_TIMING_S))
        return self._time_rounds(variants, (list(inputs), {}), budget_s)

    def _time_rounds(
        self, variants: dict[str, Callable[..., Any]], inputs: tuple[Any, Any], budget_s: float
    ) -> tuple[InterleavedTimings, str]:
        """Time variants interleaved.

        Returns:
            The timings, and what disqualifies torch.compile, if anything: if CUDA graphs were timed, which hide launch
            overhead, a plain call that is slower than another variant's.
        """
        cache_bytes = last_cache_bytes(self.machine)
        with torch.no_grad():
            rounds = time_variants(
                variants, inputs, device=self.device, last_cache_bytes=cache_bytes, budget_s=budget_s
            )
        if TORCH_COMPILE not in variants or rounds.timings[TORCH_COMPILE].conditions.clock != "graph":
            return rounds, ""
        call_us = {name: self._quick_time_us(variant, *inputs) for name, variant in variants.items()}
        least_us = min(time_us for name, time_us in call_us.items() if name != TORCH_COMPILE)
        disqualified = (
            f"its launch overhead (hidden by the CUDA graph) is {call_us[TORCH_COMPILE]:.0f} us, "
            f"another variant's {least_us:.0f} us"
        )
        return rounds, disqualified if call_us[TORCH_COMPILE] > least_us else ""

    def _select_winner(self, rounds: InterleavedTimings, checker: CandidateChecker, disqualified: str) -> str:
        """Return the fastest correct variant; torch.compile only if it is not disqualified."""
        times = _eligible_times(rounds, disqualified)
        for name in sorted(times, key=lambda name: times[name] * (CLEAR_SPEEDUP if name == TORCH_COMPILE else 1.0)):
            if name == TORCH:
                return name
            gain = rounds.compare(name, TORCH)
            if gain.low <= 1 or gain.speedup < (CLEAR_SPEEDUP**2 if name == TORCH_COMPILE else MIN_SPEEDUP):
                continue
            if name == TORCH_COMPILE or checker.is_correct(name):
                return name
        return TORCH


@dataclass
class CandidateChecker:
    """Compares kernels of a region with its reference, each at most once.

    Attributes:
        failures: by the name of each kernel that was checked, what is wrong; empty text if it is correct.
    """

    region: AnyRegion
    reference: fx.GraphModule
    inputs: Sequence[torch.Tensor]
    programs: dict[str, Callable[..., Any]]
    failures: dict[str, str] = field(default_factory=dict)

    def is_correct(self, name: str) -> bool:
        """Whether a kernel's result matches the reference's."""
        if name not in self.failures:
            report_stage(f"{self.region.name}: checking {name}")
            with tf32_as_set():
                reason = find_mismatch(self.reference, self.programs[name], self.inputs)
            self.failures[name] = reason.detail if reason else ""
        return not self.failures[name]

    def annotate(self, attempt: Attempt) -> Attempt:
        """Return the attempt with the result of its check, if it was checked."""
        if attempt.name not in self.failures:
            return attempt
        failure = self.failures[attempt.name]
        return msgspec.structs.replace(attempt, accepted=not failure, reason=failure)


def _eligible_times(rounds: InterleavedTimings, disqualified: str) -> dict[str, float]:
    """The times of the variants that may win; not torch.compile if something disqualifies it."""
    return {
        name: timing.time_us for name, timing in rounds.timings.items() if not (disqualified and name == TORCH_COMPILE)
    }


def _explain_winner(winner: str, times: dict[str, float]) -> str:
    others = {name: time for name, time in times.items() if name != winner}
    if not others:
        return "no other variant was correct"
    second = min(others, key=lambda name: others[name])
    return f"{others[second] / times[winner]:.2f}x faster than the next, {second}"
