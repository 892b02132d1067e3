"""Random programs are readable, fair, the same again, and of every kind."""

import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from random_operators import FAMILIES
from random_programs import generate, outputs_of

SEEDS = range(200)
MOST_S = 0.05


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def programs():
    return [generate(seed) for seed in SEEDS]


def results(made):
    with torch.no_grad():
        return outputs_of(made.program(*made.inputs))


def cpu_s(made):
    """What one run costs this process: other processes do not count."""
    start = time.process_time()
    results(made)
    return time.process_time() - start


def test_the_same_seed_gives_the_same_program():
    for seed in range(20):
        one, other = generate(seed), generate(seed)
        assert one.source == other.source
        assert one.families == other.families
        assert all(torch.equal(a, b) for a, b in zip(one.inputs, other.inputs, strict=True))


def test_every_kind_of_program_occurs(programs):
    families = Counter(family for made in programs for family in made.families)
    assert set(families) == set(FAMILIES)
    assert min(families.values()) >= 4
    given = {x.dtype for made in programs for x in made.inputs}
    returned = {x.dtype for made in programs for x in results(made)}
    floats = {torch.float32, torch.bfloat16, torch.float16, torch.float64}
    assert given == floats | {torch.bool}
    assert returned == floats | {torch.bool, torch.int64}
    assert {len(results(made)) for made in programs} == {1, 2, 3, 4}
    assert {x.dim() for made in programs for x in made.inputs} >= {0, 1, 2, 3, 4}
    assert max(x.shape[-1] for made in programs for x in made.inputs if x.dim()) >= 5000
    assert {len(made.families) for made in programs} == set(range(1, 13))
    assert len(programs) / 3 < sum(made.differentiable for made in programs) < len(programs)


def test_every_program_is_finite_and_leaves_its_inputs(programs):
    for made in programs:
        before = [x.clone() for x in made.inputs]
        for x in results(made):
            assert x.isfinite().all(), made
            assert 1 <= x.numel() <= 40_000, made
        assert all(torch.equal(a, b) for a, b in zip(before, made.inputs, strict=True)), made


def test_fp64_says_nearly_the_same(programs):
    for made in programs:
        for one, other in zip(results(made), outputs_of(made.wide(*made.wide_inputs)), strict=True):
            assert one.shape == other.shape, made
            if one.is_floating_point():
                assert other.dtype == torch.float64, made
                assert (one.double() - other).norm() <= 0.1 * other.norm() + 1e-4, made
            else:
                assert torch.equal(one, other), made


def test_no_answer_hangs_on_the_last_places_of_an_input(programs):
    noise = torch.Generator().manual_seed(9)
    for made in programs:
        moved = [x * (1 + 1e-6 * torch.randn(x.shape, generator=noise)) if x.is_floating_point() else x
                 for x in made.wide_inputs]  # fmt: skip
        for one, other in zip(outputs_of(made.wide(*made.wide_inputs)), outputs_of(made.wide(*moved)), strict=True):
            if one.is_floating_point():
                assert (one - other).norm() <= 1e-3 * one.norm() + 1e-6, made
            else:
                assert torch.equal(one, other), made


def test_no_answer_shares_memory_with_an_input(programs):
    for made in programs:
        owned = {x.untyped_storage().data_ptr() for x in made.inputs}
        assert not owned & {x.untyped_storage().data_ptr() for x in results(made)}, made


def test_differentiable_programs_have_gradients(programs):
    for made in programs:
        if not made.differentiable:
            continue
        leaves = [x.clone().requires_grad_() for x in made.inputs]
        outputs = outputs_of(made.program(*leaves))
        assert all(x.requires_grad for x in outputs), made
        gradients = torch.autograd.grad(outputs, leaves, [torch.ones_like(x) for x in outputs])
        assert all(gradient.isfinite().all() for gradient in gradients), made


def test_every_program_is_quick(programs):
    for made in programs:
        assert min(cpu_s(made) for _ in range(3)) < MOST_S, made


def test_a_failure_shows_the_program(programs):
    text = str(programs[3])
    assert text.startswith("# generate(3), inputs ")
    assert "def program(a" in text
    compile(text, "text", "exec")
