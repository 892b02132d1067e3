"""Every kernel's tests, run by Triton's interpreter: a process takes one mode or the other."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
HERE = Path(__file__).parent
FILES = sorted(
    path.name
    for path in HERE.glob("test_kernels_*.py")
    if "on_device" in path.read_text() and path.name != Path(__file__).name
)
PARTS = 3
"""Each process imports torch and Triton, which takes longer than many a file."""


@pytest.mark.parametrize("part", range(PARTS))
def test_interpreted(part):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-rs",
        *(str(HERE / name) for name in FILES[part::PARTS]),
    ]
    command += ["-W", "ignore:Conversion of an array:DeprecationWarning"]  # Triton's, of numpy's
    command += ["-W", "ignore::RuntimeWarning"]  # infinities are meant
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    for mine in ("PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS"):
        environment.pop(mine, None)
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-1000:]
    assert "SKIPPED" not in run.stdout, run.stdout[-500:]
