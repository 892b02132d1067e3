"""Tasks beside each other; who dies is replaced."""

import os
import signal
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from kernelwright.benchmark.worker_pool import map_unordered
from kernelwright.core.errors import CrashError, InternalError, NotFoundError, UsageError


@pytest.fixture(scope="module", autouse=True)
def nobody_is_left():
    """Python keeps a process for all that it spawns; other tests count theirs."""
    yield
    resource_tracker._resource_tracker._stop()


def square(number):
    if number == 13:
        raise NotFoundError("no such number")
    if number == 17:
        raise ZeroDivisionError("nothing to divide by")
    return number * number


def die_once(mark):
    """Of the first who comes here nothing is left."""
    if not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def die(_):
    os.kill(os.getpid(), signal.SIGKILL)


def test_every_task_is_done_once_and_errors_are_answers():
    answers = dict(map_unordered(2, square, [2, 13, 5, 17]))
    assert (answers[0], answers[2]) == (4, 25)
    assert isinstance(answers[1], NotFoundError)
    assert isinstance(answers[3], InternalError)
    assert "nothing to divide by" in str(answers[3])


@pytest.mark.slow
def test_the_task_of_one_who_dies_is_done_by_another(tmp_path):
    assert dict(map_unordered(1, die_once, [str(tmp_path / "mark")])) == {0: "done"}


@pytest.mark.slow
def test_a_task_that_kills_everybody_is_an_error_of_its_own():
    answers = dict(map_unordered(1, die, [0]))
    assert isinstance(answers[0], CrashError)


def test_nobody_does_nothing():
    assert list(map_unordered(2, square, [])) == []
    with pytest.raises(UsageError, match="0 workers"):
        list(map_unordered(0, square, [1]))
