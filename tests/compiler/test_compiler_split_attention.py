"""FP32 attention on tensor cores: interpreted, as accurate as torch's; and machine code for a GPU that is not here."""

import sys
from pathlib import Path

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as attend

sys.path.insert(0, str(Path(__file__).parent))
from triton_interpreter import compiled, interpret, module_of, report_cases, selected_cases

from kernelwright.compiler.capture.target_device import capturing_for
from kernelwright.compiler.library.attention import generate_attention_configs, print_attention
from kernelwright.compiler.planning import plan_program
from kernelwright.compiler.regions.call import CallRegion
from kernelwright.compiler.triton.attention import AttentionTiles

SMALL = AttentionTiles(BLOCK_M=16, BLOCK_N=16, num_warps=4, num_stages=2)


def normal(*shape, scale=1.0, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


def heads_of(x, heads):
    """[images, rows, heads * elements] as the heads of attention, which are views."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def plain(q, k, v):
    return attend(q, k, v)


def causal(q, k, v):
    return attend(q, k, v, is_causal=True)


def scaled(q, k, v):
    return attend(q, k, v, scale=0.3)


def masked(q, k, v, mask):
    return attend(q, k, v, attn_mask=mask)


def same_tensor(x):
    return attend(x, x, x)


def views(q, k, v):
    return attend(heads_of(q, 2), heads_of(k, 2), heads_of(v, 2))


FOUR = [normal(2, 3, 20, 8, seed=seed) for seed in range(3)]
PROGRAMS = {
    "plain": (plain, *FOUR),
    "whole tiles": (plain, *(normal(1, 2, 32, 16, seed=seed) for seed in range(3))),
    "causal": (causal, *FOUR),
    "fewer keys": (causal, FOUR[0], *(normal(2, 3, 9, 8, seed=seed) for seed in (5, 6))),
    "scaled": (scaled, *FOUR),
    "wide values": (plain, *FOUR[:2], normal(2, 3, 20, 24, seed=7)),
    "bool mask": (masked, *FOUR, normal(20, 20, seed=8) > -0.5),
    "mask of an image": (masked, *FOUR, (normal(2, 1, 1, 20, seed=8) > -0.5)),
    "float mask": (masked, *FOUR, normal(1, 3, 20, 20, seed=9)),
    "hidden rows": (masked, *FOUR, torch.arange(20)[:, None] > torch.arange(20)[None, :]),
    "same tensor": (same_tensor, FOUR[0]),
    "views": (views, *(normal(2, 18, 40, seed=seed) for seed in range(3))),
    "expanded": (plain, FOUR[0], *(normal(2, 1, 20, 8, seed=seed).expand(2, 3, 20, 8) for seed in (3, 4))),
    "large": (plain, normal(1, 2, 20, 8, scale=20.0), normal(1, 2, 20, 8, scale=3.0, seed=1), FOUR[2][:1, :2] * 1e20),
    "near the end of the range": (plain, *FOUR[:2], FOUR[2] * 2.0**120),
    "subnormal": (plain, *FOUR[:2], FOUR[2] * 2.0**-130),
    "tiny": (plain, FOUR[0] * 1e-12, FOUR[1] * 1e-9, FOUR[2] * 1e-15),
    "one large value": (plain, *FOUR[:2], FOUR[2] * torch.where(normal(2, 3, 20, 8, seed=2) > 2.5, 1e6, 1.0)),
    "one large key": (plain, FOUR[0], FOUR[1] * torch.where(torch.arange(20) == 3, 1e4, 1.0)[:, None], FOUR[2]),
    "NaN in a query": (plain, FOUR[0].masked_fill(torch.arange(20)[:, None] == 5, float("nan")), *FOUR[1:]),
    "NaN in a value": (plain, *FOUR[:2], FOUR[2].masked_fill(torch.arange(8) == 5, float("nan"))),
}


def region_of(program, args):
    with capturing_for("cuda"), torch.no_grad():
        plan = plan_program(program, args, {})
    (part,) = [part for part in plan.regions if isinstance(part.region, CallRegion)]
    return part.region


def check(program, args):
    """The error against FP64 is at most a few times torch's own."""
    region = region_of(program, args)
    printed = print_attention(region, SMALL)
    module = module_of(printed)
    inputs = [(heads_of(one, 2) if program is views else one) for one in args]
    order = {name: one for (name, _), one in zip(region.tensors.values(), inputs * 3, strict=False)}
    tensors = [order[name] for name in region.reads]
    expected = attend_as(program, args)
    out = torch.full_like(expected, float("nan")).as_strided(expected.shape, region.output.shape_strides)
    getattr(module, printed.launcher_name)(*tensors, out)
    exact = attend_as(program, [one.double() if one.is_floating_point() else one for one in args])
    assert torch.equal(out.isnan(), expected.isnan())
    error, own = ((one.double() - exact).abs().nan_to_num() for one in (out, expected))
    limit = 4 * own.amax() + 2e-7 * exact.nan_to_num().abs().amax()
    assert error.amax() <= limit, f"{error.amax() / limit:.2f} times the limit"


def attend_as(program, args):
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return program(*args)


CASES = {name: (lambda name=name: check(PROGRAMS[name][0], PROGRAMS[name][1:])) for name in PROGRAMS}


@pytest.fixture(scope="module")
def interpreted(request):
    return interpret(__file__, selected_cases(request, "test_attention_is_as_accurate_as_fp32"))


@pytest.mark.parametrize("name", CASES)
def test_attention_is_as_accurate_as_fp32(interpreted, name):
    assert not interpreted[name]["fault"], interpreted[name]["fault"]


@pytest.mark.parametrize("head", [32, 64, 128])
def test_tiles_run_on_the_tensor_cores_of_a_gpu(head):
    region = region_of(plain, [torch.empty(1, 2, 256, head)] * 3)
    config = next(one for one in generate_attention_configs(region) if isinstance(one, AttentionTiles))
    ptx = [kernel.asm["ptx"] for kernel in compiled(region, config)][-1]
    assert "wgmma.mma_async" in ptx
    assert "cp.async" in ptx


@pytest.mark.parametrize(
    ("program", "args", "supported"),
    [
        (plain, FOUR, True),
        (plain, [one.half() for one in FOUR], False),
        (plain, [normal(1, 2, 20, 160)] * 3, False),
        (plain, [one[0] for one in FOUR], True),
        (masked, [*FOUR, torch.zeros(20, 20, dtype=torch.bool)], True),
    ],
)
def test_tiles_are_candidates_for_fp32(program, args, supported):
    configs = generate_attention_configs(region_of(program, args))
    assert any(isinstance(one, AttentionTiles) for one in configs) == supported
    assert any(getattr(one, "backend", "") == "efficient" for one in configs)


if __name__ == "__main__":
    report_cases({name: CASES[name] for name in sys.argv[1:] or CASES})
