"""A fault costs the step that it is in: it is noted, and everything else goes on."""

import math
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from first_choice import FirstChoice, quick

from kernelwright.compiler.budget import Budget, OutOfTime
from kernelwright.compiler.session import OptimizationSession
from kernelwright.core.errors import ProblemError
from kernelwright.problems import Problem


@pytest.fixture(scope="module", autouse=True)
def quickly():
    with quick():
        yield


X, WEIGHT = torch.randn(9, 40), torch.randn(40, 24)


def two_regions(x, w):
    return torch.softmax(torch.tanh(x * 2) @ w, -1)


def session_of(program=two_regions, *args, tuner=None, total_s=math.inf):
    problem = Problem.from_callable(program, *(args or (X, WEIGHT)))
    return OptimizationSession(problem, tuner or FirstChoice(), Budget(total_s))


FAULTS = {
    "an error of ours": (ProblemError("no such thing", next="do another"), "no such thing"),
    "an exception": (ValueError("first line\nsecond line"), "ValueError: first line"),
    "a long one": (ValueError("x" * 300), "ValueError: " + "x" * 200),
    "an empty one": (ZeroDivisionError(), "ZeroDivisionError: "),
    "the host's memory": (MemoryError("much"), "MemoryError: much"),
    "the device's memory": (torch.OutOfMemoryError("much"), "out of device memory"),
    "out of time": (OutOfTime(), "there was not enough time"),
}


@pytest.mark.parametrize("which", FAULTS)
def test_a_fault_is_noted_with_what_it_costs(which):
    fault, text = FAULTS[which]
    session = session_of()
    with session.isolated("the step is left out"):
        raise fault
    assert session.faults == [f"the step is left out: {text}"]


def test_a_step_that_takes_too_long_is_noted():
    session = session_of()
    with session.isolated("the step is left out", limit_s=0.02):
        while True:
            pass
    assert session.faults == ["the step is left out: there was not enough time"]


@pytest.mark.parametrize("fault", [KeyboardInterrupt, SystemExit])
def test_who_stops_the_program_stops_it(fault):
    session = session_of()
    with pytest.raises(fault), session.isolated("the step is left out"):
        raise fault
    assert not session.faults


@pytest.mark.parametrize("fault", [None, ValueError, OutOfTime])
def test_buffers_are_as_before_a_step(fault):
    norm = nn.BatchNorm1d(40)
    session = session_of(norm, X)
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    with session.isolated("the step is left out"):
        norm(X)
        assert norm.num_batches_tracked.item() == 1
        if fault:
            raise fault
    torch.testing.assert_close(norm.state_dict(), before, rtol=0, atol=0)


def test_a_program_that_cannot_be_captured_has_no_kernels_and_a_note():
    def fails_within_dynamo(x):
        if torch.compiler.is_dynamo_compiling():
            raise ValueError("not here")
        return x * 2 if x.sum() > 0 else x

    session = session_of(fails_within_dynamo, X)
    session.make_plan()
    session.tune_regions()
    session.tune_gradients()
    assert (session.plan, session.kernel_layer(), session.outcomes()) == (None, None, ())
    (fault,) = session.faults
    assert fault.startswith("the program is not captured, so that no region becomes a kernel: data-dependent control")


class FailsOnce(FirstChoice):
    """Fails for the first region that it is given."""

    def __init__(self):
        super().__init__()
        self.names = []

    def tune(self, region, *args, **kwargs):
        self.names.append(region.name)
        if len(self.names) == 1:
            raise RuntimeError("no luck")
        return super().tune(region, *args, **kwargs)


def test_a_region_that_fails_stays_with_torch_and_the_other_has_its_kernel():
    session = session_of(tuner=FailsOnce())
    session.make_plan()
    session.tune_regions()
    failed, other = session.tuner.names
    assert session.faults == [f"{failed} stays with torch: RuntimeError: no luck"]
    assert [part.region.name for part in session.kernel_layer().regions] == [other]
    outcomes = {outcome.name: outcome for outcome in session.outcomes()}
    assert (outcomes[failed].winner, outcomes[failed].winner_reason) == ("torch", "not tuned")
    assert outcomes[other].winner == "first"


def test_the_region_that_moves_most_bytes_is_tuned_first():
    session = session_of(tuner=FailsOnce())
    session.make_plan()
    session.tune_regions()
    moved = {part.region.name: sum(part.region.bytes_moved) for part in session.plan.regions}
    assert session.tuner.names == sorted(moved, key=lambda name: -moved[name])


def test_regions_without_time_are_left_out_and_counted():
    session = session_of()
    session.make_plan()
    session.budget = Budget(0.0)
    session.tune_regions()
    assert session.budget.left_out == ["kernels of 2 of 2 regions"]
    assert [outcome.winner_reason for outcome in session.outcomes()] == ["not tuned"] * 2
    assert session.kernel_layer() is None


def test_inputs_that_cannot_be_recorded_leave_every_region_to_torch(monkeypatch):
    session = session_of()
    session.make_plan()
    monkeypatch.setattr("kernelwright.compiler.session.record_region_inputs", None)
    session.tune_regions()
    assert session.kernel_layer() is None
    assert session.faults[0].startswith("the inputs of the regions are not known, so that none becomes a kernel")
    assert not session.tuner.kernels


def test_a_trained_program_has_a_gradient_for_each_repetition():
    def block(x, w):
        return torch.tanh(x * 2 + 1) @ w

    w = torch.randn(40, 40, requires_grad=True)
    session = session_of(lambda x, w: block(block(block(x, w), w), w), X, w)
    session.make_plan(train=True)
    assert not session.plan.same_as
    session.tune_regions()
    session.tune_gradients()
    assert not session.faults
    names = [part.region.name for part in session.plan.regions]
    assert [gradient.region.name for gradient in session.gradients] == names[1:], "x requires no gradient"
