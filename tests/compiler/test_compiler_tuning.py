"""A region's kernels are tried, timed and checked; what was tried is kept, and a gain that is not sure is none."""

import sys
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from fake_timings import rounds_of
from first_choice import FirstChoice, quick

from kernelwright.compiler import tuning
from kernelwright.compiler.capture.capture import capture
from kernelwright.compiler.forward_codegen import PlannedRegion
from kernelwright.compiler.reference import build_reference
from kernelwright.compiler.regions.partition import plan_regions
from kernelwright.compiler.trial_store import TrialStore
from kernelwright.compiler.tuning import Tuner
from kernelwright.core.diagnosis import Floor
from kernelwright.core.optimization import TORCH, TORCH_COMPILE, Attempt
from kernelwright.machines import machine_from_spec
from kernelwright.measure.paired import InterleavedTimings


@pytest.fixture(scope="module", autouse=True)
def quickly():
    with quick():
        yield


class Counted:
    """A generator that counts what it loads."""

    def __init__(self, generator):
        self.generator, self.loaded = generator, 0

    def __getattr__(self, name):
        return getattr(self.generator, name)

    def load(self, text):
        self.loaded += 1
        return self.generator.load(text)


@pytest.fixture
def region(tmp_path, monkeypatch):
    """With a cache of its own: the run's is shared by all workers, and another's trial would be found in it."""
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))
    x = torch.randn(64, 40)
    with torch.no_grad():
        captured = capture(lambda x: torch.softmax(x * 2, -1), (x,), {})
    ((found, nodes),), _ = plan_regions(captured.graph)
    return found, build_reference(captured, PlannedRegion(found, tuple(nodes))), [x]


def tuned(region, monkeypatch):
    glances = []
    tuner = Tuner(FirstChoice.backend, "cpu", machine_from_spec("h200"), use_torch_compile=False, budget_s=0.05)
    monkeypatch.setattr(Tuner, "_quick_time_us", lambda self, call, given: glances.append(call) or 10.0 + len(glances))
    with torch.no_grad():
        return tuner.tune(*region), len(glances)


def test_a_second_run_times_no_choice_again(region, monkeypatch):
    first, glances = tuned(region, monkeypatch)
    choices = len(FirstChoice.backend.generate_configs(region[0]))
    assert glances == choices + 1, "every choice, and torch's own"
    second, glances = tuned(region, monkeypatch)
    assert glances == 1, "torch's own"
    assert [one.name for one in first.outcome.attempts] == [one.name for one in second.outcome.attempts]


def test_a_corrupted_trial_is_made_again(region, monkeypatch):
    tuned(region, monkeypatch)
    folder = TrialStore(region[0], machine_from_spec("h200"))._path("").parent
    for file, text in zip(sorted(folder.iterdir()), ["", "{", '{"name": 3}', "[]", "\0"] * 20, strict=False):
        file.write_text(text)
    _, glances = tuned(region, monkeypatch)
    assert glances > 1
    assert tuned(region, monkeypatch)[1] == 1


def test_trials_of_another_machine_are_not_believed(region, monkeypatch):
    tuned(region, monkeypatch)
    kept = TrialStore(region[0], machine_from_spec("h200"))._path("source")
    assert kept != TrialStore(region[0], machine_from_spec("b200"))._path("source")


class Broken(Counted):
    """Fails when a kernel is loaded, or when it is called for the first time."""

    def __init__(self, generator, loads):
        super().__init__(generator)
        self.loads = loads

    def load(self, text):
        module = self.generator.load(text) if self.loads else self.refuse()
        vars(module)["region_0"] = self.refuse
        return module

    def refuse(self, *_):
        raise RuntimeError("out of memory")


