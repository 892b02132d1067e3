"""Row values, such as a mean, that one region stores for another: equal elements leave nothing of their difference."""

import sys
import textwrap
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tiers import fast_first, slow

sys.path.insert(0, str(Path(__file__).parent))
from first_choice import FirstChoice, quick

from kernelwright.compiler.capture.capture import capture
from kernelwright.compiler.dynamo_backend import compile_with_kernels
from kernelwright.compiler.forward_codegen import ForwardCodegen, PlannedRegion
from kernelwright.compiler.kernel_source import load
from kernelwright.compiler.reference import build_reference, record_region_inputs
from kernelwright.compiler.regions.partition import plan_regions
from kernelwright.verification.quick_check import find_mismatch

HALVES = (torch.float16, torch.bfloat16)
LEVELS = torch.tensor([0.1, 3.3, 1000.1, 77.7] * 4)[:, None]


@pytest.fixture(scope="module", autouse=True)
def quickly():
    with quick(), torch.no_grad():
        yield


def equal_rows(dtype):
    return LEVELS.to(dtype).expand(16, 100).clone()


def roots(x):
    return (x.abs() + 0.1).sqrt()


def halves_of_rows(x):
    t = roots(x)
    one, other = (t - t.mean(-1, keepdim=True)).chunk(2, -1)
    return (one * one).sum(-1), other.abs()


def with_the_mean(x):
    t = roots(x)
    mean = t.mean(-1, keepdim=True)
    one, other = (t - mean).chunk(2, -1)
    return (one * one).sum(-1), other.abs(), mean


def cut_between_rows(x):
    t = roots(x)
    mean = t.mean(-1, keepdim=True)
    return (t[:8] - mean[:8]).sum(0), (t[8:] - mean[8:]).amax(0)


def of_the_largest(x):
    t = roots(x)
    one, other = (t / t.amax(-1, keepdim=True)).chunk(2, -1)
    return (1 - one).sum(-1), (other - 1).abs()


def taken_by_one_call(x):
    mean = roots(x).mean(-1)
    return F.kl_div(mean, mean.flip(0), reduction="sum"), mean.amax()


def put_together(x):
    t = roots(x)
    both = torch.cat((t.mean(-1, keepdim=True), t.amax(-1, keepdim=True)))
    return both.sum(0) * 0, (both - both).abs()


PROGRAMS = (halves_of_rows, with_the_mean, cut_between_rows, of_the_largest, put_together)


def with_kernels(program, x, left=()):
    """The program with every region as a kernel, but for those of some numbers."""
    captured = capture(program, (x,), {})
    regions, _ = plan_regions(captured.graph)
    pairs = [(PlannedRegion(region, tuple(nodes)), FirstChoice().first(region)) for region, nodes in regions]
    assert len(pairs) > 1
    pairs = [pair for at, pair in enumerate(pairs) if at not in left]
    forward = ForwardCodegen(captured, [part for part, _ in pairs])
    body = textwrap.indent("\n".join(forward.lines("self")), "    ")
    kernels = FirstChoice.backend.emit_module([kernel for _, kernel in pairs])
    return load(f"{kernels}\n\ndef forward(x):\n{body}\n").forward


@pytest.mark.parametrize("dtype", fast_first(1, [*HALVES, torch.float32]))
@pytest.mark.parametrize("program", PROGRAMS)
def test_equal_elements_are_their_mean_in_another_region(program, dtype):
    x = equal_rows(dtype)
    difference, other, *mean = with_kernels(program, x)(x)
    assert not difference.any() and not other.any()
    assert all(torch.equal(value, roots(x)[:, :1]) for value in mean)


def test_a_row_value_that_the_program_returns_keeps_its_dtype():
    x = equal_rows(torch.float16)
    assert [value.dtype for value in with_kernels(with_the_mean, x)(x)] == [torch.float16] * 3


def test_a_row_value_is_stored_in_float32_only_for_other_regions():
    regions, _ = plan_regions(capture(halves_of_rows, (equal_rows(torch.float16),), {}).graph)
    stored = {store.buffer: store.dtype for region, _ in regions for store in region.stores}
    assert sorted(stored.values()) == ["float16", "float16", "float32"]
    assert {load.dtype for region, _ in regions for load in region.loads if load.buffer in stored} == {"float32"}


@pytest.mark.parametrize("left", [(0,), *map(slow, [((1,),), ((0, 1),), ((1, 2),)])])
@pytest.mark.parametrize("program", [*PROGRAMS, taken_by_one_call])
def test_a_region_that_is_left_to_torch_gives_and_takes_halves(program, left):
    x = torch.randn(16, 100, generator=torch.Generator().manual_seed(0)).half()
    got, right = with_kernels(program, x, left)(x), program(x.double())
    for one, other in zip(got, right, strict=True):
        torch.testing.assert_close(one, other.half(), atol=2e-2, rtol=2e-2)


def test_what_no_region_stores_in_float32_is_not_cast():
    captured = capture(halves_of_rows, (equal_rows(torch.float16),), {})
    (_, *readers), _ = plan_regions(captured.graph)
    assert not any("_to_copy" in line for line in ForwardCodegen(captured, []).lines("self"))
    some = [PlannedRegion(region, tuple(nodes)) for region, nodes in readers[:1]]
    assert sum("_to_copy" in line for line in ForwardCodegen(captured, some).lines("self")) == 1


def test_regions_agree_with_torch_about_what_is_stored_in_float32():
    captured = capture(halves_of_rows, (equal_rows(torch.float16),), {})
    x = torch.randn(16, 100, generator=torch.Generator().manual_seed(0)).half()
    for region, nodes in plan_regions(captured.graph)[0]:
        part, kernel = PlannedRegion(region, tuple(nodes)), FirstChoice().first(region)
        (given,) = record_region_inputs(captured, [part], [x])
        own = getattr(load(FirstChoice.backend.emit_module([kernel])), region.name)
        assert find_mismatch(build_reference(captured, part), own, given) is None


def test_gradients_pass_through_what_is_stored_in_float32():
    leaf = torch.randn(16, 100, generator=torch.Generator().manual_seed(0)).half().requires_grad_()
    wide = leaf.detach().double().requires_grad_()
    for x, run in (
        (leaf, torch.compile(halves_of_rows, backend=compile_with_kernels, dynamic=False)),
        (wide, halves_of_rows),
    ):
        with torch.enable_grad():
            sum(value.sum() for value in run(x)).backward()
    torch.testing.assert_close(leaf.grad, wide.grad.half(), atol=1e-2, rtol=1e-2)
