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

from kernelwright.compiler.backends import Generator
from kernelwright.compiler.cuda_graph import in_graph_us
from kernelwright.compiler.kernel_source import Kernel, summary
from kernelwright.compiler.reference import source_of
from kernelwright.compiler.regions.axes import Misfit
from kernelwright.compiler.regions.region import Region
from kernelwright.compiler.trial_store import Trials
from kernelwright.core.optimization import COMPILED, TORCH, Attempt, RegionOutcome, Setting
from kernelwright.core.progress import stage
from kernelwright.core.records import Floor, Machine
from kernelwright.diagnosis.observation import special_us
from kernelwright.diagnosis.recommendations import OWN_SPECIAL_SHARE, SLACK, call_us
from kernelwright.machines.floor import floor, hard_bound_us, last_cache_bytes
from kernelwright.measure.buffers import Rotation
from kernelwright.measure.clock import steady_us
from kernelwright.measure.paired import GRAPH_BELOW_US, Rounds, time_arms
from kernelwright.problems import Problem
from kernelwright.verification.quick_check import disagreement
from kernelwright.work import count, first_reads

FINALISTS = 3
GLANCE_S = 0.05
LEAST_GAIN = 1.005
"""A kernel that is not surely faster than torch's own, and by this much, is not worth a line of anybody's file."""
CLEAR_GAIN = 1.02
"""What torch's ways have to gain on a kernel of one's own: torch.compile compiles again wherever the file runs."""
KERNELS = "kernels"
WHOLE_HANDICAP = {
    True: {KERNELS: 1.0, TORCH: CLEAR_GAIN, COMPILED: CLEAR_GAIN**2},
    False: {KERNELS: CLEAR_GAIN, TORCH: 1.0, COMPILED: CLEAR_GAIN},
}
"""By whether a kernel for a program is our own, which is what is asked for: torch's ways have to be faster."""
Programs = dict[str, tuple[Kernel, Callable[..., Any]]]
"""By the name of their attempt."""


@dataclass
class Tuned:
    """The outcome of a region, and the kernel that won; None where torch's own did."""

    outcome: RegionOutcome
    kernel: Kernel | None


