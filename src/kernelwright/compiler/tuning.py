"""What is the fastest way to compute a region here: every choice of a generator, torch, and torch.compile.

The space is data and a choice is a record, so whoever searches better than by trying them all can stand here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import torch
from torch import fx

from kernelwright.compiler.backends import Backend
from kernelwright.compiler.cuda_graph import measure_in_graph_us
from kernelwright.compiler.kernel_source import RegionKernel, summarize
from kernelwright.compiler.reference import format_reference
from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.region import Region
from kernelwright.compiler.trial_store import TrialStore
from kernelwright.core.optimization import TORCH, TORCH_COMPILE, Attempt, ConfigValues, RegionOutcome
from kernelwright.core.progress import report_stage
from kernelwright.core.records import Floor, Machine
from kernelwright.diagnosis.observation import special_function_us
from kernelwright.diagnosis.recommendations import SPECIAL_FUNCTION_FACTOR, WELL_WRITTEN_FACTOR, min_call_us
from kernelwright.machines.floor import datasheet_bound_us, floor, last_cache_bytes
from kernelwright.measure.buffers import RotatingBuffers
from kernelwright.measure.clock import measure_steady_us
from kernelwright.measure.paired import GRAPH_BELOW_US, InterleavedTimings, time_variants
from kernelwright.problems import Problem
from kernelwright.verification.quick_check import find_mismatch
from kernelwright.work import count_work, first_read_bytes

NUM_FINALISTS = 3
QUICK_BUDGET_S = 0.05
MIN_SPEEDUP = 1.005
"""A kernel that is not surely faster than torch's own, and by this much, is not worth a line of anybody's file."""
CLEAR_SPEEDUP = 1.02
"""What torch's ways have to gain on a kernel of one's own: torch.compile compiles again wherever the file runs."""
OWN_KERNELS = "kernels"
PROGRAM_HANDICAP = {
    True: {OWN_KERNELS: 1.0, TORCH: CLEAR_SPEEDUP, TORCH_COMPILE: CLEAR_SPEEDUP**2},
    False: {OWN_KERNELS: CLEAR_SPEEDUP, TORCH: 1.0, TORCH_COMPILE: CLEAR_SPEEDUP},
}
"""By whether a kernel for a program is our own, which is what is asked for: torch's ways have to be faster."""
ProgramsByAttempt = dict[str, tuple[RegionKernel, Callable[..., Any]]]
"""By the name of their attempt."""


@dataclass
class TuningResult:
    """The outcome of a region, and the kernel that won; None where torch's own did."""

    outcome: RegionOutcome
    kernel: RegionKernel | None


