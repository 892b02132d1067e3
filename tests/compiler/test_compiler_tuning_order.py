"""Which regions are tuned first, and for how long."""

import torch
from first_choice import FirstChoice, quick
from test_compiler_session import session_of

from kernelwright.compiler.tuning_order import MAX_BRIEF_S, MIN_REGION_S

X, WEIGHT = torch.randn(9, 40), torch.randn(40, 40)


class Recorder(FirstChoice):
    """Notes the regions that it is given, with the time for each; some fail when they are tuned fully."""

    compiles_ahead = True

    def __init__(self, fails=()):
        super().__init__()
        self.given, self.fails = [], fails

    def tune(self, region, reference, inputs, limit_s=0.0):
        brief = limit_s <= MAX_BRIEF_S
        self.given.append((region.name, "brief" if brief else "full"))
        if not brief and region.name in self.fails:
            raise RuntimeError("no luck")
        return super().tune(region, reference, inputs, limit_s)


def products(count):
    """A program with one region more than products."""

    def program(x, w):
        for number in range(count):
            x = torch.tanh(x * (number + 2)) @ w
        return torch.softmax(x, -1)

    return program


def tuned(count, total_s, **given):
    session = session_of(products(count), X, WEIGHT, tuner=Recorder(**given), total_s=total_s)
    with quick():
        session.make_plan()
        session.tune_regions()
    return session


def test_with_time_for_all_every_region_is_tuned_fully_at_once():
    session = tuned(2, 1000.0)
    assert {how for _, how in session.tuner.given} == {"full"}
    assert len(session.tuner.given) == 3


def test_with_little_time_every_region_has_a_kernel_before_one_is_tuned_fully():
    session = tuned(7, 8 * MIN_REGION_S)
    hows = [how for _, how in session.tuner.given]
    assert hows[:8] == ["brief"] * 8
    assert set(hows[8:]) == {"full"}
    names = [name for name, how in session.tuner.given if how == "brief"]
    assert sorted(names) == sorted(part.region.name for part in session.plan.regions)


def test_a_region_that_is_compiled_is_not_kept_waiting(monkeypatch):
    monkeypatch.setattr(Recorder, "compile_ahead", lambda self, region, count=None: [region.name])
    monkeypatch.setattr(Recorder, "is_compiled", lambda self, tasks: tasks == ["region_5"] or len(self.given) == 7)
    names = [name for name, how in tuned(7, 8 * MIN_REGION_S).tuner.given if how == "brief"]
    assert names[0] == "region_5"
    assert len(set(names)) == 8


def test_where_compilers_would_disturb_the_timing_regions_are_tuned_once(monkeypatch):
    monkeypatch.setattr(Recorder, "compiles_ahead", False)
    session = tuned(7, 8 * MIN_REGION_S)
    assert {how for _, how in session.tuner.given} == {"full"}
    assert len(session.tuner.given) == 8


def test_a_region_that_is_not_tuned_fully_keeps_its_kernel():
    session = tuned(7, 8 * MIN_REGION_S, fails=["region_3"])
    assert "region_3 is tuned briefly: RuntimeError: no luck" in session.faults
    assert {outcome.winner for outcome in session.outcomes()} == {"first"}


def test_time_is_kept_for_the_whole_program(monkeypatch):
    session = session_of(products(1), X, WEIGHT, tuner=Recorder(), total_s=100.0)
    session.make_plan()
    kept = []
    monkeypatch.setattr(session.tuner, "tune", lambda *_: kept.append(session.budget.reserved_s))
    session.tune_regions()
    assert all(reserved_s > 0 for reserved_s in kept)
    assert kept
    assert session.budget.reserved_s == 0
