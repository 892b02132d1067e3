"""Ways to run the whole program are checked and timed against each other; a simpler one has to be beaten clearly."""

import math
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from fake_timings import rounds_of
from first_choice import FirstChoice, quick

from kernelwright.compiler import selection
from kernelwright.compiler.assembly.cuda_graph_layer import CudaGraphLayer
from kernelwright.compiler.budget import Budget, OutOfTime
from kernelwright.compiler.pipeline import optimize_session
from kernelwright.compiler.program_variant import COMPILED, EAGER, Variant
from kernelwright.compiler.selection import ProgramSelector, has_convolutions
from kernelwright.compiler.session import OptimizationSession
from kernelwright.measure.clock import EventClock
from kernelwright.problems import Problem, load_problem


@pytest.fixture(scope="module", autouse=True)
def quickly():
    with quick():
        yield


X, WEIGHT = torch.randn(9, 40), torch.randn(40, 24)


def program(x, w):
    return torch.softmax(x @ w * 2 + 1, -1)


def selector_of(problem=None, total_s=math.inf, keep=True, **given):
    problem = problem or Problem.from_callable(program, X, WEIGHT)
    return ProgramSelector(OptimizationSession(problem, FirstChoice(keep), Budget(total_s)), **given)


@pytest.fixture
def without_stopwatch(monkeypatch):
    """Variants take the microseconds of `times_us`, in turn, and torch.compile compiles nothing."""
    times_us = []
    monkeypatch.setattr(ProgramSelector, "_time_us", lambda *_: times_us.pop(0) if times_us else 10.0)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    return times_us


OPTIONS = {
    "channels-last": "channels_last",
    "cuDNN's fastest algorithms": "cudnn_benchmark",
    "in a CUDA graph": "in_graph",
}


def variant_of(name):
    """The variant of a name, without a layer of its own."""
    engine, *options = name.split(", ")
    made = Variant(engine, **{OPTIONS[option]: True for option in options})
    assert made.name == name
    return made


# ---- the choice


def names_of(monkeypatch, times_us, *, generated=True, clock="events", quick_us=None):
    """The names of variants of such times, best first, and how they were timed."""
    selector, asked = selector_of(), []
    selector._kernels_generated = generated
    for name in times_us:
        selector.variants[name], selector._programs[name] = variant_of(name), program
    selector.quick_us = quick_us or times_us

    def fake_time_variants(variants, *_, **given):
        asked.append((list(variants), given["clock"]))
        return rounds_of({name: times_us[name] for name in variants}, clock)

    monkeypatch.setattr(selection, "time_variants", fake_time_variants)
    variants, _ = selector.select()
    return [variant.name for variant in variants], *asked


@pytest.mark.parametrize(
    ("compiled_us", "eager_us", "best"),
    [(99.5, 99.8, "kernels"), (99.0, 99.8, "torch.compile"), (97.0, 97.0, "torch"), (50.0, 49.0, "torch")],
)
def test_torchs_own_ways_have_to_be_faster_than_kernels_to_take_their_place(monkeypatch, compiled_us, eager_us, best):
    times_us = {"kernels": 100.0, "torch.compile": compiled_us, "torch": eager_us}
    assert names_of(monkeypatch, times_us)[0][0] == best


@pytest.mark.parametrize(
    ("compiled_us", "eager_us", "best"),
    [(99.0, 99.8, "torch.compile"), (101.0, 103.0, "kernels"), (101.0, 99.5, "torch"), (97.0, 96.0, "torch")],
)
def test_where_torch_compile_made_the_kernels_the_fastest_way_is_taken(monkeypatch, compiled_us, eager_us, best):
    times_us = {"kernels": 100.0, "torch.compile": compiled_us, "torch": eager_us}
    assert names_of(monkeypatch, times_us, generated=False)[0][0] == best


@pytest.mark.parametrize(
    ("clock", "call_us", "best"),
    [("graph", 40.0, "kernels"), ("graph", 10.0, "torch.compile"), ("events", 40.0, "torch.compile")],
)
def test_torch_compile_is_not_taken_for_what_only_a_graph_makes_of_it(monkeypatch, clock, call_us, best):
    times_us = {"kernels": 3.0, "torch.compile": 2.0, "torch": 4.0}
    quick_us = {"kernels": 12.0, "torch.compile": call_us, "torch": 22.0}
    names, _ = names_of(monkeypatch, times_us, clock=clock, quick_us=quick_us)
    assert names[0] == best
    assert ("torch.compile" in names) == (best == "torch.compile")


