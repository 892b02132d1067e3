"""A cache for each run, so that tests neither read nor change the user's own; and a `kw` whose imports are done.

What a compiler made is kept between runs in `KERNELWRIGHT_TESTS_COMPILED`, by default ~/.cache/kernelwright-tests; an
empty value keeps nothing. Measurements of the machine, trials, and what candidates compile are made anew in each run.
A test of what happens with an empty cache sets `KERNELWRIGHT_CACHE` to a folder of its own.
"""

import gc
import hashlib
import importlib.metadata
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from measured_memory import keep_measured_memory
from next_steps import can_run
from part import current_part, is_in_part

ROOT = Path(__file__).resolve().parents[1]
SHARED_CACHE = "KERNELWRIGHT_TESTS_CACHE"
COMPILED_CACHE = "KERNELWRIGHT_TESTS_COMPILED"
PARTS = "KERNELWRIGHT_TESTS_PARTS"
"""Into how many parts the slow tests are divided, of which one is run."""
KEPT_KINDS = ("cpp", "cuda", "owned", "triton", "inductor")
"""Kinds of cache entries whose names are digests of their sources and flags."""
MOST_ENTRIES = 3000
"""Of one kind: the sandbox links every entry of three of them for each candidate, 10 us each."""
SOURCE_PATH = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
os.environ["THP_MEM_ALLOC_ENABLE"] = "1"  # as in the sandbox: a measured machine holds for one policy of allocation
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # as there too: who waits would spin on the cores of the test beside it
# what torch compiles here is right or wrong, never fast: vectors without a trial of each, no headers compiled first, as
# every sandbox would pay for them again
os.environ |= {"TORCHINDUCTOR_VEC_ISA_OK": "1", "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}
FIRST = ("test_readme.py", "test_kernels_interpreted.py", "test_redteam_corpus.py")
"""Files with single tests of half a minute and more: begun last, one of them would leave the other worker idle."""


def pytest_configure(config):
    """Before the workers of a whole run begin: the machine is measured while it is quiet, for all of them."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if whole and getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        os.environ[SHARED_CACHE] = tempfile.mkdtemp(prefix="kernelwright-tests-")
        config.add_cleanup(lambda: shutil.rmtree(os.environ[SHARED_CACHE]))
        link_compiled(Path(os.environ[SHARED_CACHE]))
        paths = {"KERNELWRIGHT_CACHE": os.environ[SHARED_CACHE], "PYTHONPATH": SOURCE_PATH}
        measure = [sys.executable, "-m", "kernelwright", "machine"]
        subprocess.run(measure, env=os.environ | paths, stdout=subprocess.DEVNULL, check=True)


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory):
    """By a name of each worker's own, which tells its processes from those of the others."""
    cache = tmp_path_factory.mktemp("run") / "cache"
    if shared := os.environ.get(SHARED_CACHE):
        cache.symlink_to(shared)
    else:
        cache.mkdir()
        link_compiled(cache)
    os.environ["KERNELWRIGHT_CACHE"] = str(cache)
    os.environ |= {"TRITON_CACHE_DIR": str(cache / "triton"), "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor")}
    keep_measured_memory()


def link_compiled(cache):
    """Links the folders of what compilers made, which outlive the run, into a cache."""
    if not (compiled := compiled_folder()):
        return
    for kind in KEPT_KINDS:
        (compiled / kind).mkdir(parents=True, exist_ok=True)
        (cache / kind).symlink_to(compiled / kind)
        entries = sorted((compiled / kind).iterdir(), key=modification_time)
        for entry in entries[: len(entries) // 2] if len(entries) > MOST_ENTRIES else ():
            shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)


def modification_time(entry):
    try:
        return entry.lstat().st_mtime
    except FileNotFoundError:  # another worker removes the oldest entries too
        return 0.0


def compiled_folder():
    """One for each set of compilers and each month, so that old entries go; None where nothing is kept."""
    if not (root := os.environ.get(COMPILED_CACHE, str(Path.home() / ".cache" / "kernelwright-tests"))):
        return None
    versions = {dist.name: dist.version for dist in importlib.metadata.distributions()}
    compilers = [sys.version, *(f"{name} {versions.get(name)}" for name in ("torch", "triton", "nvidia-cuda-nvrtc"))]
    if cxx := shutil.which(os.environ.get("CXX", "c++")):
        compilers.append(subprocess.run([cxx, "--version"], capture_output=True, text=True, check=False).stdout)
    month = time.strftime("%Y-%m")
    for other in Path(root).glob("20??-??"):
        if other.name < month:
            shutil.rmtree(other, ignore_errors=True)
    return Path(root) / month / hashlib.sha256("\n".join(compilers).encode()).hexdigest()[:12]


def pytest_collection_finish():
    """What was imported and collected stays until the end: the garbage collector need not look through it again and
    again, which takes a third of the time of every torch.export."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config, items):
    if parts := int(os.environ.get(PARTS, "0")):
        part = current_part(parts)
        others = [one for one in items if one.get_closest_marker("slow") and not is_in_part(one.nodeid, part, parts)]
        config.hook.pytest_deselected(items=others)
        items[:] = [one for one in items if one not in set(others)]
    items.sort(key=lambda item: item.path.name not in FIRST)
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
        found = json.loads(self.out)
        for step in found["next"]:
            assert can_run(step), f"{step!r} is among the commands to run next"
        return found


@pytest.fixture(scope="session")
def kw(private_cache, tmp_path_factory):
    """Runs the command line from the repository's root, as a person would; what it imports is imported once."""
    folder = tmp_path_factory.mktemp("answers")
    variables = {name: value for name, value in os.environ.items() if name != "KERNELWRIGHT_CACHE"}
    warm = subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "warm_kw.py")],
        env=variables | {"PYTHONPATH": SOURCE_PATH, "COLUMNS": "100"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    asked = itertools.count()

    def run(*words, cwd=ROOT, **environment):
        at = next(asked)
        out, err = folder / f"{at}.out", folder / f"{at}.err"
        variables = os.environ | {"PYTHONPATH": SOURCE_PATH, "COLUMNS": "100"} | environment
        request = {
            "words": list(map(str, words)), "cwd": str(cwd), "environment": variables, "out": str(out), "err": str(err)
        }  # fmt: skip
        print(json.dumps(request), file=warm.stdin, flush=True)
        return Answer(int(warm.stdout.readline()), out.read_text(), err.read_text())

    with warm:
        yield run


@pytest.fixture
def file(tmp_path):
    """Writes a text into a file of the test's own folder; gives its path."""

    def write(name, text):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write
