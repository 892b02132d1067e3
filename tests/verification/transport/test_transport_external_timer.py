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

from kernelwright.core.errors import CrashError, TamperingError
from kernelwright.problems import load_problem
from kernelwright.sandbox import ForkServer, Limits, can_inspect, process_memory
from kernelwright.verification.reference import Reference
from kernelwright.verification.transport import external_timer
from kernelwright.verification.transport.external_timer import realtime_priority
from kernelwright.verification.transport.runners import PRELOAD_MODULES, InspectedRunner

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_getscheduler"), reason="no such scheduling here")
needs_memory = pytest.mark.skipif(not can_inspect(), reason="memory of other processes cannot be reached here")


def standing():
    return os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK, os.sched_getparam(0).sched_priority


def test_who_went_ahead_stands_where_it_stood_whatever_happened():
    before = standing()
    with realtime_priority():
        assert standing() in ((os.SCHED_FIFO, 1), before), "root goes ahead; others are let be"
    assert standing() == before
    with pytest.raises(ZeroDivisionError), realtime_priority():
        1 / 0
    assert standing() == before


def test_what_is_started_meanwhile_does_not_go_ahead():
    with realtime_priority():
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
def fork_server():
    with ForkServer(PRELOAD_MODULES) as warm:
        yield warm


@pytest.fixture
def runner(tmp_path, fork_server):
    path = tmp_path / "problem.py"
    path.write_text(PROBLEM)
    reference = Reference(load_problem(str(path)), "cpu", seed=1, perturb_parameters=False)
    with InspectedRunner(str(path), str(path), "cpu", Limits(60.0), fork_server) as runner:
        runner.load(reference.make_inputs(0), reference.probe())
        runner.inputs = reference.make_inputs(1)
        yield runner


def killed(pid):
    """Dead when this returns, whether its parent has reaped it or not."""
    with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
        os.kill(pid, signal.SIGKILL)
        while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.001)


@needs_memory
@pytest.mark.parametrize("at", fast_first(1, ["_signal", "_start_on_host", "wait_until_ready", "_poll"]))
def test_a_process_that_dies_at_any_moment_of_a_call_has_crashed(runner, monkeypatch, at):
    watch = runner.client.timer
    usual = getattr(watch, at)

    def after_its_death(*given, **named):
        killed(watch.child.pid)
        return usual(*given, **named)

    monkeypatch.setattr(watch, at, after_its_death)
    before = standing()
    with pytest.raises(CrashError, match="SIGKILL"):
        runner.client.call(runner.inputs, read_outputs=True)
    assert standing() == before


@needs_memory
def test_a_process_that_is_dead_when_its_device_is_let_go_has_crashed(runner, monkeypatch):
    """As on a device, where the judge writes the inputs after the host has got ahead."""
    watch = runner.client.timer
    monkeypatch.setattr(watch, "_start_on_host", watch._start_on_device)
    monkeypatch.setattr(watch.memory, "flush_caches", lambda size: killed(watch.child.pid))
    with pytest.raises(CrashError, match="SIGKILL"):
        runner.client.call(runner.inputs, read_outputs=False)


@needs_memory
def test_a_call_that_ended_while_the_verifier_slept_does_not_set_the_next_sleep(runner, monkeypatch):
    """Else each call would seem to take almost as long as the one before, however short it is."""
    pauses = []
    monkeypatch.setattr(external_timer, "pause", lambda seconds: (pauses.append(seconds), time.sleep(seconds)))
    runner.client.timer._expected_s[False] = 0.02
    assert runner.client.call(runner.inputs, read_outputs=False).timed_call.last_running_us == 0
    assert max(pauses) > 0.01
    pauses.clear()
    runner.client.call(runner.inputs, read_outputs=False)
    assert max(pauses, default=0.0) < 0.01


@needs_memory
def test_inputs_that_cannot_be_written_are_no_fault_of_ours(runner, monkeypatch):
    monkeypatch.setattr(runner.client.timer, "control_block", 8)
    with pytest.raises(TamperingError, match="unmapped the memory"), runner.client._translate_write_errors():
        runner.client.timer._signal(0)


def test_what_is_asked_of_a_process_that_is_gone_has_an_answer():
    gone = os.fork()
    if not gone:
        os._exit(0)
    os.waitpid(gone, 0)
    assert process_memory.descendants(gone) == []
    assert process_memory.find_running_threads(gone) == {}
    assert process_memory.find_futex_stack(gone) is None
    assert process_memory.read_run_counts([gone]) == (0, 0)
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