@pytest.mark.parametrize("loads", [False, True])
def test_a_choice_that_fails_is_an_attempt_and_no_end(region, monkeypatch, loads):
    monkeypatch.setattr(Tuner, "_quick_time_us", lambda self, call, given: len(str(call(*given))) and 10.0)
    tuner = Tuner(
        Broken(FirstChoice.backend, loads), "cpu", machine_from_spec("h200"), use_torch_compile=False, budget_s=0.05
    )
    with torch.no_grad():
        found = tuner.tune(*region)
    assert found.kernel is None
    assert found.outcome.winner == "torch"
    failed = [one for one in found.outcome.attempts if one.name != "torch"]
    assert failed and all("out of memory" in one.reason for one in failed)


AT_FLOOR = Floor(time_us=20.0, limiter="DRAM", memory_us=20.0, compute_us=0.0, provenance="datasheet")
"""Above what `tuned` sees of torch."""


def fixed(monkeypatch, choices_us, clock="events"):
    """Every choice takes a time of its own, torch.compile the last, and torch 100 us, give or take a thousandth."""

    def fake_time_variants(variants, *_, **__):
        own = [name for name in variants if name != TORCH]
        middle = {**dict(zip(own, choices_us, strict=False)), TORCH: 100.0}
        return rounds_of({name: middle[name] for name in variants}, clock)

    monkeypatch.setattr(tuning, "time_variants", fake_time_variants)


@pytest.mark.parametrize(
    ("choices_us", "own"), [((99.0, 200.0, 200.0), True), ((99.7, 99.8, 99.9), False), ((100.0, 101.0, 99.6), False)]
)
def test_a_kernel_has_to_be_surely_faster_than_torch_by_half_a_percent(region, monkeypatch, choices_us, own):
    fixed(monkeypatch, choices_us)
    found = tuned(region, monkeypatch)[0]
    assert (found.outcome.winner != TORCH) == own
    assert found.outcome.after_us == (99.0 if own else 100.0)


@pytest.mark.parametrize(("clock", "wins"), [("graph", False), ("events", True)])
def test_what_a_graph_hides_of_torch_compile_is_said_beside_its_time(region, monkeypatch, clock, wins):
    finalists = len(FirstChoice.backend.generate_configs(region[0])[: tuning.NUM_FINALISTS])
    fixed(monkeypatch, (90.0,) * finalists + (80.0,), clock)
    compiled = object()
    monkeypatch.setattr(torch, "compile", lambda *_, **__: compiled)
    monkeypatch.setattr(Tuner, "_quick_time_us", lambda self, call, *_: 44.0 if call is compiled else 12.0)
    found = Tuner(FirstChoice.backend, "cpu", machine_from_spec("h200")).tune(*region).outcome
    *_, last = found.attempts
    assert (found.winner == TORCH_COMPILE) == wins
    assert (last.name, last.time_us, "44 us" in last.reason) == (TORCH_COMPILE, 80.0, not wins)
    assert wins or TORCH_COMPILE not in found.winner_reason


def on_a_gpu(monkeypatch, call_us, alone_us):
    """A tuner whose kernels all take the host as long as `call_us`, and the device what `alone_us` says, in turn."""
    alone, timed = cycle(alone_us), []
    monkeypatch.setattr(Tuner, "_quick_time_us", lambda self, call, given: call_us)
    monkeypatch.setattr(tuning, "measure_in_graph_us", lambda call: next(alone))
    fixed(monkeypatch, (20.0, 20.0, 20.0))
    fake_time_variants = tuning.time_variants
    monkeypatch.setattr(
        tuning,
        "time_variants",
        lambda variants, *_, **__: timed.append([*variants][:-1]) or fake_time_variants(variants),
    )
    return Tuner(FirstChoice.backend, "cuda", machine_from_spec("h200"), use_torch_compile=False, budget_s=0.05), timed


@pytest.mark.parametrize("call_us", [9.0, 40.0])
@pytest.mark.parametrize(("alone_us", "count"), [((4.0, 3.0), 1), ((None,), 2), ((4.0, None), 2)])
def test_of_kernels_that_a_call_hides_the_devices_time_decides(region, monkeypatch, call_us, alone_us, count):
    tuner, timed = on_a_gpu(monkeypatch, call_us, alone_us)
    with torch.no_grad():
        found = tuner.tune(*region).outcome
    assert len(timed[0]) == count
    assert [one.device_time_us for one in found.attempts[:2]] == [*alone_us, None][:2]
    if count == 1:
        assert timed[0] == [found.attempts[1].name] == [found.winner]


