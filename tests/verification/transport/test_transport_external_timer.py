"""How the judge watches."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from tiers import fast_first

from kernelwright.core.errors import CrashError, ForgedError
from kernelwright.problems import load_problem
from kernelwright.sandbox import Limits, Nursery, can_inspect, process_memory
from kernelwright.verification.reference import Reference
from kernelwright.verification.transport.external_timer import ahead_of_others
from kernelwright.verification.transport.runners import PRELOAD, ByMemory

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_getscheduler"), reason="no such scheduling here")
needs_memory = pytest.mark.skipif(not can_inspect(), reason="memory of other processes cannot be reached here")


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


PROBLEM = "import torch\ndef problem(x): return x + 1\ndef get_inputs(): return [torch.randn(4, 4)]\n"
LIVES = "import torch\ndef problem(x): return x + 1\n"
AT_IMPORT = {
    "exits": ("import os\nos._exit(0)\n", "crash"),
    "leaves": ("import sys\nsys.exit()\n", "runtime-error"),
    "raises": ("raise SystemExit(3)\n", "runtime-error"),
    "kills itself": ("import os\nos.kill(os.getpid(), 9)\n", "crash"),
    "faults": ("import ctypes\nctypes.string_at(0)\n", "crash"),
}


@pytest.fixture(scope="module")
def nursery():
    with Nursery(PRELOAD) as warm:
        yield warm


@pytest.fixture
def runner(tmp_path, nursery):
    path = tmp_path / "problem.py"
    path.write_text(PROBLEM)
    reference = Reference(load_problem(str(path)), "cpu", seed=1, change_parameters=False)
    with ByMemory(str(path), str(path), "cpu", Limits(60.0), nursery) as runner:
        runner.load(reference.inputs(0), reference.probe())
        runner.fresh = reference.inputs(1)
        yield runner


def killed(pid):
    """Dead when this returns, whether its parent has reaped it or not."""
    with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
        os.kill(pid, signal.SIGKILL)
        while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.001)


@needs_memory
@pytest.mark.parametrize("at", fast_first(1, ["_say", "_begin_on_host", "is_ready", "_wait"]))
def test_a_process_that_dies_at_any_moment_of_a_call_has_crashed(runner, monkeypatch, at):
    watch = runner.line.watch
    usual = getattr(watch, at)

    def after_its_death(*given, **named):
        killed(watch.child.pid)
        return usual(*given, **named)

    monkeypatch.setattr(watch, at, after_its_death)
    before = standing()
    with pytest.raises(CrashError, match="SIGKILL"):
        runner.line.call(runner.fresh, look=True)
    assert standing() == before


@needs_memory
def test_a_process_that_is_dead_when_its_device_is_let_go_has_crashed(runner, monkeypatch):
    """As on a device, where the judge writes the inputs after the host has got ahead."""
    watch = runner.line.watch
    monkeypatch.setattr(watch, "_begin_on_host", watch._begin_on_device)
    monkeypatch.setattr(watch.reach, "forget_caches", lambda size: killed(watch.child.pid))
    with pytest.raises(CrashError, match="SIGKILL"):
        runner.line.call(runner.fresh, look=False)


@needs_memory
def test_inputs_that_cannot_be_written_are_no_fault_of_ours(runner, monkeypatch):
    monkeypatch.setattr(runner.line.watch, "mailbox", 8)
    with pytest.raises(ForgedError, match="not there"), runner.line._writing():
        runner.line.watch._say(0)


def test_what_is_asked_of_a_process_that_is_gone_has_an_answer():
    gone = os.fork()
    if not gone:
        os._exit(0)
    os.waitpid(gone, 0)
    assert process_memory.descendants(gone) == []
    assert process_memory.computing_at(gone) == {}
    assert process_memory.waiting_at(gone) is None
    assert process_memory.ran([gone]) == (0, 0)
    assert process_memory.queued_us(gone) == 0
    assert process_memory.stop(gone, gone) == [gone]
    process_memory.resume([gone])


@pytest.mark.parametrize("how", fast_first(1, AT_IMPORT))
def test_who_ends_while_it_is_imported_has_a_verdict(tmp_path, how):
    text, code = AT_IMPORT[how]
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "candidate.py").write_text(LIVES + text)
    command = [sys.executable, "-m", "kernelwright", "verify", "problem.py", "candidate.py", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["reason"]["code"] == code
