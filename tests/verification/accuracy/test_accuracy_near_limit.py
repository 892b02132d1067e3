"""Near the limit of accuracy several draws decide, and nobody gains by being drawn again."""

import pytest

import kernelwright as kw
from kernelwright.core.verdict import Reason
from kernelwright.problems import load_problem
from kernelwright.sandbox import ForkServer
from kernelwright.verification.accuracy.near_limit import MAX_DRAWS, MIN_DRAWS, DrawResult, InputKind, NearLimitTracker
from kernelwright.verification.reference import Reference
from kernelwright.verification.set_plan import Variant
from kernelwright.verification.transport.runners import PRELOAD_MODULES

KIND = InputKind("normal", 7)
OVER = Reason(code="inaccurate", detail="1.2 times the limit")
PROBLEM = """
import torch
def f(x): return torch.tanh(x)
def get_inputs(): return [torch.randn(64, 64)]
def get_held_out_inputs(): return [[torch.randn(5, 40)], [torch.randn(90)]]
"""


def decided(first, more):
    """Whether a kind is rejected whose first draw and later ones have these shares; and how many were drawn."""
    near, asked = NearLimitTracker(deterministic=True), []

    def draw(number):
        asked.append(number)
        share = more[len(asked) - 1]
        if share > 1:
            near.pending[KIND] = OVER
        return DrawResult(None, share)

    near.add(KIND, first)
    if first > 1:
        near.pending[KIND] = OVER
    return near.decide(KIND, draw), len(asked), near


@pytest.mark.parametrize(
    ("first", "more", "rejected", "draws"),
    [
        (1.21, [0.3] * 4, False, 5),  # once by chance
        (0.51, [0.5] * 4, False, 5),
        (1.21, [0.5] * 14, False, 7),  # not clear after five
        (0.9, [1.1] * 14, True, 15),
        (2.0, [2.0] * 4, True, 5),
        (2.9, [0.1] * 14, False, 15),
        (2.9, [2.9, 0.1] * 7, True, 5),  # honest in every second one
        (2.9, [0.0, 0.0, 2.9] * 5, True, 5),
        (1.0, [1.01, 0.9] * 7, False, 15),
    ],
)
def test_all_draws_together_decide(first, more, rejected, draws):
    reason, asked, near = decided(first, more)
    assert (reason is not None, 1 + asked) == (rejected, draws)
    assert near.summary.input_sets == draws
    assert near.summary.sets_over_limit == sum(share > 1 for share in [first, *more][:draws])
    if reason:
        assert "1.2 times the limit" in reason.detail
        assert f"of {draws} input sets (normal)" in reason.detail


def test_what_rejects_at_once_is_not_outvoted():
    near = NearLimitTracker()
    near.add(KIND, 0.5)
    far = Reason(code="inaccurate", detail="far")
    assert near.decide(KIND, lambda number: DrawResult(far, 9.0)) is far


def test_numbers_do_not_come_twice_and_draws_are_kept():
    near, numbers = NearLimitTracker(deterministic=True), []
    for _ in range(3):
        near.add(KIND, 0.9)
        near.decide(KIND, lambda number: numbers.append(number) or DrawResult(None, 0.9))
    assert numbers == list(range(1, MAX_DRAWS))
    assert near.summary.input_sets == MAX_DRAWS + 2


def test_who_was_over_the_limit_in_one_kind_is_asked_of_all_that_came_nearly_so_far():
    near, others = NearLimitTracker(), [InputKind("sparse", 1), InputKind("offset", 2), InputKind("uniform", 8)]
    for kind, share in zip(others, (0.4, 0.8, 0.5), strict=True):
        near.add(kind, share)
    assert near.undecided_kinds() == [others[1]], "the nearest alone"
    near.add(KIND, 1.2)
    assert near.undecided_kinds() == [others[1], KIND]
    near.decide(KIND, lambda number: DrawResult(None, 0.1))
    assert near.undecided_kinds() == [others[1]], "still, whatever was drawn since"
    assert NearLimitTracker().undecided_kinds() == []


def test_where_no_more_can_be_drawn_what_is_there_decides():
    near = NearLimitTracker()
    near.pending[KIND] = OVER
    assert near.decide(KIND, lambda number: DrawResult(None, None)) is OVER
    near.add(KIND, 0.5)
    assert near.decide(KIND, lambda number: DrawResult(None, None)) is None


@pytest.fixture
def file(tmp_path):
    def write(name, text):
        (tmp_path / name).write_text("import torch\n" + text)
        return str(tmp_path / name)

    return write


def test_a_set_of_a_kind_is_drawn_again_with_other_values_and_the_same_shapes(file):
    reference = Reference(load_problem(file("f.py", PROBLEM)), "cpu", 1, perturb_parameters=False)
    planned = [one.index for one in reference.plan if one.variant is Variant.DISTRIBUTION]
    sets = [*filter(None, map(reference.draw_set, planned)), *reference.held_out_sets()]
    for drawn in sets:
        again = [reference.redraw_set(drawn.kind, number) for number in (1, 2)]
        for one in again:
            assert one.kind == drawn.kind
            assert one.inputs[0][0].shape == drawn.inputs[0][0].shape
            assert not (one.inputs[0][0] == drawn.inputs[0][0]).all()
        assert not (again[0].inputs[0][0] == again[1].inputs[0][0]).all()


NEAR = """
calls = 0
def f(x):
    global calls
    calls += 1
    return (torch.tanh(x.double()) * (1 + {error})).float()
"""


@pytest.fixture
def near(file):
    """Verifies a candidate with this relative error, which rounding blurs."""
    with ForkServer(PRELOAD_MODULES) as fork_server:
        yield lambda error, **options: kw.verify(
            file("f.py", PROBLEM), file("near.py", NEAR.format(error=error)), fork_server=fork_server, **options
        )


def error_at(near, low, high):
    """An error whose draws have a root mean square between these shares of the limit, which is proportional to it."""
    middle = (low + high) / 2
    error = middle * 1.55e-6
    for _ in range(12):
        found = near(error, seed=3)
        if found.near_limit is None:
            error *= 1.5 if found.accepted else 0.6
        elif low < found.near_limit.rms_over_limit < high:
            return error
        else:
            error *= middle / found.near_limit.rms_over_limit
    raise AssertionError(f"no error has between {low} and {high} of its limit")


@pytest.mark.slow
@pytest.mark.parametrize(("low", "high", "accepted"), [(0.6, 0.85, True), (1.15, 1.6, False)])
def test_near_the_limit_every_verdict_is_the_same(near, low, high, accepted):
    error = error_at(near, low, high)
    for found in (near(error), near(error), near(error)):
        assert found.accepted == accepted, str(found)
        assert found.near_limit.input_sets >= MIN_DRAWS
        words = "near its limit" if accepted else f"of {found.near_limit.input_sets} input sets"
        assert words in str(found).replace("\n           ", " ")


@pytest.mark.slow
def test_another_output_that_is_far_off_is_not_hidden_by_one_that_is_near(near, file):
    two = PROBLEM.replace("return torch.tanh(x)", "return torch.tanh(x), torch.tanh(x) * 2")
    error = error_at(near, 1.15, 2.5)
    text = NEAR.format(error=error) + "first = f\ndef f(x): return first(x), torch.full_like(x, 0.5)\n"
    found = kw.verify(file("two.py", two) + ":f", file("near.py", text))
    assert found.reason.code == "inaccurate"
    assert "[1]" in found.reason.detail
