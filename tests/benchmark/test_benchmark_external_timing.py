"""What is timed is what is judged: from outside, with fresh values in every call."""

import sys
from collections import Counter

import pytest
from tiers import fast_first

import kernelwright.verification.call_series as call_series
from kernelwright.benchmark.bench import bench
from kernelwright.benchmark.external_timing import MIN_ROUNDS, WARMUP_ROUNDS, CandidateRejectedError, ExternalBenchmark
from kernelwright.benchmark.pairs import PairedTimings, time_pairs
from kernelwright.core.timing import Conditions, Timing
from kernelwright.core.verdict import Reason
from kernelwright.problems import load_problem
from kernelwright.sandbox import Limits, can_inspect
from kernelwright.verification.output_checker import OutputChecker

pytestmark = pytest.mark.skipif(not can_inspect(), reason="memory of other processes cannot be reached here")

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x) * 2

def get_inputs():
    return [torch.randn(64, 64)]
"""
HONEST = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x).mul_(2)
"""
LAZY = """
import torch

class ModelNew(torch.nn.Module):
    calls, kept = 0, None

    def forward(self, x):
        self.calls += 1
        if self.calls < 100:
            self.kept = torch.tanh(x) * 2
        return self.kept.clone()
"""
LAST_ALONE = """
import sys
import torch

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def forward(self, x):
        frame = sys._getframe()
        while frame and "given" not in frame.f_locals:
            frame = frame.f_back
        given = frame.f_locals["given"] if frame else [((x,), {})]
        self.calls += 1
        last = given[-1][0][0].data_ptr() == x.data_ptr()
        return torch.tanh(x) * 2 if last else torch.zeros_like(x)
"""
COUNTS = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x * self.calls

def get_inputs():
    return [torch.randn(8)]
