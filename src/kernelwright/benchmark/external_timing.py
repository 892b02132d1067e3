"""Arms in processes of their own, timed from outside: by the judge's clock, in calls of which every one has fresh
values at a fresh address, and of which any one may be judged.

An arm that remembers what it was given gains nothing here, nor does one that knows when it is timed: what is judged and
what is timed are the same calls. Arms take turns, each stopped while another runs. A call of microseconds is timed in a
series, long enough that the judge need not look before it is over.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any, Self

import torch

from kernelwright.benchmark.variants import BASELINE_NAMES
from kernelwright.core.cache import digest
from kernelwright.core.errors import KernelwrightError
from kernelwright.core.progress import stage
from kernelwright.core.records import Conditions, Reason, Timing
from kernelwright.core.units import number_text, time_text
from kernelwright.measure.clock import wall_s
from kernelwright.measure.clock_agreement import TwoSided, Window
from kernelwright.measure.conditions import allocation_policy
from kernelwright.measure.statistics import median_interval
from kernelwright.problems.problem import Args, Problem, tensors
from kernelwright.sandbox import Limits, Nursery
from kernelwright.verification.accuracy.comparison import policy_of
from kernelwright.verification.accuracy.near_limit import LEAST_DRAWS, Drawn
from kernelwright.verification.accuracy.prescreen import distance
from kernelwright.verification.execution import Observed
from kernelwright.verification.output_checker import Answers, as_reason
from kernelwright.verification.reference import Reference
from kernelwright.verification.transport.runners import PRELOAD, ByMemory
from kernelwright.verification.verdict import SEED_BITS, in_a_timed_call

WINDOW_US = 5_000.0
"""Of a series, if so many calls fit: what it costs to begin and end one is known to some tens."""
MOST_CALLS = 1024
MOST_INPUT_BYTES, MOST_OUTPUT_BYTES = 64 << 20, {"cpu": 8 << 20, "cuda": 256 << 20}
"""Of a series: outputs of all its calls are held until it is over, and read."""
LAUNCH_US = 60.0
"""A call on a device that the host needs longer for is timed with what the host needs: during a series' window before
the first call, it gets that far ahead."""
COLD_BYTES = 1 << 20
"""Inputs of a call from here on come from memory: what is smaller lies in a cache wherever it is used."""
WARM_ROUNDS, LEAST_ROUNDS, MOST_ROUNDS = 2, 5, 15
MOST_FAR = 8
"""So many calls of a series that are far from the reference are judged: honest candidates may be so in all of them."""
LOOKED_AT = 0.5
"""The share of rounds whose outputs are read: which ones, nobody knows beforehand."""
PAIR_S = 2.5
"""After this long no further round begins, once there are enough."""
UNSEEN_SHARE = 0.8
"""The judge comes so much late at most, as it sleeps for what a series took before."""
LEAST_US = 0.001
"""Nothing takes less, whatever a clock says."""


class Rejected(Exception):
    """A candidate that was caught in a timed call."""

    def __init__(self, name: str, reason: Reason) -> None:
        super().__init__(f"{name}: {reason.code}")
        self.name, self.reason = name, reason


@dataclass
class _Arm:
    name: str
    nursery: Nursery
    target: str
    which: str = ""
    """The baseline that it is."""
    runner: ByMemory = field(init=False)
    answers: Answers = field(init=False)
    windows: list[Window] = field(default_factory=list)

    def close(self) -> None:
        """Ends its processes."""
        if hasattr(self, "runner"):
            self.runner.__exit__()
        self.nursery.close()


class Outside:
    """Pairs of fresh processes, one for each arm. A context manager: its nurseries stay warm from one to the next.

    Args:
        problem: from a file.
        candidates: files by the names of their arms.
        baselines: any of `arms.BASELINES`.
        device: on which they compute.
        cache_bytes: of the last level of cache, which no call finds its inputs in.
        call_us: what a call of the fastest candidate takes, as far as it is known.
        tolerance: as `verify` takes it.
        seed: of values and turns; None is a secret one.
    Attributes:
        caught: by the names of their arms, why candidates were rejected in timed calls. They have no arm from then on;
            the others keep theirs, and every time that was taken of them.
    """

    def __init__(
        self,
        problem: Problem,
        candidates: dict[str, str],
        baselines: Sequence[str],
        *,
        device: str,
        cache_bytes: int,
        limits: Limits,
        call_us: float | None = None,
        tolerance: tuple[float, float] | None = None,
        seed: int | None = None,
    ) -> None:
        assert problem.source
        self._problem, self._device, self._cache_bytes, self._limits = problem, device, cache_bytes, limits
        self._candidates, self._baselines, self._policy = candidates, baselines, policy_of(tolerance)
        seed = secrets.randbits(SEED_BITS) if seed is None else seed
        # Not the values of `verify`, which may have been given the same seed.
        self._reference = Reference(problem, device, int(digest(str(seed), "bench")[:15], 16), change_parameters=False)
        self._chance = self._reference.chance("turns")
        self._next = 0
        self.caught: dict[str, Reason] = {}
        self._arms: list[_Arm] = []
        self._model = self._reference.probe()
        self._most_calls, self._cold = self._bounds()
        self._calls = self._fitting(call_us or self._reference_us())
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        def warm(*more: str) -> Nursery:
            return self._stack.enter_context(Nursery((*PRELOAD, *more)))

        source = self._problem.source or ""
        self._arms = [_Arm(name, warm(), target) for name, target in self._candidates.items()]
        self._arms += [
            _Arm(BASELINE_NAMES[which], warm("kernelwright.benchmark.baselines"), source, which)
            for which in self._baselines
        ]
        return self

    def __exit__(self, *fault: Any) -> None:
        self._stack.close()

    def pair(self, what: str) -> dict[str, Timing]:
        """The times of every arm in a fresh process; nothing where there were candidates and all are caught.

        Args:
            what: it is, for whoever waits.
        """
        with contextlib.ExitStack() as opened:
            for arm in list(self._arms):
                stage(f"{what}: loading {arm.name}")
                with self._dropping(arm), _catching(arm):
                    self._open(arm, opened)
            stage(f"{what}: timing {', '.join(arm.name for arm in self._arms)}")
            for _ in range(WARM_ROUNDS):
                self._take_turns(thorough=False)
            if self._is_over:
                return {}
            shortest_us = min(arm.windows[-1].claimed_us for arm in self._arms)
            calls = self._fitting(shortest_us / self._calls)
            if calls < 2 * self._calls:
                return self._timings()
        self._calls = calls  # the fastest is over too soon
        return self.pair(what)

    @property
    def _is_over(self) -> bool:
        """Whether no candidate is left of those that there were: then there is nothing to compare."""
        return bool(self._candidates) and all(arm.which for arm in self._arms)

    @contextlib.contextmanager
    def _dropping(self, arm: _Arm) -> Iterator[None]:
        """A candidate that is caught meanwhile is gone from the arms, and its processes with it."""
        try:
            yield
        except Rejected as found:
            self.caught[arm.name] = found.reason
            self._arms.remove(arm)
            arm.close()

    def ask_again(self, names: Collection[str]) -> dict[str, str]:
        """Asks of candidates whose times are less than can be: fresh processes and fresh values, in series of which
        every call is held against the reference; the other shapes that the problem declares; the device's kernels.

        Returns:
            What was found of each, in words; those that are rejected by it are in `caught`.
        """
        found = {}
        for arm in [arm for arm in self._arms if arm.name in names]:
            stage(f"asking {arm.name} again, whose time is less than can be")
            with self._dropping(arm), contextlib.ExitStack() as opened:
                with _catching(arm):
                    self._open(arm, opened)
                found[arm.name] = ", ".join(self._asked_again(arm))
        return found

    def _asked_again(self, arm: _Arm) -> Iterator[str]:
        for _ in range(LEAST_ROUNDS):
            inputs = self._inputs()
            with _catching(arm):
                self._turn(arm, inputs, look=True, thorough=True)
        self._refuse_lie(arm, arm.windows)
        calls = number_text(LEAST_ROUNDS * self._calls, "call")
        yield f"{calls} with fresh values were right at a glance, {LEAST_ROUNDS} of them as strictly as any"
        shapes, reason = arm.answers.asked_of_held_out(self._reference)
        if reason := reason or arm.answers.decided(self._reference, list(arm.answers.near.pending)):
            raise Rejected(arm.name, reason)
        if shapes:
            yield f"as were {number_text(shapes, 'other shape')}"
        if self._device == "cuda":
            inputs = self._inputs()[0]
            with _catching(arm):
                traced = arm.runner.line.call(inputs, look=True, trace=True)
                assert traced.observed
                reason = arm.answers.rejection(traced.observed, self._reference.set_of(inputs)) or self._decided(arm)
            if reason:
                raise Rejected(arm.name, reason)
            took = time_text(sum(one.time_us for one in traced.kernels))
            yield f"its {number_text(len(traced.kernels), 'kernel')} took {took} in a call by themselves"

    def _timings(self) -> dict[str, Timing]:
        start = wall_s()
        thorough = self._chance.randrange(LEAST_ROUNDS)
        for number in range(MOST_ROUNDS):
            if number >= LEAST_ROUNDS and wall_s() - start > PAIR_S:
                break
            self._take_turns(thorough=number == thorough)
            if self._is_over:
                return {}
        found = {}
        for arm in list(self._arms):
            with self._dropping(arm):
                found[arm.name] = self._timing(arm)
        return {} if self._is_over else found

    def _take_turns(self, *, thorough: bool) -> None:
        """A series of every arm, all with the same values."""
        inputs = self._inputs()
        for arm in self._chance.sample(self._arms, len(self._arms)):
            look = not arm.which and (thorough or self._chance.random() < LOOKED_AT)
            with self._dropping(arm), _catching(arm):
                self._turn(arm, inputs, look=look, thorough=thorough)

    def _open(self, arm: _Arm, opened: contextlib.ExitStack) -> None:
        arm.windows = []
        source = self._problem.source or ""
        arm.runner = runner = opened.enter_context(
            ByMemory(source, arm.target, self._device, self._limits, arm.nursery)
        )
        runner.series, runner.ahead_us = self._inputs(), WINDOW_US
        if arm.which:
            runner.loading = "kernelwright.benchmark.baselines:load_baseline", {"which": arm.which}
        runner.load(runner.series[0], self._model)
        if self._device == "cpu":
            runner.line.watch.cache_bytes = self._cache_bytes if self._cold else 0
        runner.line.gradients = self._problem.records_gradients(runner.series[0])
        keeps, deterministic = self._reference.keeps, self._problem.deterministic
        arm.answers = Answers(runner, self._model, keeps, self._policy, deterministic)
        runner.line.child.stop()

    def _turn(self, arm: _Arm, inputs: list[Args], *, look: bool, thorough: bool) -> None:
        """One series of an arm, which stands still afterwards until its next turn."""
        line = arm.runner.line
        made = line.series(inputs, look=look, outline=self._model.outline)
        arm.windows.append(made.window)
        if look and (reason := self._wrong(arm.answers, made.observed, inputs, thorough) or self._decided(arm)):
            raise Rejected(arm.name, in_a_timed_call(reason))
        line.child.stop()

    def _wrong(self, answers: Answers, observed: list[Observed], inputs: list[Args], thorough: bool) -> Reason | None:
        """What is wrong with a call. Judged are those that show something, and the farthest of those far from the
        reference, which is asked of any one or, thoroughly, of each; then one more is judged. No call can draw the
        judge away from the others."""
        any_one = self._chance.randrange(len(observed))
        odd = {at for at, one in enumerate(observed) if self._is_odd(one)}
        asked = set(range(len(observed))) - odd if thorough else {any_one} - odd
        away = [(distance(observed[at], inputs[at], self._reference.outcome(inputs[at])), at) for at in asked]
        far = [at for apart, at in sorted(away, reverse=True)[:MOST_FAR] if apart > 1]
        more = [any_one] if thorough else []
        for at in sorted({*odd, *far, *more}):
            drawn = self._reference.set_of(inputs[at])
            if reason := answers.rejection(observed[at], drawn):
                return reason
            if at == any_one and answers.share is not None:
                answers.near.add(drawn.kind, answers.share)
        return None

    def _is_odd(self, one: Observed) -> bool:
        """Whether a call shows more than its outputs that the reference's does not."""
        more = one.mutated.keys() - self._mutated | one.state.keys() - self._state
        return bool(more or one.outside or not one.finished)

    def _decided(self, arm: _Arm) -> Reason | None:
        """What calls drawn by chance out of more such series say, where one was over the limit of accuracy by little:
        those that were judged were among the farthest, which says nothing of the rest."""
        answers = arm.answers

        def calls() -> Iterator[tuple[Observed, Args]]:
            while True:
                inputs = self._inputs()
                made = arm.runner.line.series(inputs, look=True, outline=self._model.outline)
                for at in self._chance.sample(range(len(inputs)), min(len(inputs), LEAST_DRAWS)):
                    yield made.observed[at], inputs[at]

        more = calls()

        def draw(number: int) -> Drawn:
            observed, inputs = next(more)
            return Drawn(answers.rejection(observed, self._reference.set_of(inputs)), answers.share)

        found = (answers.near.decide(kind, draw) for kind in list(answers.near.pending))
        return next(filter(None, found), None)

    def _timing(self, arm: _Arm) -> Timing:
        windows = arm.windows[WARM_ROUNDS:]
        on_device = self._device == "cuda"
        self._refuse_lie(arm, windows)
        samples = [_believed_us(one, arm.runner.empty) / self._calls for one in windows]
        low, high = median_interval(samples)
        return Timing(
            name=arm.name,
            time_us=median(samples),
            low_us=low,
            high_us=high,
            samples_us=tuple(samples),
            repetitions=self._calls,
            conditions=Conditions(
                device="cuda" if on_device else "cpu",
                clock="outside",
                cache="cold" if self._cold else "warm",
                allocation="caching allocator" if on_device else allocation_policy(),
                threads=None if on_device else torch.get_num_threads(),
            ),
        )

    def _refuse_lie(self, arm: _Arm, windows: list[Window]) -> None:
        clocks = TwoSided.of(windows, arm.runner.empty, disturbed=self._device == "cuda")
        if not arm.which and clocks.lies:
            detail = f"its own clock says {clocks.said_us:.0f} us for what took {clocks.least_us:.0f} us at least"
            raise Rejected(arm.name, Reason(code="false-time", detail=detail))

    def _inputs(self) -> list[Args]:
        """Fresh values for a series."""
        self._next += 1
        return self._reference.series(self._next, self._calls)

    def _bounds(self) -> tuple[int, bool]:
        """How many calls are timed at once at most, one alone where it depends on those before it; and whether each
        finds its inputs in memory."""
        inputs = self._reference.inputs(0)
        right = self._reference.set_of(inputs).right
        self._mutated, self._state = set(right.mutated), set(right.state)
        read, written = sum(one.nbytes for one in tensors(inputs)), sum(one.nbytes for one in right.reference)
        alone = right.mutated or right.state or self._reference.draws(inputs)
        fits = MOST_CALLS, MOST_INPUT_BYTES // max(1, read), MOST_OUTPUT_BYTES[self._device] // max(1, written)
        return 1 if alone else max(1, min(fits)), read >= COLD_BYTES or self._device == "cuda"

    def _fitting(self, call_us: float) -> int:
        """So many calls as fill a window."""
        least_us = LAUNCH_US if self._device == "cuda" else LEAST_US
        return max(1, min(self._most_calls, int(WINDOW_US / max(call_us, least_us))))

    def _reference_us(self) -> float:
        inputs, took_us = self._reference.inputs(0), []
        for _ in range(3):
            start = wall_s()
            self._reference.values(inputs)
            took_us.append((wall_s() - start) * 1e6)
        return min(took_us)