def test_where_the_shortest_kernel_is_wrong_the_next_takes_its_place(region, monkeypatch):
    tuner, timed = on_a_gpu(monkeypatch, 9.0, (4.0, 3.0))
    answers = iter([SimpleNamespace(detail="off by 3"), None])
    monkeypatch.setattr(tuning, "find_mismatch", lambda *_: next(answers))
    with torch.no_grad():
        found = tuner.tune(*region).outcome
    first, second = found.attempts[:2]
    assert (second.accepted, second.reason, first.accepted) == (False, "off by 3", True)
    assert timed[0] == [first.name] == [found.winner]


def test_trials_without_the_devices_time_are_made_again(region, monkeypatch):
    with torch.no_grad():
        on_a_gpu(monkeypatch, 9.0, (None,))[0].tune(*region)
        second = on_a_gpu(monkeypatch, 9.0, (4.0, 3.0))[0]
        assert [one.device_time_us for one in second.tune(*region).outcome.attempts[:2]] == [4.0, 3.0]
        third = on_a_gpu(monkeypatch, 9.0, (1.0,))[0]
        assert [one.device_time_us for one in third.tune(*region).outcome.attempts[:2]] == [4.0, 3.0]
    assert third.notes()


def test_a_row_in_parts_costs_the_host_a_launch_more():
    tuner = Tuner(FirstChoice.backend, "cuda", machine_from_spec("h200"))
    whole, parts = (Attempt(name="a", config={"num_splits": count}, time_us=4.0) for count in (1, 8))
    assert tuner._cost_us(whole) == 4.0 < tuner._cost_us(parts)
    assert Tuner(FirstChoice.backend, "cpu", machine_from_spec("h200"))._cost_us(parts) == 4.0


def test_a_gain_that_is_not_sure_is_none(region, monkeypatch):
    fixed(monkeypatch, (98.0, 98.5, 98.7))
    monkeypatch.setattr(InterleavedTimings, "compare", lambda *_: SimpleNamespace(low=0.99, ratio=1.02))
    assert tuned(region, monkeypatch)[0].outcome.winner == TORCH


def test_what_runs_at_the_speed_of_a_copy_is_tried_where_the_datasheet_leaves_room(region, monkeypatch):
    monkeypatch.setattr(tuning, "floor", lambda *_, **__: AT_FLOOR)
    assert len(tuned(region, monkeypatch)[0].outcome.attempts) > 1
    monkeypatch.setattr(Tuner, "_quick_time_us", lambda self, call, given: 10.0)
    bare = msgspec.structs.replace(machine_from_spec("h200"), spec=None)
    tuner = Tuner(FirstChoice.backend, "cpu", bare, use_torch_compile=False, budget_s=0.05)
    with torch.no_grad():
        found = tuner.tune(*region)
    assert (found.kernel, found.outcome.attempts) == (None, ())
    assert "x its lower bound" in found.outcome.winner_reason


def test_out_of_time_one_choice_that_works_is_tried_and_no_torch_compile(region, monkeypatch):
    monkeypatch.setattr(Tuner, "_quick_time_us", lambda self, call, given: 10.0)
    monkeypatch.setattr(torch, "compile", lambda *_, **__: pytest.fail("there is no time for torch.compile"))
    tuner = Tuner(FirstChoice.backend, "cpu", machine_from_spec("h200"), budget_s=0.05)
    with torch.no_grad():
        found = tuner.tune(*region, limit_s=0.0)
    tried = [one for one in found.outcome.attempts if one.name != TORCH]
    assert len(tried) == 1 < len(FirstChoice.backend.generate_configs(region[0]))
    assert tried[0].time_us