@dataclass
class Tuner:
    """Tries the ways to compute regions on one device.

    Args:
        use_torch_compile: let torch.compile compete.
    """

    backend: Backend
    device: str
    machine: Machine
    use_torch_compile: bool = True
    budget_s: float = 1.0
    _num_tried: int = field(default=0, init=False)
    _num_cached: int = field(default=0, init=False)

    def notes(self) -> list[str]:
        """What a person should know of how it was tried."""
        known = f"{self._num_cached} of {self._num_tried} choices were measured by an earlier run"
        return [known] if self._num_cached else []

    def tune(self, region: Region, reference: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> TuningResult:
        """The best accepted way; the reference where nothing beats it."""
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
            winner_reason=f"no gain to be had: it is at {before / least.time_us:.2f}x its floor"
            if least.time_us
            else "",
        )
        if max(bound_us, min_call_us(self.machine) / 4) >= before:
            return TuningResult(outcome, None)
        programs, attempts = self._try_configs(region, reference, inputs)
        answers = CandidateChecker(
            region, reference, inputs, {name: program for name, (_, program) in programs.items()}
        )
        finalists = self._select_finalists([attempt for attempt in attempts if attempt.name in programs], answers)
        rounds, against = self._time_finalists(
            region, reference, inputs, {name: programs[name][1] for name in finalists}
        )
        times = {name: timing.time_us for name, timing in rounds.timings.items()}
        winner = self._select_winner(rounds, answers, against)
        attempts = [
            msgspec.structs.replace(answers.annotate(attempt), time_us=times.get(attempt.name, attempt.time_us))
            for attempt in attempts
        ]
        torchs_own = [(name, reason) for name, reason in ((TORCH, ""), (TORCH_COMPILE, against)) if name in times]
        attempts += [Attempt(name=name, time_us=times[name], reason=reason) for name, reason in torchs_own]
        kernel = programs[winner][0] if winner in programs else None
        if winner == TORCH_COMPILE:
            kernel = RegionKernel(region, None, format_reference(reference, f"{region.name}_plain"))
        fair = {name: time for name, time in _eligible_times(rounds, against).items() if not answers.failures.get(name)}
        outcome = msgspec.structs.replace(
            outcome,
            before_us=times[TORCH],
            after_us=times[winner],
            winner=winner,
            winner_reason=_explain_winner(winner, fair),
            attempts=tuple(attempts),
        )
        return TuningResult(outcome, kernel)

    def choose_whole_program(
        self, problem: Problem, changed: Callable[..., Any], kernels: Sequence[RegionKernel]
    ) -> tuple[str, str] | None:
        """(torch's own way, why) where one is faster for a whole program than its kernels, else None.

        What stands between regions, and what a call costs, shows only here.

        Args:
            changed: the program with these kernels; without any it runs as it was.
        """
        program, inputs = problem.program_on(self.device), problem.inputs(self.device, 0)
        arms: dict[str, Callable[..., Any]] = {OWN_KERNELS: changed, TORCH: program} if kernels else {TORCH: program}
        if self.use_torch_compile:
            torch._dynamo.reset()
            arms[TORCH_COMPILE] = torch.compile(program, dynamic=False)
        if len(arms) == 1:
            return None
        report_stage(f"timing the whole program in {len(arms)} ways")
        rounds, against = self._time_rounds(arms, inputs)
        times = _eligible_times(rounds, against)
        handicap = PROGRAM_HANDICAP[any(not kernel.torch_source for kernel in kernels)]
        best = min(times, key=lambda name: times[name] * handicap[name])
        return None if best == next(iter(arms)) else (best, _explain_winner(best, times))

    def _predict(self, reference: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> tuple[Floor, float, float]:
        """The floor of a region, what no kernel beats, and what one that is written well should take.

        A floor is a copy's speed, which torch's own kernel may have: half a percent may be left.
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
        self, name: str, setting: ConfigValues, program: Callable[..., Any], inputs: Sequence[torch.Tensor]
    ) -> Attempt:
        """A kernel timed at a glance; one that may be over before the next is launched, by the device alone as well."""
        found = Attempt(name=name, config=setting, time_us=self._quick_time_us(program, inputs))
        if not self._may_be_launch_bound(found):
            return found
        call = RotatingBuffers((list(inputs), {}), last_cache_bytes(self.machine)).bind(program)
        with torch.no_grad():
            return msgspec.structs.replace(found, device_time_us=measure_in_graph_us(call))

    def _may_be_launch_bound(self, attempt: Attempt) -> bool:
        return self.device == "cuda" and attempt.time_us is not None and attempt.time_us < GRAPH_BELOW_US

    def _try_configs(
        self, region: Region, reference: fx.GraphModule, inputs: Sequence[torch.Tensor]
    ) -> tuple[ProgramsByAttempt, list[Attempt]]:
        """Every choice of the generator, built and timed at a glance."""
        trials, programs, attempts = TrialStore(region, self.machine), {}, []
        choices = self.backend.generate_configs(region)
        for at, choice in enumerate(choices):
            report_stage(f"{region.name}: choice {at + 1} of {len(choices)}")
            setting = msgspec.to_builtins(choice)
            name = ", ".join(f"{key} {value}" for key, value in setting.items())
            text = name
            try:
                text = self.backend.emit_module([RegionKernel(region, choice)])
                known = trials.get(text)
                if known and self._may_be_launch_bound(known) and known.device_time_us is None:
                    known = None
                self._num_tried, self._num_cached = self._num_tried + 1, self._num_cached + bool(known)
                if known is None or known.time_us is not None:
                    program = getattr(self.backend.load(text), region.name)
                    known = known or self._time_attempt(name, setting, program, inputs)
                    programs[name] = RegionKernel(region, choice), program
            except Unsupported as reason:
                known = Attempt(name=name, config=setting, accepted=False, reason=str(reason))
            except Exception as fault:  # a generated kernel that does not build or run: ours, and to be reported
                reason = f"{type(fault).__name__}: {str(fault).strip().splitlines()[-1][:200] if str(fault) else ''}"
                known = Attempt(name=name, config=setting, accepted=False, reason=reason)
            trials.put(text, known)
            attempts.append(known)
        return programs, attempts

    def _select_finalists(self, attempts: Sequence[Attempt], answers: CandidateChecker) -> list[str]:
        """The names of the fastest few; of the right ones the fastest where a call would hide what they take."""
        best = sorted(attempts, key=self._cost_us)
        hidden = (
            best
            and all(a.device_time_us for a in best[:NUM_FINALISTS])
            and self._cost_us(best[0]) < min_call_us(self.machine)
        )
        if hidden:
            return [next(a.name for a in best if answers.is_correct(a.name) or a is best[-1])]
        return [a.name for a in best[:NUM_FINALISTS]]

    def _cost_us(self, attempt: Attempt) -> float:
        """Its time at a glance; on a GPU a row in parts takes a launch more, which costs the host what is not in it."""
        more = self.device == "cuda" and attempt.config.get("num_splits", 1) != 1
        return (attempt.device_time_us or attempt.time_us or 0.0) + more * min_call_us(self.machine) / 4

    def _time_finalists(
        self,
        region: Region,
        reference: fx.GraphModule,
        inputs: Sequence[torch.Tensor],
        finalists: dict[str, Callable[..., Any]],
    ) -> tuple[InterleavedTimings, str]:
        """The fastest few beside torch's own, timed in alternation."""
        arms = dict(finalists)
        if self.use_torch_compile and arms:
            report_stage(f"{region.name}: torch.compile", 300)
            torch._dynamo.reset()
            arms[TORCH_COMPILE] = torch.compile(reference, dynamic=False)
        arms[TORCH] = reference
        report_stage(f"{region.name}: timing {len(arms)} ways")
        return self._time_rounds(arms, (list(inputs), {}))

    def _time_rounds(
        self, arms: dict[str, Callable[..., Any]], inputs: tuple[Any, Any]
    ) -> tuple[InterleavedTimings, str]:
        """Ways timed in alternation, and what speaks against torch.compile's: a call that takes longer than another
        way's, where a graph was timed, which hides it."""
        cache_bytes = last_cache_bytes(self.machine)
        with torch.no_grad():
            rounds = time_variants(
                arms, inputs, device=self.device, last_cache_bytes=cache_bytes, budget_s=self.budget_s
            )
        if TORCH_COMPILE not in arms or rounds.timings[TORCH_COMPILE].conditions.clock != "graph":
            return rounds, ""
        called = {name: self._quick_time_us(arm, *inputs) for name, arm in arms.items()}
        others = min(us for name, us in called.items() if name != TORCH_COMPILE)
        against = f"its call, which a graph hides, takes {called[TORCH_COMPILE]:.0f} us, another way's {others:.0f}"
        return rounds, against if called[TORCH_COMPILE] > others else ""

    def _select_winner(self, rounds: InterleavedTimings, answers: CandidateChecker, against: str) -> str:
        """The fastest that is right; torch.compile's only if nothing speaks against it."""
        times = _eligible_times(rounds, against)
        for name in sorted(times, key=lambda name: times[name] * (CLEAR_SPEEDUP if name == TORCH_COMPILE else 1.0)):
            if name == TORCH:
                return name
            gain = rounds.compare(name, TORCH)
            if gain.low <= 1 or gain.speedup < (CLEAR_SPEEDUP**2 if name == TORCH_COMPILE else MIN_SPEEDUP):
                continue
            if name == TORCH_COMPILE or answers.is_correct(name):
                return name
        return TORCH


@dataclass
class CandidateChecker:
    """What kernels of a region return beside its reference, each asked once.

    Attributes:
        failures: those that were asked, with what is wrong; nothing of those that are right.
    """

    region: Region
    reference: fx.GraphModule
    inputs: Sequence[torch.Tensor]
    programs: dict[str, Callable[..., Any]]
    failures: dict[str, str] = field(default_factory=dict)

    def is_correct(self, name: str) -> bool:
        """Whether a kernel's answer is the reference's."""
        if name not in self.failures:
            report_stage(f"{self.region.name}: is {name} right")
            reason = find_mismatch(self.reference, self.programs[name], self.inputs)
            self.failures[name] = reason.detail if reason else ""
        return not self.failures[name]

    def annotate(self, attempt: Attempt) -> Attempt:
        """The attempt with what was found of it."""
        if attempt.name not in self.failures:
            return attempt
        wrong = self.failures[attempt.name]
        return msgspec.structs.replace(attempt, accepted=not wrong, reason=wrong)


def _eligible_times(rounds: InterleavedTimings, against: str) -> dict[str, float]:
    """The times of the ways that may win; `against` torch.compile's may speak something."""
    return {name: timing.time_us for name, timing in rounds.timings.items() if not (against and name == TORCH_COMPILE)}


def _explain_winner(winner: str, times: dict[str, float]) -> str:
    """In one sentence why this one won."""
    others = {name: time for name, time in times.items() if name != winner}
    if not others:
        return "nothing else was right"
    second = min(others, key=lambda name: others[name])
    return f"{others[second] / times[winner]:.2f}x faster than the next, {second}"