def _believed_us(window: Window, empty: Sequence[Window]) -> float:
    """What the worker claims, where the judge's clock leaves it room; else the nearest to it that is left. Of a series
    that it never saw unfinished the judge knows only when it was over."""
    low, nothing_us, high = quantiles(map(_middle_us, empty), n=4)
    judged_us = max(LEAST_US, _middle_us(window) - nothing_us)
    unsure_us = max(high - low, (window.seen_us - window.unfinished_us) / 2)
    claimed_us = window.claimed_us - median(one.claimed_us for one in empty)
    least_us = max(judged_us - unsure_us, judged_us / 2)
    if not window.unfinished_us:
        least_us = UNSEEN_SHARE * (window.seen_us - median(one.seen_us for one in empty)) - (high - low)
    return min(max(claimed_us, least_us, LEAST_US), max(judged_us + unsure_us, least_us))


def _middle_us(window: Window) -> float:
    """Of when it was last seen unfinished and first seen done."""
    return (window.unfinished_us + window.seen_us) / 2


@contextlib.contextmanager
def _catching(arm: _Arm) -> Iterator[None]:
    """What a candidate does wrong rejects it; of a baseline it is an error."""
    try:
        yield
    except KernelwrightError as fault:
        if arm.which:
            raise
        raise Rejected(arm.name, as_reason(fault)) from fault
