"""Every kernel's tests, run by Triton's interpreter: a process takes one mode or the other."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiers import slow

pytest.importorskip("triton")
HERE = Path(__file__).parent
FILES = sorted(
    str(path)
    for path in (*HERE.glob("test_kernels_*.py"), *HERE.parent.glob("models/test_models_*.py"))
    if "on_device" in path.read_text() and path.name != Path(__file__).name
)
PARTS = {"not slow": 1, "slow": 2}
"""Processes of each tier, of which every one imports torch and Triton."""


@pytest.mark.parametrize(("tier", "part"), [("not slow", 0), *(slow(("slow", part)) for part in range(PARTS["slow"]))])
def test_interpreted(tier, part):
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
        "-m",
        f"{tier} and not exhaustive",
        *FILES[part :: PARTS[tier]],
    ]
    command += ["-W", "ignore:Conversion of an array:DeprecationWarning"]  # Triton's, of numpy's
    command += ["-W", "ignore::RuntimeWarning"]  # infinities are meant
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    for mine in ("PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS"):
        environment.pop(mine, None)
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-1000:]
    assert "SKIPPED" not in run.stdout, run.stdout[-500:]
