"""`guard` as the command line uses it: from a small process without torch."""

import json
import os
import subprocess
import sys

import psutil
import pytest

PRELUDE = """
import ctypes, json, os, subprocess, sys, threading, time
from kernelwright.core import progress
from kernelwright.core.errors import KernelwrightError, ProblemError
from kernelwright.sandbox import ForkServer, Limits, TaskError, run_supervised
stages = []
def ask(task, **options):
    try:
        told = run_supervised(task, on_stage=stages.append, **options).decode()
        fault = None
    except KernelwrightError as error:
        told, fault = None, [error.code, error.message, error.next, error.where, error.exit_code]
    return {"told": told, "fault": fault, "stages": stages, "torch": "torch" in sys.modules}
"""


@pytest.fixture
def ask(tmp_path):
    """Runs a script that defines `task`; its one document, and its stderr."""

    def call(body, options="", **variables):
        script = PRELUDE + body + f"\nprint(json.dumps(ask(task, {options})))\n"
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
        environment |= variables
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, env=environment, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) | {"stderr": done.stderr}

    return call


def test_bytes_come_back_and_prints_go_to_stderr(ask):
    seen = ask("def task(): print('noise'); os.write(1, b'more'); return b'answer'")
    assert seen["told"] == "answer"
    assert "noise" in seen["stderr"]
    assert "more" in seen["stderr"]


def test_stages_are_told_and_their_limit_enforced(ask):
    seen = ask("def task(): progress.report_stage('counting'); progress.report_stage('waiting', 0.2); time.sleep(1000)")
    assert seen["stages"] == ["counting", "waiting"]
    assert seen["fault"][0] == "timeout"
    assert "0.2 s at: waiting" in seen["fault"][1]


def test_a_stage_ends_the_limit_of_the_one_before(ask):
    body = "def task(): progress.report_stage('a', 0.2); progress.report_stage('b'); time.sleep(0.5); return b'done'"
    assert ask(body)["told"] == "done"


def test_stages_of_a_nursery_child_come_through(ask, tmp_path):
    (tmp_path / "inner_tasks.py").write_text(
        "from kernelwright.core import progress\ndef work(p): progress.report_stage('inside'); return {}\n"
    )
    seen = ask("""
def task():
    with ForkServer(preload=()) as fork_server:
        fork_server.run("inner_tasks:work", {}, Limits(20))
    return b"done"
""")
    assert (seen["told"], seen["stages"]) == ("done", ["inside"])


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (
            "def task(): raise ProblemError('it is empty', next='fill it', where='x.py:1')",
            "problem-error",
            "it is empty",
        ),
        ("def task(): raise TaskError('ValueError: no')", "runtime-error", "ValueError: no"),
        ("def task(): return {}['key']", "internal", "Traceback"),
        ("def task(): sys.exit(4)", "runtime-error", "sys.exit(4)"),
        ("def task(): raise KeyboardInterrupt", "runtime-error", "KeyboardInterrupt"),
        ("def task(): os._exit(5)", "crash", "exit status 5"),
        ("def task(): os.abort()", "crash", "SIGABRT"),
        ("def task(): ctypes.string_at(0)", "crash", "SIGSEGV"),
        ("def task(): return bytes(1 << 60)", "out-of-memory", "MemoryError"),
        ("def task(): os.closerange(3, 50); time.sleep(0.1); return b''", "crash", "exit status 0"),
    ],
)
def test_each_end_has_its_name(ask, body, code, words):
    seen = ask(body)
    assert seen["fault"][0] == code
    assert words in seen["fault"][1]
    assert seen["fault"][4] == (101 if code == "internal" else 2)
    assert "Traceback" not in seen["stderr"]


def test_an_error_keeps_its_next_step_and_place(ask):
    seen = ask("def task(): raise ProblemError('it is empty', next='fill it', where='x.py:1')")
    assert seen["fault"][2:4] == ["fill it", "x.py:1"]


def test_debug_shows_the_traceback(ask):
    assert "Traceback" in ask("def task(): raise ProblemError('it is empty')", "debug=True")["stderr"]


def test_the_memory_limit_ends_it(ask):
    body = """
def task():
    kept = []
    while True:
        kept.append(os.urandom(1 << 22)); time.sleep(0.002)
"""
    assert ask(body, "memory_bytes=150_000_000")["fault"][0] == "out-of-memory"


def test_commands_that_limit_their_own_memory_are_not_limited_together(ask):
    body = """
def task():
    kept = os.urandom(1 << 24)
    time.sleep(0.3)  # several samples of the memory
    return b"done"
"""
    assert ask(body, "memory_bytes=1_000_000")["fault"][0] == "out-of-memory"
    assert ask(body, "memory_bytes=1_000_000, limit_memory=False")["told"] == "done"


@pytest.mark.parametrize("end", ["return b''", "os.abort()", "time.sleep(1000)"])
def test_nothing_is_left_running(ask, tmp_path, end):
    ask(f"""
def task():
    progress.report_stage("starting", 1.0)
    one = subprocess.Popen(["sleep", "1001"])
    with open({str(tmp_path / "pids")!r}, "w") as file: file.write(str(one.pid))
    threading.Thread(target=time.sleep, args=(1000,), daemon=False).start()
    {end}
""")
    pid = int((tmp_path / "pids").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_importing_and_guarding_needs_no_torch(ask):
    assert ask("def task(): return b''")["torch"] is False


def test_allocation_and_threads_follow_the_same_policy_as_in_a_nursery(ask):
    seen = ask("def task(): return (os.environ['OMP_WAIT_POLICY'] + os.environ['THP_MEM_ALLOC_ENABLE']).encode()")
    assert seen["told"] == "PASSIVE1"


def test_what_a_person_has_set_of_the_policy_is_kept(ask):
    variables = {"OMP_WAIT_POLICY": "ACTIVE", "THP_MEM_ALLOC_ENABLE": "0"}
    seen = ask(
        """
from kernelwright.sandbox.process_limits import filter_environment
def task():
    names = ("OMP_WAIT_POLICY", "THP_MEM_ALLOC_ENABLE")
    return json.dumps([[given[name] for name in names] for given in (os.environ, filter_environment())]).encode()
""",
        **variables,
    )
    assert json.loads(seen["told"]) == [["ACTIVE", "0"]] * 2
