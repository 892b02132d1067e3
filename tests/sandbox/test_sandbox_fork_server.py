"""A person's program may do anything: each end of it is one named error, and nothing is left running."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from kernelwright.core import progress
from kernelwright.core.errors import (
    CrashError,
    InternalError,
    MemoryLimitError,
    SetupError,
    SignatureError,
    TimeLimitError,
)
from kernelwright.sandbox import ForkServer, Limits, TaskError, protections

SOON = Limits(call_timeout_s=30)
TASKS = """
import ctypes, os, signal, subprocess, sys, threading, time
from kernelwright.core import progress
from kernelwright.core.errors import SignatureError

def echo(p): return p
def length(p): return [len(p["data"]), b"x" * p["back"]]
def pid(p): return os.getpid()
def exits(p): sys.exit(3)
def hard_exit(p): os._exit(7)
def interrupts(p): raise KeyboardInterrupt
def raises(p):
    raise ValueError("no such luck")
def refuses(p): raise SignatureError("takes 3, not 2", next="look at it", where="here")
def segfaults(p):
    print("about to fall", flush=True)
    ctypes.string_at(0)
def killed(p): os.kill(os.getpid(), signal.SIGKILL)
def sleeps(p): time.sleep(1000)
def hogs(p):
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1 << 20) * 8)); time.sleep(0.01)
def hogs_by_an_orphan(p):
    if not os.fork():
        if not os.fork(): hogs(p)
        os._exit(0)
    os.wait()
    time.sleep(60)
def too_much(p): return len(bytearray(1 << 60))
def torch_too_much(p):
    import torch
    return torch.empty(1 << 50).numel()
def prints(p):
    print("to stdout"); print("to stderr", file=sys.stderr); return os.read(0, 10)
def floods(p):
    for _ in range(2000): os.write(1, b"spam " * 1000)
    return 1
def surroundings(p):
    return {"env": dict(os.environ), "cwd": os.getcwd(), "inside": os.listdir("."),
            "open": sorted(int(n) for n in os.listdir("/proc/self/fd")) if os.path.isdir("/proc") else []}
def litters(p): open("left", "w").write("x"); return os.getcwd()
def closes(p): os.closerange(0, 100); return 1
def closes_and_sleeps(p): os.closerange(0, 100); time.sleep(1000)
def threads(p):
    threading.Thread(target=time.sleep, args=(1000,)).start(); return 1
def spawns(p):
    return [subprocess.Popen(["sleep", "1234"]).pid, subprocess.Popen(["sleep", "1234"], start_new_session=True).pid]
def daemonises(p):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0: time.sleep(1000)
        os._exit(0)
    return 1
