"""How the judge watches."""

import os

import pytest

from kernelwright.verify.watch import ahead_of_others

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_getscheduler"), reason="no such scheduling here")


def standing():
    return os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK, os.sched_getparam(0).sched_priority


def test_who_went_ahead_stands_where_it_stood_whatever_happened():
    before = standing()
    with ahead_of_others():
        assert standing() in ((os.SCHED_FIFO, 1), before), "root goes ahead; others are let be"
    assert standing() == before
    with pytest.raises(ZeroDivisionError), ahead_of_others():
        1 / 0
    assert standing() == before


def test_what_is_started_meanwhile_does_not_go_ahead():
    with ahead_of_others():
        child = os.fork()
        if not child:
            os._exit(os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == os.SCHED_OTHER