"""
DRAWS = PROBLEM.replace("torch.tanh(x) * 2", "torch.nn.functional.dropout(x)")


def outside(problem, candidates, baselines=("eager",), seed=None):
    given = {"device": "cpu", "cache_bytes": 1 << 20, "limits": Limits(60.0), "seed": seed}
    return ExternalBenchmark(load_problem(problem), candidates, baselines, **given)


def test_every_variant_of_a_pair_has_a_time_of_many_calls(file):
    with outside(file("problem.py", PROBLEM), {"fast": file("fast.py", HONEST)}) as timer:
        found = timer.time_pair("a pair")
    assert set(found) == {"fast", "eager"}
    for timing in found.values():
        assert timing.time_us > 0
        assert (timing.conditions.clock, timing.repetitions > 1) == ("external", True)


@pytest.mark.slow
def test_who_stops_computing_once_it_is_trusted_is_caught_where_it_is_timed(file):
    problem, lazy = file("problem.py", PROBLEM), file("lazy.py", LAZY.replace("100", "50"))
    with outside(problem, {"lazy": lazy}) as timer:
        assert timer.time_pair("a pair") == {}
    assert timer.rejections["lazy"].code in ("stale-output", "inaccurate")
    assert "in a timed call" in timer.rejections["lazy"].detail


@pytest.mark.slow
def test_nobody_chooses_which_call_of_a_series_is_judged(file):
    """By a buffer of its own, say, whose change is seen after the last one."""
    problem, candidates = file("problem.py", PROBLEM), {"last": file("last_alone.py", LAST_ALONE)}
    with outside(problem, candidates) as timer:
        timer.time_pair("a pair")
    assert timer.rejections["last"].code == "inaccurate"


@pytest.mark.slow
@pytest.mark.parametrize("check", [True, False])
def test_a_bench_gives_such_candidates_no_variant_and_times_the_others_once(file, monkeypatch, check):
    problem, honest = file("problem.py", PROBLEM), file("honest.py", HONEST)
    lazy, asked = file("lazy.py", LAZY.replace("100", "1_000_000")), []

    def time_all(problem, candidates, *_, **__):
        asked.append(list(candidates))
        reason = Reason(code="stale-output", detail="in a timed call")
        return PairedTimings([], [], rejections={"lazy (1)": reason, "lazy (3)": reason})

    monkeypatch.setattr(sys.modules["kernelwright.benchmark.bench"], "_time_all", time_all)
    found = bench(problem, lazy, honest, lazy, baselines=["eager"], check=check)
    assert asked == [[lazy, honest, lazy]]
    codes = [verdict.reason and verdict.reason.code for verdict in found.verdicts]
    assert codes == (["stale-output", None, "stale-output"] if check else ["stale-output", "stale-output"])


@pytest.mark.slow
def test_nothing_honest_is_timed_twice_for_one_that_is_caught_late(file, monkeypatch):
    """Four candidates, of which one stops computing in the last pair: turns are counted, not time."""
    problem, turns = file("problem.py", PROBLEM), Counter()
    candidates = {f"honest {number}": file(f"honest_{number}.py", HONEST) for number in range(3)}
    candidates["late"] = file("late.py", LAZY)
    usual, pairs = ExternalBenchmark._run_series, 5

    def turn(self, variant, *given, **how):
        turns[variant.name] += 1
        if variant.name == "late" and turns["late"] == turns_of_a_pair * (pairs - 1) + WARMUP_ROUNDS + 1:
            raise CandidateRejectedError("late", Reason(code="stale-output", detail="in a timed call"))
        usual(self, variant, *given, **how)

    turns_of_a_pair = WARMUP_ROUNDS + MIN_ROUNDS
    monkeypatch.setattr(ExternalBenchmark, "_run_series", turn)
    monkeypatch.setattr("kernelwright.benchmark.external_timing.MAX_ROUNDS", MIN_ROUNDS)
    monkeypatch.setattr(
        "kernelwright.benchmark.external_timing.TARGET_SERIES_US", 1.0
    )  # one call in each series, however fast it is
    with outside(problem, candidates) as timer:
        measured = time_pairs(timer.time_pair, candidates, ["eager"], pairs)
    honest = {*candidates, "eager"} - {"late"}
    assert {one.name for one in measured.timings} == honest
    assert {one.variant: one.pairs % pairs for one in measured.comparisons} == dict.fromkeys(honest - {"eager"}, 0)
    assert timer.rejections["late"].code == "stale-output"
    taken = measured.timings[0].conditions.processes
    assert {turns[name] for name in honest} == {turns_of_a_pair * taken}, "what was taken before is kept"


@pytest.mark.slow
def test_the_processes_of_who_is_caught_end_at_once(file):
    """They would have processors while the others are timed."""
    problem = file("problem.py", PROBLEM)
    candidates = {"lazy": file("lazy.py", LAZY.replace("100", "1")), "honest": file("honest.py", HONEST)}
    with outside(problem, candidates) as timer:
        lazy = next(variant for variant in timer._variants if variant.name == "lazy")
        assert set(timer.time_pair("a pair")) == {"honest", "eager"}
        assert lazy.fork_server.pid == 0
        assert set(timer.time_pair("another")) == {"honest", "eager"}


@pytest.mark.slow
def test_a_tolerance_holds_where_it_is_timed_too(file):
    problem = file("problem.py", PROBLEM)
    near = file("near.py", HONEST.replace("mul_(2)", "mul_(2.001)"))
    for tolerance, right in (((0.1, 0.1), True), (None, False)):
        given = {"device": "cpu", "cache_bytes": 1 << 20, "limits": Limits(60.0), "tolerance": tolerance}
        with ExternalBenchmark(load_problem(problem), {"near": near}, [], **given) as timer:
            if right:
                assert timer.time_pair("a pair")["near"].time_us > 0
                continue
            timer.time_pair("a pair")
            assert timer.rejections["near"].code == "inaccurate"


@pytest.mark.parametrize("text", [COUNTS, DRAWS])
def test_where_a_call_depends_on_those_before_it_each_is_alone(file, text):
    assert outside(file("problem.py", text), {})._plan.max_calls == 1


GELU = """
import torch
def problem(x): return torch.nn.functional.gelu(x)
def get_inputs(): return [torch.randn(512, 1000)]
"""
BY_HAND = """
import torch
def problem(x): return 0.5 * x * (1 + torch.erf(x * 0.7071067811865476))
"""
FAST_EVENTS = """
import torch
torch.cuda.Event.elapsed_time = lambda begin, end: 0.004
def problem(x):
    torch.cuda._sleep(2_000_000)
    return torch.nn.functional.gelu(x)