@pytest.mark.parametrize(
    "fragile",
    [
        "torch.compile",
        "torch, channels-last",
        "torch, cuDNN's fastest algorithms",
        "torch.compile, channels-last",
        "torch, channels-last, cuDNN's fastest algorithms",
        "torch, in a CUDA graph",
        "torch.compile, in a CUDA graph",
    ],
)
def test_a_fragile_way_has_to_be_clearly_faster_than_torch(monkeypatch, fragile):
    factor = 1.004 ** (("torch.compile" in fragile) + fragile.count(", "))
    for us, best in ((100 / factor + 0.01, "torch"), (100 / factor - 0.01, fragile)):
        assert names_of(monkeypatch, {"torch": 100.0, fragile: us})[0][0] == best


def test_kernels_in_a_graph_have_to_be_clearly_faster_than_kernels(monkeypatch):
    for us, best in ((99.7, "kernels"), (99.5, "kernels, in a CUDA graph")):
        assert names_of(monkeypatch, {"kernels": 100.0, "kernels, in a CUDA graph": us})[0][0] == best


def test_the_fastest_few_are_timed_and_torchs_own_ways_always(monkeypatch):
    times_us = {"torch": 9.0, "torch.compile": 8.0, "kernels": 3.0, "torch, channels-last": 4.0, "a": 5.0, "b": 6.0}
    names, (timed, clock) = names_of(monkeypatch, times_us)
    assert set(timed) == {"kernels", "torch, channels-last", "a", "torch", "torch.compile"}
    assert names[0] == "kernels"
    assert clock is None


def test_graphs_and_calls_are_timed_by_one_clock(monkeypatch):
    _, (_, clock) = names_of(monkeypatch, {"torch": 9.0, "torch, in a CUDA graph": 3.0})
    assert isinstance(clock, EventClock)


class WithoutLength(torch.nn.Module):
    """As a module that torch.compile returned."""

    def __len__(self):
        raise TypeError("no len()")


def test_only_a_program_that_was_released_is_built_again(monkeypatch):
    selector, built = selector_of(), []
    monkeypatch.setattr(selector, "_build", lambda variant: built.append(variant.name) or program)
    for name in ("torch", "torch.compile"):
        selector.variants[name] = variant_of(name)
    selector._programs["torch.compile"] = WithoutLength()
    selector.quick_us = {"torch": 10.0, "torch.compile": 13.0}
    monkeypatch.setattr(selection, "time_variants", lambda *_, **__: rounds_of(selector.quick_us))
    selector.select()
    assert built == ["torch"]


# ---- single variants


@pytest.mark.parametrize("use_torch_compile", [True, False])
def test_torch_compile_is_tried_where_it_is_asked_for(without_stopwatch, use_torch_compile):
    selector = selector_of(use_torch_compile=use_torch_compile)
    selector.time_baselines()
    assert selector.variants == {"torch": EAGER} | ({"torch.compile": COMPILED} if use_torch_compile else {})
    assert not selector.session.faults


def test_the_verification_of_the_file_is_kept_in_the_budget(without_stopwatch):
    selector = selector_of(total_s=1000.0)
    selector.time_baselines()
    assert selector.session.budget.reserved_s > selection.RESERVE_S["cpu"]


@pytest.mark.parametrize("total_s", [60.0, 600.0])
def test_torch_compile_tunes_only_within_a_long_budget(without_stopwatch, monkeypatch, total_s):
    modes = []
    monkeypatch.setattr(torch, "compile", lambda given, **options: modes.append(options.get("mode")) or given)
    selector = selector_of(total_s=total_s)
    selector.time_baselines()
    assert modes == [None] + ["max-autotune-no-cudagraphs"] * (total_s > 60)
    assert ("torch.compile, max-autotune" in selector.variants) == (total_s > 60)


class Ahead:
    """Stands where a process stands that compiles the program."""

    def __init__(self, *ends):
        self.ends = [*ends]

    def wait(self, limit_s):
        return self.ends.pop(0)


