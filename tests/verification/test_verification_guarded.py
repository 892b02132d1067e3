"""A verification as the command line runs it: in a guarded child, which starts the candidate's own process."""

import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

SCRIPT = """
import json, sys
from kernelwright.core.document import encode
from kernelwright.core.errors import KernelwrightError
from kernelwright.sandbox import run_supervised
def task():
    import kernelwright as kw
    return encode(kw.verify("f.py", "g.py", sets=1, call_timeout_s=float(sys.argv[1]))).encode()
stages = []
try:
    told = json.loads(run_supervised(task, on_stage=stages.append))
except KernelwrightError as error:
    told = {"code": error.code, "message": error.message, "where": error.where}
print(json.dumps(told | {"stages": stages}))
"""
EXHAUSTIVE = (
    pytest.mark.exhaustive
)  # each costs a process that loads torch; what they check is checked in tests/sandbox too
HONEST = "def f(x): return x + 1\n"
INPUTS = "import torch\ndef get_inputs(): return [torch.randn(9)]\n"
SPAWNS = """
import os, subprocess, time
def f(x):
    one = subprocess.Popen(["sleep", "1000"])
    with open(PIDS, "w") as file: file.write(f"{os.getpid()} {os.getppid()} {one.pid} {os.getcwd()} ")
    time.sleep(1000)
"""


@pytest.fixture
def start(tmp_path):
    """Starts the script on a problem and a candidate."""

    def call(problem, candidate, time_s=30.0):
        (tmp_path / "f.py").write_text(INPUTS + problem)
        (tmp_path / "g.py").write_text(candidate)
        command = [sys.executable, "-c", SCRIPT, str(time_s)]
        return subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
        )

    return call


def document(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return json.loads(out)


def test_a_verdict_and_its_stages_come_through(start):
    seen = document(start("def f(x): print('loud'); return 1 + x\n", HONEST))
    assert seen["accepted"]
    assert seen["stages"][:3] == ["loading the problem", "running the reference", "loading the candidate"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "code", "words"),
    [
        ("def f(x):\n    while True: pass\n", "timeout", "at: running the reference"),
        pytest.param(
            "import time\ntime.sleep(1000)\ndef f(x): return x\n",
            "timeout",
            "at: loading the problem",
            marks=EXHAUSTIVE,
        ),
        pytest.param("import os\ndef f(x): os.abort()\n", "crash", "SIGABRT", marks=EXHAUSTIVE),
        ("def f(x): return x.expand(1 << 50, 9).clone()\n", "out-of-memory", "the reference ran out of memory"),
    ],
)
def test_a_problem_that_never_ends_or_dies_is_one_clear_error(start, problem, code, words):
    seen = document(start(problem, HONEST, time_s=1.0 if code == "timeout" else 30.0))
    assert (seen["code"], words in seen["message"]) == (code, True), seen


@pytest.mark.parametrize(
    "end", [pytest.param("the candidate's time", marks=EXHAUSTIVE), pytest.param("interrupt", marks=EXHAUSTIVE), "kill"]
)
def test_nothing_is_left_running(start, end):
    name = f"pids-{secrets.token_hex(8)}"
    own_limit = end == "the candidate's time"
    process = start(HONEST, SPAWNS.replace("PIDS", repr(name)), time_s=3.0 if own_limit else 1000)
    found = wait_until(lambda: [*Path(tempfile.gettempdir()).glob(f"kernelwright-*/{name}")])
    wait_until(lambda: found[0].read_text().endswith(" "))
    *numbers, scratch = found[0].read_text().split()
    started = [psutil.Process(int(pid)) for pid in numbers]
    if own_limit:
        assert document(process)["reason"]["code"] == "timeout"
    else:
        process.send_signal(2 if end == "interrupt" else 9)
        process.communicate(timeout=60)
    assert psutil.wait_procs(started, timeout=30)[1] == []
    assert not Path(scratch).exists()


def wait_until(condition):
    deadline = time.monotonic() + 90
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


@pytest.mark.exhaustive
def test_scratch_folders_are_gone(start, tmp_path):
    candidate = "import os\nopen(MARK, 'w').write(os.getcwd())\ndef f(x): return x + 1\n"
    assert document(start(HONEST, candidate.replace("MARK", repr(str(tmp_path / "mark")))))["accepted"]
    assert not Path((tmp_path / "mark").read_text()).exists()