def forks_twice(p): os.fork(); return 1
def unanswerable(p): return object()
def stages(p): progress.report_stage("first", 5.0); progress.report_stage("second"); return 1
def forges(p): os.write(3, b"\\xff" * 64); time.sleep(1000)
def kills_fork_server(p): os.kill(os.getppid(), signal.SIGKILL); time.sleep(1000)
"""


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "sandbox_tasks.py").write_text(TASKS)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def fork_server(tasks):
    with ForkServer(preload=()) as warm:
        yield warm


@pytest.fixture
def run(fork_server):
    """Runs a task by name, and afterwards finds only the warm process left."""

    def call(name, payload=None, limits=SOON):
        return fork_server.run(f"sandbox_tasks:{name}", payload or {}, limits)

    before = psutil.Process().children()
    yield call
    left = psutil.Process().children()
    assert len(left) <= len(before)
    assert not any(process.children() for process in left)


def test_payload_and_answer_are_trees(run):
    tree = {"a": [1, 2.5, None, True], "b": b"\x00\xff", "c": {"d": "e"}}
    assert run("echo", tree) == tree


def test_large_bytes_cross_both_ways(run):
    count, back = run("length", {"data": bytes(50_000_000), "back": 50_000_000})
    assert count == len(back) == 50_000_000


def test_every_run_has_a_fresh_child(run):
    assert run("pid") != run("pid") != os.getpid()


def test_one_child_takes_several_calls_and_keeps_what_it_imported(fork_server):
    with fork_server.fork_child(SOON) as child:
        first, second = (child.call("sandbox_tasks:pid", {}) for _ in range(2))
        with pytest.raises(TaskError):
            child.call("sandbox_tasks:raises", {})
        assert first == second == child.call("sandbox_tasks:pid", {})
    assert not psutil.pid_exists(first)


def test_one_child_at_a_time(fork_server):
    with fork_server.fork_child(SOON) as child:
        with pytest.raises(InternalError, match="one child at a time"):
            fork_server.run("sandbox_tasks:pid", {}, SOON)
        assert child.call("sandbox_tasks:echo", {}) == {}


def test_after_its_end_a_child_takes_no_call_but_the_fork_server_does(fork_server):
    with fork_server.fork_child(Limits(call_timeout_s=0.2)) as child:
        with pytest.raises(TimeLimitError):
            child.call("sandbox_tasks:sleeps", {})
        with pytest.raises(CrashError):
            child.call("sandbox_tasks:echo", {})
    assert fork_server.run("sandbox_tasks:echo", {"a": 1}, SOON) == {"a": 1}


@pytest.mark.parametrize(
    ("task", "error", "words"),
    [
        ("exits", TaskError, "sys.exit(3)"),
        ("hard_exit", CrashError, "exit status 7"),
        ("interrupts", TaskError, "KeyboardInterrupt"),
        ("raises", TaskError, "ValueError: no such luck"),
        ("segfaults", CrashError, "SIGSEGV"),
        ("killed", CrashError, "SIGKILL (perhaps the kernel's out-of-memory killer)"),
        ("too_much", MemoryLimitError, "MemoryError"),
        ("closes", CrashError, "exit status 0"),
        ("unanswerable", TaskError, "object"),
        ("forges", CrashError, "cannot be read"),
    ],
)
def test_each_end_has_its_name_and_the_next_run_works(run, task, error, words):
    with pytest.raises(error) as caught:
        run(task)
    assert words in caught.value.message
    assert run("echo", {"still": "here"}) == {"still": "here"}


def test_a_task_error_names_the_line_in_the_persons_file(run, tasks):
    with pytest.raises(TaskError) as caught:
        run("raises")
    line = TASKS.splitlines().index('    raise ValueError("no such luck")') + 1
    assert caught.value.where == f"{tasks / 'sandbox_tasks.py'}:{line}"


def test_a_crash_shows_the_tail_of_the_output(run):
    with pytest.raises(CrashError, match="about to fall") as caught:
        run("segfaults")
    assert "sandbox_tasks.py:" in caught.value.where
    assert "kernelwright/sandbox" not in caught.value.message


def test_our_own_errors_cross_whole(run):
    with pytest.raises(SignatureError) as caught:
        run("refuses")
    assert (caught.value.message, caught.value.next, caught.value.where) == ("takes 3, not 2", "look at it", "here")
    assert "sandbox_tasks.py" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("task", ["sleeps", "closes_and_sleeps"])
def test_the_time_limit_ends_it(run, task):
    with pytest.raises(TimeLimitError, match=r"0\.3 s"):
        run(task, limits=Limits(call_timeout_s=0.3))
    assert run("echo", {"a": 1}) == {"a": 1}


def test_the_memory_limit_ends_it(run):
    with pytest.raises(MemoryLimitError, match="the limit is 200 MB"):
        run("hogs", limits=Limits(call_timeout_s=60, memory_bytes=200_000_000))


def test_output_never_reaches_ours_and_stdin_is_empty(run, capfd):
    assert run("prints") == b""
    assert capfd.readouterr() == ("", "")


def test_a_flood_of_output_blocks_nobody(run):
    assert run("floods") == 1


def test_the_environment_is_stripped_and_the_folder_private(run, monkeypatch):
    seen = run("surroundings")
    assert "KERNELWRIGHT_CACHE" in seen["env"]
    assert seen["env"]["OMP_WAIT_POLICY"] == "PASSIVE"
    assert seen["env"]["THP_MEM_ALLOC_ENABLE"] == "1"
    assert "PYTEST_CURRENT_TEST" not in seen["env"]
    assert seen["env"]["HOME"] == seen["env"]["TMPDIR"] == seen["cwd"] != str(Path.cwd())
    assert seen["inside"] == []
    # 4 is the listing of /proc/self/fd itself.
    assert seen["open"] in ([0, 1, 2, 3, 4], [])


def test_the_scratch_folder_is_deleted(run):
    assert not Path(run("litters")).exists()


@pytest.mark.parametrize("task", ["threads", "spawns", "daemonises", "forks_twice"])
def test_nothing_that_it_started_is_left(run, task):
    before = asleep()
    assert run(task)
    assert asleep() <= before


def asleep():
    """Every `sleep` of the tasks above that runs on this machine; those of other tests come and go meanwhile."""
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cmdline() == ["sleep", "1234"] and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process.pid)
    return found


def test_stages_in_the_child_reach_this_process(run):
    heard = []
    progress.set_listener(lambda what, limit_s: heard.append((what, limit_s)))
    try:
        run("stages")
    finally:
        progress.set_listener(None)
    assert heard == [("first", 5.0), ("second", None)]


@pytest.mark.skipif(sys.platform != "linux", reason="needs the kernel's parent-death signal")
def test_a_killed_nursery_is_a_crash_and_the_next_run_starts_another(run):
    with pytest.raises(CrashError):
        run("kills_fork_server")
    assert run("echo", {"a": 1}) == {"a": 1}


def test_the_memory_of_what_has_lost_its_parent_counts(run):
    with pytest.raises(MemoryLimitError, match="used"):
        run("hogs_by_an_orphan", limits=Limits(call_timeout_s=60, memory_bytes=400_000_000))


def test_torch_out_of_memory_is_the_memory_limit(tasks):
    with ForkServer() as warm, pytest.raises(MemoryLimitError, match="allocate"):
        warm.run("sandbox_tasks:torch_too_much", {}, SOON)


def test_a_sandbox_that_does_not_start_is_nobodys_crash(tasks):
    with ForkServer(preload=("no_such_module",)) as warm, pytest.raises(SetupError, match="no_such_module"):
        warm.run("sandbox_tasks:echo", {}, SOON)


def test_a_sandbox_that_dies_before_the_program_is_nobodys_crash(tasks, monkeypatch):
    with ForkServer(preload=()) as warm:
        warm.run("sandbox_tasks:echo", {}, SOON)
        monkeypatch.setattr(warm, "_start", lambda: None)
        psutil.Process(warm._process.pid).kill()
        warm._process.wait()
        with pytest.raises(SetupError, match="died before it could start the program"):
            warm.run("sandbox_tasks:echo", {}, SOON)


ASKER = """
import os, signal, sys
from kernelwright.sandbox import Limits, ForkServer
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it, and so would we
with ForkServer(preload=()) as warm:
    warm.run("sandbox_tasks:echo", {}, Limits(10))
    print("ready", flush=True)
    try:
        warm.run("sandbox_tasks:spawns_and_sleeps", {}, Limits(1000))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_when_the_asker_is_interrupted_or_killed(tmp_path, number):
    (tmp_path / "sandbox_tasks.py").write_text(
        TASKS
        + textwrap.dedent("""
        def spawns_and_sleeps(p): spawns(p); open(MARK, "w").close(); time.sleep(1000)
        """).replace("MARK", repr(str(tmp_path / "mark")))
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    asker = subprocess.Popen([sys.executable, "-c", ASKER], stdout=subprocess.PIPE, text=True, env=environment)
    assert asker.stdout and asker.stdout.readline() == "ready\n"
    wait_until((tmp_path / "mark").exists)
    started = psutil.Process(asker.pid).children(recursive=True)
    assert len(started) == 4  # the fork_server, its child, and two sleeps
    asker.send_signal(number)
    asker.wait(20)
    asker.stdout.close()
    assert psutil.wait_procs(started, timeout=20)[1] == []


def wait_until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_protections_are_named():
    assert protections(Limits(call_timeout_s=60)) == (
        "own process",
        "time limit 60 s",
        "memory limit",
        "stripped environment",
        "private scratch folder",
    )
