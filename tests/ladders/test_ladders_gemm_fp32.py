"""The rungs in CUDA C++, by emulation here and under NVIDIA's sanitizer on a GPU; the climb verifies more shapes."""

import os
import shutil
import subprocess
import sys

import pytest
import torch
from tiers import fast_where

from kernelwright.core.errors import ProblemError
from kernelwright.hwcheck.ladder_counters import emulated_ratios
from kernelwright.ladders import read_rungs, task_path
from kernelwright.problems import load_candidate, load_problem
from kernelwright.problems.importing import import_file

LADDER = "gemm_fp32"
NAMES = [one.name for one in read_rungs(LADDER)]


def product(name, *given, device="cpu"):
    (one,) = (one for one in read_rungs(LADDER) if one.name == name)
    return load_candidate(str(one.path), load_problem(str(task_path(LADDER))), device).program(*given)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("skipped", fast_where([1], [0, 1]))
def test_matrices_may_begin_anywhere(name, skipped):
    m, n, k = 132, 260, 40
    a, b, c = (torch.randn(rows * columns + 1)[skipped:][: rows * columns].view(rows, columns)
               for rows, columns in ((m, k), (k, n), (m, n)))  # fmt: skip
    got = product(name, a, b, c, 0.5, 2.0)
    torch.testing.assert_close(got, torch.addmm(c, a, b, alpha=0.5, beta=2.0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("k", [1, 4, 16, 20, 231, 700])
def test_parts_of_a_tile_are_added_once_each(k):
    """Emulated, three blocks share what a chip's share: 2 tiles, 4 tiles, and 5 of which one is whole."""
    task = import_file(task_path(LADDER), ProblemError)
    for m, n in ((129, 100), (300, 300), (520, 250)):
        a, b, c, *_ = task.inputs((m, n, k))
        c.fill_(float("nan"))
        torch.testing.assert_close(product("stream_k", a, b, c, 1.0, 0.0), a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_the_counts_predict_what_coalescing_and_padding_bring():
    counts = {one.name: emulated_ratios(one) for one in read_rungs(LADDER)[:7]}
    assert counts["naive"]["sectors of a load"] > 6 * counts["coalesced"]["sectors of a load"]
    assert counts["naive"]["sectors of a store"] == 8 * counts["coalesced"]["sectors of a store"]
    padded = counts["conflict_free"]["passes over the ideal"]
    assert counts["vectorised"]["passes over the ideal"] > 1.3 * padded


@pytest.mark.gpu
@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "initcheck"])
def test_every_rung_is_clean_under_the_sanitizer(tool):
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if sanitizer is None:
        pytest.skip("no compute-sanitizer")
    command = [sanitizer, "--tool", tool, "--report-api-errors", "no", sys.executable, __file__]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "ERROR SUMMARY: 0 errors" in done.stdout or "0 hazards displayed (0 errors, 0 warnings)" in done.stdout


def _launch_every_rung():
    task = import_file(task_path(LADDER), ProblemError)
    for size in ((129, 67, 33), (33, 130, 67)):
        given = [one.cuda() if isinstance(one, torch.Tensor) else one for one in task.inputs(size, 1.25, 0.5)]
        for name in NAMES:
            product(name, *given, device="cuda")
    torch.cuda.synchronize()


if __name__ == "__main__":
    _launch_every_rung()
