"""The stages of an optimisation are timed by name, those of all regions together."""

import pytest

from kernelwright.compiler import stage_times as module
from kernelwright.compiler.stage_times import stage_times
from kernelwright.core.progress import report_stage


@pytest.fixture
def clock(monkeypatch):
    """Sets the time that the next stages start at."""
    now = [0.0]
    monkeypatch.setattr(module, "wall_s", lambda: now[0])
    return lambda time_s: now.__setitem__(0, time_s)


def test_stages_of_one_name_are_added_up(clock):
    with stage_times() as times:
        for time_s, stage in (
            (1.0, "timing the program"),
            (3.0, "region_0: config 1 of 9"),
            (8.0, "region_1: torch.compile"),
            (9.0, "checking, input set 1"),
            (10.0, "checking, input set 2"),
            (12.0, "timing 3 variants of the whole program"),
            (12.1, "done"),
        ):
            clock(time_s)
            report_stage(stage)
    found = {one.name: one.time_s for one in times.longest()}
    assert found == {"tuning the regions": 6.0, "checking": 3.0, "timing the program": 2.0, "starting": 1.0}
    assert list(found.values()) == sorted(found.values(), reverse=True)


def test_stages_after_the_block_are_not_added(clock):
    with stage_times() as times:
        report_stage("within")
    clock(5.0)
    report_stage("after")
    assert [one.name for one in times.longest()] == ["within"]
