"""`kw optimize` is killed at moments spread over its run: nothing broken stays, and the next run succeeds."""

import ast
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
PROBLEM = """import torch


def work(x, y):
    return torch.softmax(x * y + 1, -1) * 2


def get_inputs():
    return [torch.randn(64, 256), torch.randn(256)]
"""
NUM_MOMENTS, SEED = int(os.environ.get("KW_TEST_MOMENTS", "3")), 20
"""Each takes twenty seconds: ten are for a person who changes how a run ends."""
LONGEST_S = 120.0
ORPHANS_END_S = 10.0
"""A server that is importing torch, two seconds on an idle machine, ends when it has; all others end at once."""


def start(folder):
    """`kw optimize` in a session and with a cache of its own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "KERNELWRIGHT_CACHE": str(folder / "cache")}
    environment |= {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache" / "inductor"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "kernelwright", "optimize", "work.py", "--budget", "20", "--json"]
    streams = folder / "streams"
    streams.mkdir(exist_ok=True)
    with (streams / "out").open("w") as out, (streams / "err").open("w") as err:  # pipes would wait for orphans
        return subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, stdout=out, stderr=err)


def read(folder, stream):
    return (folder / "streams" / stream).read_text()


def finish(folder):
    """An uninterrupted run; returns its duration in seconds."""
    start_s = time.monotonic()
    assert start(folder).wait(LONGEST_S) == 0, read(folder, "err")
    assert json.loads(read(folder, "out"))["verdict"]["accepted"]
    return time.monotonic() - start_s


def processes_of(folder, session):
    """Living processes of a session, or with the folder's cache."""
    found = []
    for process in psutil.process_iter():
        try:
            own = process.environ().get("KERNELWRIGHT_CACHE") == str(folder / "cache")
            if (own or os.getsid(process.pid) == session) and process.status() != psutil.STATUS_ZOMBIE:
                found.append((process.pid, " ".join(process.cmdline())[:200]))
        except (psutil.Error, ProcessLookupError):
            continue
    return found


def wait_for_end(folder, session):
    """The processes that do not end by themselves."""
    deadline_s = time.monotonic() + ORPHANS_END_S
    while (left := processes_of(folder, session)) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    return left


def assert_nothing_broken(folder):
    files = {path.name for path in folder.iterdir() if path.is_file()}
    assert files <= {"work.py", "work_optimized.py"}
    if "work_optimized.py" in files:
        tree = ast.parse((folder / "work_optimized.py").read_text())
        assert isinstance(tree.body[-1], ast.ClassDef)
        assert tree.body[-1].name == "ModelNew"
        (folder / "work_optimized.py").unlink()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_optimisation_can_be_killed_at_any_moment(tmp_path, kw):
    (tmp_path / "work.py").write_text(PROBLEM)
    assert kw("machine").code == 0  # once for the whole run: it takes longer than all else here
    shutil.copytree(Path(os.environ["KERNELWRIGHT_CACHE"]) / "machine", tmp_path / "cache" / "machine")
    finish(tmp_path)
    assert_nothing_broken(tmp_path)
    whole_s = finish(tmp_path)
    drawn = random.Random(SEED)
    for at in range(NUM_MOMENTS):
        process = start(tmp_path)
        moment_s = whole_s * (at + drawn.random()) / NUM_MOMENTS
        time.sleep(moment_s)
        how = signal.SIGKILL if at % 2 else signal.SIGINT
        process.send_signal(how)
        process.wait(LONGEST_S)
        err = read(tmp_path, "err")
        where = f"{how.name} after {moment_s:.1f} of {whole_s:.1f} s: {err[-2000:]}"
        assert not wait_for_end(tmp_path, process.pid), where
        assert "Traceback" not in err, where
        assert_nothing_broken(tmp_path)
    finish(tmp_path)
