"""A program compared with itself must not win: the paired comparison at full length, with the real clock."""

import pytest
import torch

from kernelwright.benchmark.bench import bench
from kernelwright.measure.paired import time_variants
from kernelwright.problems import Problem

CLAIMS = ("FASTER", "SLOWER")


def program(x, y, s, b):
    return torch.relu((x + y) * s + b)


def written(folder, arguments, program, shape):
    """A problem that is its own candidate; all its arguments have one shape."""
    path = folder / "same.py"
    drawn = ", ".join(f"torch.randn({shape})" for _ in arguments.split(","))
    inputs = f"def get_inputs():\n    return [{drawn}]\n"
    path.write_text(f"import torch\n\n\ndef same({arguments}):\n    return {program}\n\n\n{inputs}")
    return str(path)


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("elements", [1000, 4 * 2**20])
def test_a_hundred_comparisons_of_a_program_with_itself_make_at_most_one_claim(elements):
    verdicts = []
    for _ in range(100):
        inputs = ([torch.randn(elements), torch.randn(elements), torch.randn(1), torch.randn(1)], {})
        variants = {"a": program, "b": program}
        rounds = time_variants(variants, inputs, device="cpu", last_cache_bytes=32 * 2**20, budget_s=1.0)
        verdicts.append(rounds.compare("a", "b").verdict)
    claims = sum(verdict in CLAIMS for verdict in verdicts)
    print(f"{elements} elements: { {v: verdicts.count(v) for v in set(verdicts)} }")
    assert claims <= 1


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_forty_process_comparisons_of_a_program_with_itself_make_no_claim(tmp_path):
    source = written(tmp_path, "x, y", "torch.relu((x + y) * 2 + 1)", "2**20")
    verdicts = []
    for _ in range(40):
        found = bench(source, source, baselines=["eager"], check=False)
        verdicts.append(found.comparisons[0].verdict)
    print({v: verdicts.count(v) for v in set(verdicts)})
    assert not any(verdict in CLAIMS for verdict in verdicts)


@pytest.mark.gpu
@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_twenty_benches_of_a_program_with_itself_on_a_device_claim_nothing(tmp_path):
    source = written(tmp_path, "x", "torch.softmax(x, -1)", "4096, 2048")
    verdicts = []
    for _ in range(20):
        found = bench(source, source, baselines=["eager"], device="cuda", pairs=5, check=False)
        verdicts.append(found.comparisons[0].verdict)
    print({v: verdicts.count(v) for v in set(verdicts)})
    assert not any(verdict in CLAIMS for verdict in verdicts)


def slower(x):
    for _ in range(4):
        x.exp()
    return (x + 1) * 2


@pytest.fixture(scope="module")
def of_live_candidates():
    problem = Problem.from_callable(lambda x: (x + 1) * 2, torch.randn(2**20))
    return bench(problem, slower, baselines=["eager"], check=False)


@pytest.mark.exhaustive
def test_of_live_candidates_the_slower_one_never_wins(of_live_candidates):
    found = of_live_candidates
    assert found.comparisons[0].verdict != "FASTER", "whatever else runs on this machine"
    assert {variant.name for variant in found.variants} == {"slower", "eager"}


@pytest.mark.exhaustive
def test_of_live_candidates_the_better_one_wins(of_live_candidates):
    """On a machine that is quiet: beside other tests the honest verdict may be UNCLEAR."""
    assert of_live_candidates.comparisons[0].verdict == "SLOWER"
