"""One private cache for the whole run, so that tests neither see nor touch the person's own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory):
    os.environ["KERNELWRIGHT_CACHE"] = str(tmp_path_factory.mktemp("cache"))


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("gpu") is None:
            continue
        import torch

        if not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no CUDA device here"))
        elif (arch := item.get_closest_marker("arch")) and torch.cuda.get_device_capability() < divmod(
            arch.args[0], 10
        ):
            item.add_marker(pytest.mark.skip(reason=f"needs compute capability {arch.args[0]}"))


class Answer:
    """What `kw` did: exit code, stdout, stderr, and the one document when it was asked for JSON."""

    def __init__(self, done):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def document(self):
        return json.loads(self.out)


@pytest.fixture(scope="session")
def kw(private_cache):
    """Runs the command line from the repository's root, as a person would."""

    def run(*words, cwd=ROOT, timeout=200, **environment):
        command = [sys.executable, "-m", "kernelwright", *map(str, words)]
        path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
        variables = os.environ | {"PYTHONPATH": path, "COLUMNS": "100"} | environment
        done = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=timeout)
        return Answer(done)

    return run
