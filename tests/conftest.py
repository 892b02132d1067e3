"""One private cache for the whole run, so that tests neither see nor touch the person's own."""

import itertools
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

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def document(self):
        return json.loads(self.out)


@pytest.fixture(scope="module")
def kw(private_cache, tmp_path_factory):
    """Runs the command line from the repository's root, as a person would; what it imports is imported once."""
    folder = tmp_path_factory.mktemp("answers")
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    variables = {name: value for name, value in os.environ.items() if name != "KERNELWRIGHT_CACHE"}
    warm = subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "warm_kw.py")],
        env=variables | {"PYTHONPATH": path, "COLUMNS": "100"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    asked = itertools.count()

    def run(*words, cwd=ROOT, **environment):
        at = next(asked)
        out, err = folder / f"{at}.out", folder / f"{at}.err"
        variables = os.environ | {"PYTHONPATH": path, "COLUMNS": "100"} | environment
        request = {
            "words": list(map(str, words)), "cwd": str(cwd), "environment": variables, "out": str(out), "err": str(err)
        }  # fmt: skip
        print(json.dumps(request), file=warm.stdin, flush=True)
        return Answer(int(warm.stdout.readline()), out.read_text(), err.read_text())

    with warm:
        yield run
