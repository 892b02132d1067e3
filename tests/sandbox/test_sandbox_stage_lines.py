"""Stages as plain lines, with a clock of the test's own."""

import io

import pytest

from kernelwright.sandbox import StageLines
from kernelwright.sandbox.stage_lines import major_stage


class Log(io.StringIO):
    """A stream, and the clock of what is written into it."""

    def __init__(self):
        super().__init__()
        self.now = 100.0
        self.lines = StageLines(self, lambda: self.now)

    def wait(self, seconds):
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            self.lines.tick()

    @property
    def text(self):
        return self.getvalue().splitlines()


def test_a_run_of_less_than_two_seconds_says_nothing():
    log = Log()
    for number in range(10):
        log.lines.stage(f"loading: {number}")
        log.wait(0.1)
    assert log.text == []


def test_each_major_stage_has_a_line_with_the_elapsed_time():
    log = Log()
    log.wait(12)
    log.lines.stage("region_0: choice 3 of 12")
    log.wait(0.1)
    log.lines.stage("region_1: choice 1 of 12")
    assert log.text == ["[  2 s] starting", "[ 12 s] region_0: choice 3 of 12", "[ 12 s] region_1: choice 1 of 12"]


def test_a_budget_is_shown_next_to_the_elapsed_time():
    log = Log()
    log.lines = StageLines(log, lambda: log.now, budget_s=10.0)
    log.wait(12)
    log.lines.stage("region_0: choice 3 of 12")
    assert log.text == ["[  2 s of 10 s] starting", "[ 12 s of 10 s] region_0: choice 3 of 12"]


def test_within_a_stage_lines_are_at_least_two_seconds_apart_and_the_last_one_is_not_lost():
    log = Log()
    for number in range(100):
        log.lines.stage(f"region_0: choice {number} of 100")
        log.wait(0.1)
    assert 3 <= len(log.text) <= 5
    log.wait(2)
    assert log.text[-1].endswith("choice 99 of 100")


def test_a_long_stage_is_repeated_every_fifteen_seconds():
    log = Log()
    log.lines.stage("timing")
    log.wait(63)
    assert [line.partition("] ")[2] for line in log.text] == ["timing"] * 5


def test_stages_that_alternate_are_throttled():
    log = Log()
    for number in range(200):
        log.lines.stage(("checking, set 1", "running, set 1")[number % 2])
        log.wait(0.1)
    assert len(log.text) <= 12


def test_a_stage_cannot_break_its_line():
    log = Log()
    log.lines.stage("loading a\n\x1b[31mb")
    log.wait(3)
    assert log.text == ["[  2 s] loading a  [31mb"]


def test_a_closed_stream_does_not_end_the_run():
    log = Log()
    log.lines.stage("timing")
    log.close()
    log.wait(60)


@pytest.mark.parametrize(
    ("what", "major"),
    [
        ("region_0: choice 3 of 12", "region_0"),
        ("3 of 40 verified, the last was a.py", "verified"),
        ("checking, input set 3", "checking"),
        ("counting the work", "counting the work"),
    ],
)
def test_the_major_stage_is_what_stays_while_counters_move(what, major):
    assert major_stage(what) == major