@dataclass
class Tuner:
    """Tries the ways to compute regions on one device.

    Args:
        compile: let torch.compile compete.
    """

    generator: Generator
    device: str
    machine: Machine
    compile: bool = True
    budget_s: float = 1.0
    _tried: int = field(default=0, init=False)
    _remembered: int = field(default=0, init=False)

    def notes(self) -> list[str]:
        """What a person should know of how it was tried."""
        known = f"{self._remembered} of {self._tried} choices were measured by an earlier run"
        return [known] if self._remembered else []

    def tune(self, region: Region, reference: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Tuned:
        """The best accepted way; the reference where nothing beats it."""
        stage(f"{region.name}: counting its work")
        least, bound_us, predicted = self._expected(reference, inputs)
        before = self._glance(reference, inputs)
        outcome = RegionOutcome(
            name=region.name,
            summary=summary(region),
            text=str(region),
            bytes_moved=sum(region.bytes_moved),
            floor_us=least.time_us,
            limiter=least.limiter,
            before_us=before,
            predicted_us=min(predicted, before),
            after_us=before,
            winner=TORCH,
            why=f"no gain to be had: it is at {before / least.time_us:.2f}x its floor" if least.time_us else "",
        )
        if max(bound_us, call_us(self.machine) / 4) >= before:
            return Tuned(outcome, None)
        programs, attempts = self._attempts(region, reference, inputs)
        answers = Answers(region, reference, inputs, {name: program for name, (_, program) in programs.items()})
        finalists = self._finalists([attempt for attempt in attempts if attempt.name in programs], answers)
        rounds, against = self._timed(region, reference, inputs, {name: programs[name][1] for name in finalists})
        times = {name: timing.time_us for name, timing in rounds.timings.items()}
        winner = self._winner(rounds, answers, against)
        attempts = [
            msgspec.structs.replace(answers.told(attempt), time_us=times.get(attempt.name, attempt.time_us))
            for attempt in attempts
        ]
        torchs_own = [(name, reason) for name, reason in ((TORCH, ""), (COMPILED, against)) if name in times]
        attempts += [Attempt(name=name, time_us=times[name], reason=reason) for name, reason in torchs_own]
        kernel = programs[winner][0] if winner in programs else None
        if winner == COMPILED:
            kernel = Kernel(region, None, source_of(reference, f"{region.name}_plain"))
        fair = {name: time for name, time in _contenders(rounds, against).items() if not answers.judged.get(name)}
        outcome = msgspec.structs.replace(
            outcome,
            before_us=times[TORCH],
            after_us=times[winner],
            winner=winner,
            why=_why(winner, fair),
            attempts=tuple(attempts),
        )
        return Tuned(outcome, kernel)

    def whole(self, problem: Problem, changed: Callable[..., Any], kernels: Sequence[Kernel]) -> tuple[str, str] | None:
        """(torch's own way, why) where one is faster for a whole program than its kernels, else None.

        What stands between regions, and what a call costs, shows only here.

        Args:
            changed: the program with these kernels; without any it runs as it was.
        """
        program, inputs = problem.on(self.device), problem.inputs(self.device, 0)
        arms: dict[str, Callable[..., Any]] = {KERNELS: changed, TORCH: program} if kernels else {TORCH: program}
        if self.compile:
            torch._dynamo.reset()
            arms[COMPILED] = torch.compile(program, dynamic=False)
        if len(arms) == 1:
            return None
        stage(f"timing the whole program in {len(arms)} ways")
        rounds, against = self._rounds(arms, inputs)
        times = _contenders(rounds, against)
        handicap = WHOLE_HANDICAP[any(not kernel.code for kernel in kernels)]
        best = min(times, key=lambda name: times[name] * handicap[name])
        return None if best == next(iter(arms)) else (best, _why(best, times))

    def _expected(self, reference: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> tuple[Floor, float, float]:
        """The floor of a region, what no kernel beats, and what one that is written well should take.

        A floor is a copy's speed, which torch's own kernel may have: half a percent may be left.
        """
        work = count(reference, list(inputs))
        cold = sum(first_reads(work).values())
        least = floor(work.fused, self.machine, cold_bytes=cold if work.fused.total_bytes > 2**20 else 0)
        special = OWN_SPECIAL_SHARE * special_us(self.machine, work.fused)
        bound = hard_bound_us(work.fused, self.machine.spec) if self.machine.spec else least.time_us
        return least, bound, max(SLACK * least.time_us, special, call_us(self.machine) / 2)

    def _glance(self, program: Callable[..., Any], args: Sequence[Any], kwargs: Any = None) -> float:
        call = Rotation((list(args), kwargs or {}), last_cache_bytes(self.machine)).bind(program)
        with torch.no_grad():
            return steady_us(call, self.device, budget_s=GLANCE_S)

    def _looked_at(
        self, name: str, setting: Setting, program: Callable[..., Any], inputs: Sequence[torch.Tensor]
    ) -> Attempt:
        """A kernel timed at a glance; one that may be over before the next is launched, by the device alone as well."""
        found = Attempt(name=name, choice=setting, time_us=self._glance(program, inputs))
        if not self._may_be_hidden(found):
            return found
        call = Rotation((list(inputs), {}), last_cache_bytes(self.machine)).bind(program)
        with torch.no_grad():
            return msgspec.structs.replace(found, alone_us=in_graph_us(call))

    def _may_be_hidden(self, attempt: Attempt) -> bool:
        return self.device == "cuda" and attempt.time_us is not None and attempt.time_us < GRAPH_BELOW_US

    def _attempts(
        self, region: Region, reference: fx.GraphModule, inputs: Sequence[torch.Tensor]
    ) -> tuple[Programs, list[Attempt]]:
        """Every choice of the generator, built and timed at a glance."""
        trials, programs, attempts = Trials(region, self.machine), {}, []
        choices = self.generator.choices(region)
        for at, choice in enumerate(choices):
            stage(f"{region.name}: choice {at + 1} of {len(choices)}")
            setting = msgspec.to_builtins(choice)
            name = ", ".join(f"{key} {value}" for key, value in setting.items())
            text = name
            try:
                text = self.generator.module([Kernel(region, choice)])
                known = trials.known(text)
                if known and self._may_be_hidden(known) and known.alone_us is None:
                    known = None
                self._tried, self._remembered = self._tried + 1, self._remembered + bool(known)
                if known is None or known.time_us is not None:
                    program = getattr(self.generator.load(text), region.name)
                    known = known or self._looked_at(name, setting, program, inputs)
                    programs[name] = Kernel(region, choice), program
            except Misfit as reason:
                known = Attempt(name=name, choice=setting, accepted=False, reason=str(reason))
            except Exception as fault:  # a generated kernel that does not build or run: ours, and to be reported
                reason = f"{type(fault).__name__}: {str(fault).strip().splitlines()[-1][:200] if str(fault) else ''}"
                known = Attempt(name=name, choice=setting, accepted=False, reason=reason)
            trials.keep(text, known)
            attempts.append(known)
        return programs, attempts

    def _finalists(self, attempts: Sequence[Attempt], answers: Answers) -> list[str]:
        """The names of the fastest few; of the right ones the fastest where a call would hide what they take."""
        best = sorted(attempts, key=self._cost_us)
        hidden = best and all(a.alone_us for a in best[:FINALISTS]) and self._cost_us(best[0]) < call_us(self.machine)
        if hidden:
            return [next(a.name for a in best if answers.right(a.name) or a is best[-1])]
        return [a.name for a in best[:FINALISTS]]

    def _cost_us(self, attempt: Attempt) -> float:
        """Its time at a glance; on a GPU a row in parts takes a launch more, which costs the host what is not in it."""
        more = self.device == "cuda" and attempt.choice.get("parts", 1) != 1
        return (attempt.alone_us or attempt.time_us or 0.0) + more * call_us(self.machine) / 4

    def _timed(
        self,
        region: Region,
        reference: fx.GraphModule,
        inputs: Sequence[torch.Tensor],
        finalists: dict[str, Callable[..., Any]],
    ) -> tuple[Rounds, str]:
        """The fastest few beside torch's own, timed in alternation."""
        arms = dict(finalists)
        if self.compile and arms:
            stage(f"{region.name}: torch.compile", 300)
            torch._dynamo.reset()
            arms[COMPILED] = torch.compile(reference, dynamic=False)
        arms[TORCH] = reference
        stage(f"{region.name}: timing {len(arms)} ways")
        return self._rounds(arms, (list(inputs), {}))

    def _rounds(self, arms: dict[str, Callable[..., Any]], inputs: tuple[Any, Any]) -> tuple[Rounds, str]:
        """Ways timed in alternation, and what speaks against torch.compile's: a call that takes longer than another
        way's, where a graph was timed, which hides it."""
        cache_bytes = last_cache_bytes(self.machine)
        with torch.no_grad():
            rounds = time_arms(arms, inputs, device=self.device, last_cache_bytes=cache_bytes, budget_s=self.budget_s)
        if COMPILED not in arms or rounds.timings[COMPILED].conditions.clock != "graph":
            return rounds, ""
        called = {name: self._glance(arm, *inputs) for name, arm in arms.items()}
        others = min(us for name, us in called.items() if name != COMPILED)
        against = f"its call, which a graph hides, takes {called[COMPILED]:.0f} us, another way's {others:.0f}"
        return rounds, against if called[COMPILED] > others else ""

    def _winner(self, rounds: Rounds, answers: Answers, against: str) -> str:
        """The fastest that is right; torch.compile's only if nothing speaks against it."""
        times = _contenders(rounds, against)
        for name in sorted(times, key=lambda name: times[name] * (CLEAR_GAIN if name == COMPILED else 1.0)):
            if name == TORCH:
                return name
            gain = rounds.compare(name, TORCH)
            if gain.low <= 1 or gain.ratio < (CLEAR_GAIN**2 if name == COMPILED else LEAST_GAIN):
                continue
            if name == COMPILED or answers.right(name):
                return name
        return TORCH


@dataclass
class Answers:
    """What kernels of a region return beside its reference, each asked once.

    Attributes:
        judged: those that were asked, with what is wrong; nothing of those that are right.
    """

    region: Region
    reference: fx.GraphModule
    inputs: Sequence[torch.Tensor]
    programs: dict[str, Callable[..., Any]]
    judged: dict[str, str] = field(default_factory=dict)

    def right(self, name: str) -> bool:
        """Whether a kernel's answer is the reference's."""
        if name not in self.judged:
            stage(f"{self.region.name}: is {name} right")
            reason = disagreement(self.reference, self.programs[name], self.inputs)
            self.judged[name] = reason.detail if reason else ""
        return not self.judged[name]

    def told(self, attempt: Attempt) -> Attempt:
        """The attempt with what was found of it."""
        if attempt.name not in self.judged:
            return attempt
        wrong = self.judged[attempt.name]
        return msgspec.structs.replace(attempt, accepted=not wrong, reason=wrong)


def _contenders(rounds: Rounds, against: str) -> dict[str, float]:
    """The times of the ways that may win; `against` torch.compile's may speak something."""
    return {name: timing.time_us for name, timing in rounds.timings.items() if not (against and name == COMPILED)}


def _why(winner: str, times: dict[str, float]) -> str:
    """In one sentence why this one won."""
    others = {name: time for name, time in times.items() if name != winner}
    if not others:
        return "nothing else was right"
    second = min(others, key=lambda name: others[name])
    return f"{others[second] / times[winner]:.2f}x faster than the next, {second}"