@pytest.mark.parametrize("ends", [True, False])
def test_torch_compile_is_timed_after_the_kernels(without_stopwatch, monkeypatch, ends):
    monkeypatch.setattr(torch, "compile", lambda given, **options: given)
    selector = planned(selector_of(ahead=Ahead(ends)))
    selector.time_baselines()
    assert "torch.compile" not in selector.variants
    selector.time_kernels()
    assert ("torch.compile" in selector.variants) == ends
    assert selector.session.budget.left_out == ["torch.compile"] * (not ends)
    assert not selector.ahead.ends


def planned(selector):
    selector.session.make_plan()
    selector.session.tune_regions()
    assert not selector.session.faults
    return selector


def test_kernels_are_a_variant(without_stopwatch):
    selector = planned(selector_of())
    selector.time_kernels()
    assert list(selector.variants) == ["kernels"], "nothing is captured in a graph on a CPU"
    assert selector._kernels_generated
    torch.testing.assert_close(selector._programs["kernels"](X, WEIGHT), program(X, WEIGHT))


def test_without_kernels_there_is_no_such_variant(without_stopwatch):
    selector = planned(selector_of(keep=False))
    selector.time_kernels()
    assert not selector.variants
    assert not selector._kernels_generated


FAULTY = {
    "wrong": (lambda x, w: program(x, w) * 1.01, "kernels is not used: "),
    "another shape": (lambda x, w: program(x, w)[:4], "kernels is not used: "),
    "failing": (lambda x, w: 1 / 0, "kernels is not used: ZeroDivisionError: division by zero"),
}


@pytest.mark.parametrize("how", FAULTY)
def test_a_faulty_variant_costs_itself_alone(without_stopwatch, monkeypatch, how):
    wrong, text = FAULTY[how]
    monkeypatch.setattr(ProgramSelector, "_build", lambda self, variant: wrong if variant.layers else program)
    selector = planned(selector_of(use_torch_compile=False))
    selector.time_baselines()
    selector.time_kernels()
    assert list(selector.variants) == list(selector.quick_us) == ["torch"]
    (fault,) = selector.session.faults
    assert fault.startswith(text)
    assert len(fault) > len("kernels is not used: ")


def test_without_time_only_the_program_as_it_is_gets_timed(without_stopwatch):
    selector = selector_of(total_s=0.0)
    selector.time_baselines()
    assert list(selector.variants) == ["torch"]
    assert selector.session.budget.left_out == ["torch.compile"]


def test_a_program_that_is_too_slow_to_be_timed_is_left_to_torch(monkeypatch):
    def too_slow(*_):
        raise OutOfTime

    monkeypatch.setattr(ProgramSelector, "_time_us", too_slow)
    selector = selector_of(use_torch_compile=False)
    variants, _ = optimize_session(selector.session, selector, train=False)
    assert [variant.name for variant in variants] == ["torch"]


CONVOLUTION = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)

    def forward(self, x):
        return torch.relu(self.norm(self.convolution(x)))


def get_inputs():
    return [torch.randn(2, 3, 8, 8)]


def get_init_inputs():
    return []
