"""A budget says what may still start; a limit interrupts what takes too long, and leaves nothing behind."""

import math
import signal
import threading

import pytest

from kernelwright.compiler import budget
from kernelwright.compiler.budget import Budget, OutOfTime, time_limit
from kernelwright.measure.clock import wall_s


@pytest.fixture(autouse=True)
def no_other_timer():
    """Sets the timer aside with which the test runner watches this test."""
    before = signal.setitimer(signal.ITIMER_REAL, 0)
    yield
    signal.setitimer(signal.ITIMER_REAL, *before)


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until its list is changed."""
    now_s = [100.0]
    monkeypatch.setattr(budget, "wall_s", lambda: now_s[0])
    return now_s


def wait(seconds):
    end_s = wall_s() + seconds
    while wall_s() < end_s:
        pass


def test_a_budget_counts_from_its_construction_and_never_below_zero(clock):
    found = Budget(10.0)
    assert (found.spent_s, found.remaining_s) == (0.0, 10.0)
    clock[0] += 4.0
    assert (found.spent_s, found.remaining_s) == (4.0, 6.0)
    found.reserved_s = 5.0
    assert found.remaining_s == 1.0
    clock[0] += 7.0
    assert (found.spent_s, found.remaining_s) == (11.0, 0.0)


def test_a_step_without_time_is_noted_as_left_out(clock):
    found = Budget(10.0)
    assert found.allows(10.0, "all of it")
    found.reserved_s = 3.0
    assert not found.allows(7.5, "a long step")
    assert found.allows(7.0, "a shorter step")
    assert found.left_out == ["a long step"]


def test_an_infinite_budget_allows_everything(clock):
    found = Budget(math.inf)
    clock[0] += 1e9
    assert found.remaining_s == math.inf
    assert found.allows(1e9, "a long step")
    assert not found.left_out


def test_a_loop_is_interrupted_and_nothing_stays_armed():
    handler = signal.getsignal(signal.SIGALRM)
    with pytest.raises(OutOfTime), time_limit(0.02):
        wait(30)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is handler


def test_no_time_at_all_is_a_limit_too():
    with pytest.raises(OutOfTime), time_limit(0.0):
        wait(30)


def test_out_of_time_is_not_handled_as_an_exception():
    assert not issubclass(OutOfTime, Exception)


def test_a_limit_that_was_swallowed_comes_again():
    with pytest.raises(OutOfTime), time_limit(0.02):
        try:
            wait(30)
        except BaseException:
            wait(30)


@pytest.mark.parametrize("fault", [None, ValueError])
def test_a_block_that_ends_in_time_leaves_nothing_armed(fault):
    handler = signal.getsignal(signal.SIGALRM)
    try:
        with time_limit(30.0):
            assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 30.0
            if fault:
                raise fault
    except ValueError:
        assert fault
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is handler


def test_an_infinite_limit_arms_nothing():
    handler = signal.getsignal(signal.SIGALRM)
    with time_limit(math.inf):
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
        assert signal.getsignal(signal.SIGALRM) is handler


def test_a_thread_is_not_limited():
    ended = []

    def work():
        with time_limit(0.01):
            wait(0.05)
            ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ended


def test_an_outer_limit_holds_after_an_inner_one():
    with pytest.raises(OutOfTime), time_limit(0.05):
        with time_limit(30.0):
            pass
        wait(0.2)


def test_an_import_ends_before_its_block_is_interrupted(tmp_path, monkeypatch):
    (tmp_path / "slow_import.py").write_text("import time\ntime.sleep(0.1)\nwhole = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(budget, "RETRY_INTERVAL_S", 0.02)
    with pytest.raises(OutOfTime), time_limit(0.02):
        import slow_import

        wait(30)
    assert slow_import.whole
