"""Commands in processes of their own: output, end, time limit and cores."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from kernelwright.evidence import command_process
from kernelwright.evidence.command_process import CommandProcess, running_on


@pytest.fixture
def start(tmp_path):
    started = []

    def start_code(code, limit_s=60.0, cores=None):
        cores = cores or os.sched_getaffinity(0)
        started.append(CommandProcess((sys.executable, "-c", code), {"ONLY": "1"}, cores, limit_s, tmp_path))
        return started[-1]

    yield start_code
    for process in started:
        process.kill()


def wait(process):
    while not process.wait():
        pass
    return process


def test_output_errors_and_exit_code_are_kept(start):
    code = "import os, sys; print(os.environ['ONLY'], sys.stdin.read()); print('first\\nlast\\n', file=sys.stderr)"
    process = wait(start(f"{code}; sys.exit(3)"))
    assert (process.exit_code, process.timed_out) == (3, False)
    assert process.output == b"1 \n"
    assert process.last_error_line == "last"
    assert process.wall_s > 0


def test_a_process_is_killed_at_its_limit(start):
    process = wait(start("import time; time.sleep(60)", limit_s=0.0))
    assert process.timed_out
    assert process.exit_code == -signal.SIGKILL
    assert process.last_error_line == ""


def test_a_killed_command_leaves_no_descendant(start):
    code = """
import subprocess, sys, time
child = "kept = b'1' * (1 << 28); print(flush=True); import time; time.sleep(60)"
children = [subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE) for _ in range(2)]
print(*[one.pid for one in children if one.stdout.readline()], flush=True)
time.sleep(60)
"""
    process = start(code)
    while not process.output.endswith(b"\n"):
        assert not process.wait()
    process.kill()
    for pid in map(int, process.output.split()):
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_process_that_cannot_be_killed_is_left(start, monkeypatch):
    monkeypatch.setattr(command_process, "KILL_TIMEOUT_S", 0.01)
    with monkeypatch.context() as patch:
        patch.setattr(command_process, "kill_process_tree", lambda *arguments: None)
        process = wait(start("import time; time.sleep(60)", limit_s=0.0))
    assert process.timed_out
    assert process.exit_code == -signal.SIGKILL
    process.exit_code = None  # so that the fixture ends it


def test_only_the_command_runs_on_the_cores(start):
    before = os.sched_getaffinity(0)
    process = wait(start("import os; print(sorted(os.sched_getaffinity(0)))", cores={max(before)}))
    assert process.output.decode().strip() == str([max(before)])
    assert os.sched_getaffinity(0) == before
    with pytest.raises(KeyError), running_on({max(before)}):
        raise KeyError
    assert os.sched_getaffinity(0) == before


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG")
def test_a_command_dies_with_the_process_that_started_it(tmp_path):
    code = """
import os, sys
from pathlib import Path
from kernelwright.evidence.command_process import CommandProcess
command = (sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)")
process = CommandProcess(command, os.environ, os.sched_getaffinity(0), 60.0, Path(sys.argv[1]))
while not process.output.endswith(b"\\n"):
    process.wait()
os._exit(0)
"""
    subprocess.run((sys.executable, "-c", code, str(tmp_path)), check=True, timeout=60)
    pid = int((tmp_path / "stdout").read_text())
    psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=30)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