"""


@pytest.mark.gpu
def test_variants_on_a_gpu_are_timed_from_outside_too(file):
    given = {"device": "cuda", "cache_bytes": 1 << 20, "limits": Limits(60.0)}
    problem = load_problem(file("problem.py", GELU))
    with ExternalBenchmark(problem, {"by hand": file("by_hand.py", BY_HAND) + ":problem"}, ["eager"], **given) as timer:
        times = timer.time_pair("a pair")
    assert times["by hand"].time_us > times["eager"].time_us, "four kernels and one"
    conditions = times["eager"].conditions
    assert (conditions.clock, conditions.device, times["eager"].repetitions > 1) == ("external", "cuda", True)


@pytest.mark.gpu
def test_who_replaces_events_on_a_gpu_is_a_liar(file):
    given = {"device": "cuda", "cache_bytes": 1 << 20, "limits": Limits(60.0)}
    problem, fast = load_problem(file("problem.py", GELU)), file("fast.py", FAST_EVENTS) + ":problem"
    with ExternalBenchmark(problem, {"fast": fast}, [], **given) as timer:
        timer.time_pair("a pair")
    assert timer.rejections["fast"].code == "false-time"


ANY_SHAPE = PROBLEM + "\ndef get_held_out_inputs(): return [[torch.randn(3, 5)], [torch.randn(1)]]\n"


@pytest.mark.slow
def test_a_time_that_is_less_than_can_be_is_asked_again(file, monkeypatch):
    """And what is right then too keeps its time, beside what was found."""

    def pair(self, what):
        conditions = Conditions(device="cpu", clock="external", cache="warm", allocation="", threads=2)
        of = {"time_us": 1.0, "low_us": 1.0, "high_us": 1.0, "samples_us": (1.0,), "repetitions": 1}
        return {name: Timing(name=name, conditions=conditions, **of) for name in ("candidate", "eager")}

    monkeypatch.setattr(ExternalBenchmark, "time_pair", pair)
    monkeypatch.setattr("kernelwright.benchmark.bounds.LowerBounds.datasheet_bound_us", 2.0)
    found = bench(file("problem.py", ANY_SHAPE), file("honest.py", HONEST), pairs=5, check=False)
    said = {variant.name: variant.suspicious for variant in found.variants}
    assert (
        "calls with new values passed the quick check, 5 of them the full check, 2 other shapes passed"
        in said["candidate"]
    )
    assert said["eager"].endswith("check the outputs of the timed calls"), "nobody doubts torch itself"


def test_who_is_not_right_when_asked_again_is_rejected(file):
    given_alone = HONEST.replace("return", "return x if x.shape[-1] != 64 else")
    candidates = {"given alone": file("given_alone.py", given_alone)}
    with outside(file("problem.py", ANY_SHAPE), candidates, ()) as timer:
        assert timer.recheck(candidates) == {}
    assert timer.rejections["given alone"].code == "inaccurate"
    assert "for inputs of (3, 5), which the problem declares" in timer.rejections["given alone"].detail


IN_PLACE = """
import torch

def update(x, y):
    x.add_(y)
    return x

def get_inputs():
    return [torch.randn(64, 64), torch.randn(64, 64)]
"""


@pytest.mark.parametrize(
    "change", fast_first(1, ["x.add_(y)", "y.mul_(x.add_(y) * 0 + 1)", "y.mul_(2 + 0 * x.add_(y))"])
)
def test_what_the_reference_changes_too_is_judged_no_more_often_than_other_calls(file, monkeypatch, change):
    candidate = file("candidate.py", f"def update(x, y):\n    {change}\n    return x\n")
    judged, looked = [], []
    rejection, distance = OutputChecker.check, call_series.prescreen_distance
    monkeypatch.setattr(OutputChecker, "check", lambda *given: judged.append(1) or rejection(*given))
    monkeypatch.setattr(call_series, "prescreen_distance", lambda *given: looked.append(1) or distance(*given))
    with outside(file("problem.py", IN_PLACE) + ":update", {"own": candidate}, seed=1) as timer:
        timer.time_pair("a pair")
    if "2 +" in change:
        assert timer.rejections["own"].code == "input-mutated"
    else:
        assert not timer.rejections
        assert len(judged) < len(looked)
