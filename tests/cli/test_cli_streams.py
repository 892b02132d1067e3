"""What a command does whose reader leaves, or whose streams are not there; and what it says of itself."""

import os
import subprocess
import sys
from importlib.metadata import version

import pytest

import kernelwright

KW = [sys.executable, "-m", "kernelwright"]
LAYOUT = ["layout", "find_swizzle((8,64):(64,1), 2)"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (LAYOUT, 0),
        ([*LAYOUT, "--json"], 0),
        (["--help"], 0),
        (["why", "--help"], 0),
        (["--version"], 0),
        (["layout", "(4,2:(2,1)", "--json"], 2),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_a_closed_stdout_changes_no_exit_code_and_says_nothing(words, code):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*KW, *words], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (code, "")


def test_a_closed_stderr_does_not_change_the_exit_code():
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*KW, "layout", "(4,2:(2,1)"], stderr=writing, stdout=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_streams_may_be_missing(closed):
    command = f'"$0" -m kernelwright layout 4:1 {closed}'
    assert subprocess.run(["sh", "-c", command, sys.executable], capture_output=True, check=False).returncode == 0


def test_versions(kw):
    lines = kw("--version").out.splitlines()
    assert lines[0] == f"kernelwright {kernelwright.__version__}"
    assert lines[1] == f"python {sys.version.split()[0]}"
    assert lines[2] == f"torch {version('torch')}"


def test_help_says_the_exit_codes(kw):
    text = " ".join(kw("--help").out.split())
    assert all(f"{code} " in text.partition("Exit codes: ")[2] for code in (0, 1, 2, 101, 130))
    assert "SIGINT" in text


@pytest.mark.parametrize(
    ("words", "step"),
    [
        (["--bogus"], "kw --help"),
        (["nonsense"], "kw --help"),
        (["suite", "run"], "kw suite run --help"),
        (["suite", "nonsense"], "kw suite --help"),
        (["why"], "kw why --help"),
        (["verify", "a", "b", "--device", "tpu"], "kw verify --help"),
        (["layout", "4:1", "--tile", "16"], "kw layout 4:1 --json --tile 16x8"),
        (["why", "examples/train.py"], "kw why -- python examples/train.py"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_an_error_names_a_command_that_runs(kw, words, step):
    assert kw(*words, "--json").document["next"] == [step]


def test_a_sentence_is_advice(kw):
    document = kw("suite", "run", "nowhere", "--json").document
    assert document["next"] == ["kw suite --help"]
    assert document["advice"] == ["name a folder that exists: kw suite run DIR [--candidates DIR]"]