"""


@pytest.fixture
def convolution(tmp_path):
    path = tmp_path / "problem.py"
    path.write_text(CONVOLUTION)
    return load_problem(str(path))


@pytest.mark.parametrize(
    ("channels_last_us", "names"),
    [
        (9.0, ["torch", "torch.compile", "torch, channels-last", "torch.compile, channels-last"]),
        (11.0, ["torch", "torch.compile", "torch, channels-last"]),
    ],
)
def test_convolutions_are_tried_in_channels_last_order(without_stopwatch, convolution, channels_last_us, names):
    without_stopwatch[:] = [10.0, 10.0, channels_last_us]
    selector = selector_of(convolution)
    selector.time_baselines()
    assert not selector.session.faults
    assert list(selector.variants) == names
    made, original = (
        one.convolution.weight for one in (selector._programs["torch, channels-last"], convolution.module)
    )
    assert made.is_contiguous(memory_format=torch.channels_last)
    assert original.is_contiguous()
    torch.testing.assert_close(made, original)


RETURNED = "return torch.relu(self.norm(self.convolution(x)))"
OTHERWISE = {
    "a permuted image": (f"{RETURNED}.permute(0, 2, 3, 1)", "its results have other strides"),
    "its argument changed": (f"x.mul_(2)\n        {RETURNED}", "4 outputs instead of 5"),
}


@pytest.mark.parametrize("what", OTHERWISE)
def test_a_program_that_does_otherwise_in_channels_last_order_is_not_run_in_it(without_stopwatch, tmp_path, what):
    text, reason = OTHERWISE[what]
    assert RETURNED in CONVOLUTION
    path = tmp_path / "problem.py"
    path.write_text(CONVOLUTION.replace(RETURNED, text))
    without_stopwatch[:] = [10.0, 10.0, 5.0]
    selector = selector_of(load_problem(str(path)))
    selector.time_baselines()
    assert list(selector.variants) == ["torch", "torch.compile"]
    assert selector.session.faults == [f"torch, channels-last is not used: {reason}"]
    assert not selector.options["channels_last"]


def test_kernels_are_in_the_order_in_which_torch_is_fastest(without_stopwatch, convolution):
    without_stopwatch[:] = [10.0, 10.0, 5.0, 9.0, 1.0]
    selector = selector_of(convolution)
    selector.time_baselines()
    assert selector.options == {"channels_last": True, "cudnn_benchmark": False}
    selector.session.channels_last = True
    planned(selector).time_kernels()
    assert not selector.session.faults
    assert "kernels, channels-last" in selector.variants
    assert "kernels" not in selector.variants
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        got, right = selector._programs["kernels, channels-last"](x), convolution.module(x)
    torch.testing.assert_close(got, right)
    assert got.stride() == right.stride()


def tried_on_a_gpu(monkeypatch, convolution, times_us, **given):
    """The names of the variants tried on a GPU, in this order; those without a time take ten microseconds."""
    tried = []

    def fake_try(self, variant):
        tried.append(variant.name)
        self.variants[variant.name], self.quick_us[variant.name] = variant, times_us.get(variant.name, 10.0)

    monkeypatch.setattr(ProgramSelector, "_try_graphs", lambda *_: None)
    selector = selector_of(convolution, **given)
    monkeypatch.setattr(ProgramSelector, "_try", fake_try)
    monkeypatch.setattr(ProgramSelector, "_too_large_to_check", lambda self: True)
    monkeypatch.setattr(selector.session.tuner, "device", "cuda")
    selector.session.program = convolution.module
    selector.time_baselines()
    assert tried == [name for name in ("torch", "torch.compile") if name in tried], "the kernels come first"
    selector.time_options()
    assert not selector.session.faults
    return tried, selector.options


def test_options_of_torch_are_not_tried_where_kernels_lead(monkeypatch, convolution):
    monkeypatch.setattr(ProgramSelector, "_kernels_lead", lambda self: True)
    assert tried_on_a_gpu(monkeypatch, convolution, {})[0] == ["torch", "torch.compile"]


CHANNELS_LAST, BENCHMARK = "channels-last", "cuDNN's fastest algorithms"
GREEDY = {
    "nothing helps": ({}, [f"torch, {CHANNELS_LAST}", f"torch, {BENCHMARK}"], ()),
    "the order helps": (
        {f"torch, {CHANNELS_LAST}": 8.0},
        [f"torch, {CHANNELS_LAST}", f"torch.compile, {CHANNELS_LAST}", f"torch, {CHANNELS_LAST}, {BENCHMARK}"],
        ("channels_last",),
    ),
    "the order helps torch.compile": (
        {f"torch, {CHANNELS_LAST}": 8.0, f"torch.compile, {CHANNELS_LAST}": 6.0},
        [f"torch, {CHANNELS_LAST}", f"torch.compile, {CHANNELS_LAST}", f"torch, {CHANNELS_LAST}, {BENCHMARK}"],
        ("channels_last",),
    ),
    "the algorithms help": (
        {f"torch, {BENCHMARK}": 8.0},
        [f"torch, {CHANNELS_LAST}", f"torch, {BENCHMARK}", f"torch.compile, {BENCHMARK}"],
        ("cudnn_benchmark",),
    ),
    "both help": (
        {f"torch, {CHANNELS_LAST}": 8.0, f"torch, {CHANNELS_LAST}, {BENCHMARK}": 6.0},
        [
            f"torch, {CHANNELS_LAST}",
            f"torch.compile, {CHANNELS_LAST}",
            f"torch, {CHANNELS_LAST}, {BENCHMARK}",
            f"torch.compile, {BENCHMARK}",
        ],
        ("channels_last", "cudnn_benchmark"),
    ),
}


@pytest.mark.parametrize("which", GREEDY)
def test_each_option_is_tried_with_those_that_helped_before(monkeypatch, convolution, which):
    times_us, names, used = GREEDY[which]
    tried, options = tried_on_a_gpu(monkeypatch, convolution, times_us)
    assert tried == ["torch", "torch.compile", *names]
    assert options == {name: name in used for name in ("channels_last", "cudnn_benchmark")}


def test_options_are_tried_without_torch_compile_too(monkeypatch, convolution):
    times_us = {f"torch, {CHANNELS_LAST}": 8.0}
    tried, _ = tried_on_a_gpu(monkeypatch, convolution, times_us, use_torch_compile=False)
    assert tried == ["torch", f"torch, {CHANNELS_LAST}", f"torch, {CHANNELS_LAST}, {BENCHMARK}"]


def test_where_torch_alone_cannot_be_timed_torch_compile_still_can(without_stopwatch, monkeypatch, convolution):
    times = iter([OutOfTime()])

    def fail_once(*_):
        for error in times:
            raise error
        return 10.0

    monkeypatch.setattr(ProgramSelector, "_time_us", fail_once)
    selector = selector_of(convolution)
    selector.time_baselines()
    assert list(selector.variants) == ["torch.compile"]


def test_other_programs_are_not_tried_in_channels_last_order(without_stopwatch):
    selector = selector_of(Problem.from_callable(nn.Conv2d(3, 8, 3), torch.randn(2, 3, 8, 8)), use_torch_compile=False)
    selector.time_baselines()
    assert list(selector.variants) == ["torch"], "in memory, weights are shared"


def test_only_images_have_convolutions():
    assert has_convolutions(nn.Sequential(nn.Linear(3, 3), nn.ConvTranspose3d(3, 3, 3)))
    assert not has_convolutions(nn.Sequential(nn.Linear(3, 3), nn.Conv1d(3, 3, 3)))
    assert not has_convolutions(torch.relu)


@pytest.mark.parametrize(
    ("quick_us", "tried"),
    [(10.0, ["kernels, in a CUDA graph", "torch, in a CUDA graph"]), (selection.GRAPH_BELOW_US, [])],
)
def test_on_a_gpu_the_two_best_are_tried_in_graphs_unless_they_are_long(monkeypatch, quick_us, tried):
    found = []
    monkeypatch.setattr(ProgramSelector, "_try", lambda self, variant: found.append(variant))
    selector = selector_of()
    monkeypatch.setattr(selector.session.tuner, "device", "cuda")
    for name, us in (("torch", quick_us), ("torch.compile", quick_us * 1.1), ("kernels", quick_us * 1.003)):
        selector.quick_us[name], selector.variants[name] = us, variant_of(name)
    vars(selector.session)["inputs"] = ([X], {})
    selector._kernels_generated = True
    selector._try_graphs(2)
    assert [variant.name for variant in found] == tried
    assert all(isinstance(variant.layers[-1], CudaGraphLayer) for variant in found)


def test_timing_leaves_no_traces_in_buffers(monkeypatch):
    norm = nn.BatchNorm1d(40)
    selector = selector_of(Problem.from_callable(norm, X), use_torch_compile=False)
    selector.time_baselines()
    monkeypatch.setattr(selection, "FINAL_BUDGET_S", 0.01)
    variants, rounds = selector.select()
    assert [variant.name for variant in variants] == list(rounds.timings) == ["torch"]
    assert norm.num_batches_tracked.item() == 0
    assert torch.equal(norm.running_mean, torch.zeros(40))


def test_timing_leaves_no_traces_in_inputs_that_the_program_changes():
    mean = torch.randn(40)
    selector = selector_of(Problem.from_callable(lambda x, y: x.mul_(0.9).add_(y), mean, mean / 2))
    before = mean.clone()
    selector.time_baselines()
    assert torch.equal(mean, before)
    assert set(selector.quick_us) == {"torch", "torch.compile"}
    assert not selector.session.faults
