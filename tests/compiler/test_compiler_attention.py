"""Attention: recognised in its spellings, equal in value, and a call with the backends of torch as candidates."""

import math

import pytest
import torch
from torch import fx, nn

from kernelwright.compiler.backends import TRITON
from kernelwright.compiler.capture.capture import capture
from kernelwright.compiler.capture.target_device import capturing_for
from kernelwright.compiler.kernel_source import RegionKernel
from kernelwright.compiler.library.attention import AttentionConfig
from kernelwright.compiler.planning import plan_program
from kernelwright.compiler.reference import bind_placeholders
from kernelwright.compiler.regions.call import CallRegion


class Causal(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.register_buffer("mask", torch.tril(torch.ones(6, 6)).view(1, 1, 6, 6))
        self.dropout = nn.Dropout(dropout)

    def forward(self, q, k, v):
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(self.mask[:, :, :6, :6] == 0, float("-inf"))
        return (self.dropout(scores.softmax(-1)) @ v).transpose(1, 2).reshape(2, 6, -1)


def with_bias(q, k, v):
    return torch.softmax(torch.einsum("bhqd,bhkd->bhqk", q / 2.0, k) / 3.0 + k[..., 0].unsqueeze(-2), -1) @ v


def three_dimensions(q, k, v):
    return torch.bmm(torch.bmm(q[0], k[0].transpose(1, 2)).softmax(-1), v[0])


def other_dimension(q, k, v):
    return (q @ k.transpose(-2, -1)).softmax(-2) @ v


def scores_returned(q, k, v):
    probabilities = (q @ k.transpose(-2, -1)).softmax(-1)
    return probabilities @ v, probabilities


def mask_before_scale(q, k, v):
    return ((q @ k.transpose(-2, -1) + 1.0) * 0.5 * v[..., :1].transpose(-2, -1)).softmax(-1) @ v


def tensors(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 3, 6, 4, generator=generator).to(dtype) for _ in range(3)]


def names(captured):
    return [str(node.target) for node in captured.graph.nodes if node.op == "call_function"]


def call_of_three_dimensions(q, k, v):
    mask = k[0, :, :, :1].transpose(1, 2)
    return nn.functional.scaled_dot_product_attention(q[0], k[0], v[0], mask, scale=0.5)


SPELLINGS = {
    "causal": Causal(), "with bias": with_bias, "three dimensions": three_dimensions,
    "call of three dimensions": call_of_three_dimensions,
}  # fmt: skip
OTHERS = {
    "other dimension": other_dimension, "scores returned": scores_returned, "mask before scale": mask_before_scale,
    "dropout": Causal(0.5).train(),
}  # fmt: skip


@pytest.mark.parametrize("program", SPELLINGS.values(), ids=SPELLINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_is_one_call_with_the_same_result(program, dtype):
    args = tensors(dtype)
    captured = capture(program, args, {})
    assert names(captured).count("aten.scaled_dot_product_attention.default") == 1
    assert "aten.exp.default" not in names(captured)
    (call,) = captured.graph.find_nodes(op="call_function", target=torch.ops.aten.scaled_dot_product_attention.default)
    assert all(one.meta["val"].dim() == 4 for one in call.args[:3])
    module = fx.GraphModule(nn.Module(), captured.graph)
    (got,) = module(*bind_placeholders(captured, program, args, {}))
    expected = program(*args)
    assert got.stride() == expected.stride()
    torch.testing.assert_close(got, expected, atol=2e-2 if dtype == torch.bfloat16 else 1e-5, rtol=1e-4)


@pytest.mark.parametrize("program", OTHERS.values(), ids=OTHERS)
def test_what_is_not_attention_stays(program):
    assert "aten.scaled_dot_product_attention.default" not in names(capture(program, tensors(), {}))


def test_the_rewrite_can_be_disabled():
    captured = capture(Causal(), tensors(), {}, frozenset({"attention"}))
    assert "aten.scaled_dot_product_attention.default" not in names(captured)


def planned_call(program, dtype):
    with capturing_for("cuda"), torch.no_grad():
        plan = plan_program(program, tensors(dtype), {})
    return next(part.region for part in plan.regions if isinstance(part.region, CallRegion))


@pytest.mark.parametrize(
    ("program", "dtype", "backends"),
    [
        (Causal(), torch.float16, ["cudnn", "efficient"]),
        (three_dimensions, torch.bfloat16, ["cudnn", "flash", "efficient"]),
        (Causal(), torch.float32, ["efficient"]),
    ],
)
def test_the_backends_are_candidates_on_a_gpu(program, dtype, backends):
    region = planned_call(program, dtype)
    configs = [config for config in TRITON.generate_configs(region) if isinstance(config, AttentionConfig)]
    assert [config.backend for config in configs] == backends
    for config in configs:
        text = TRITON.emit_module([RegionKernel(region, config)])
        assert f"_scaled_dot_product_{config.backend}_attention(" in text
        compile(text, "generated", "exec")


def test_equal_calls_are_repetitions():
    def two_layers(q, k, v):
        return three_dimensions(three_dimensions(q, k, v).unsqueeze(0), k, v)

    with capturing_for("cuda"), torch.no_grad():
        plan = plan_program(two_layers, tensors(), {})
    calls = [part.region.name for part in plan.regions if isinstance(part.region, CallRegion)]
    assert plan.same_as == {calls[1]: calls[0]} and len(calls) == 2


@pytest.mark.parametrize(("head", "products"), [(257, 2), (256, 0)])
def test_heads_too_large_for_fused_kernels_become_products(head, products):
    generator = torch.Generator().manual_seed(0)
    args = [torch.randn(2, 6, head, generator=generator) for _ in range(3)]
    attend = nn.functional.scaled_dot_product_attention
    with capturing_for("cuda"):
        captured = capture(attend_with(attend), args, {})
    assert names(captured).count("aten.matmul.default") == products
    module = fx.GraphModule(nn.Module(), captured.graph)
    (got,) = module(*bind_placeholders(captured, attend_with(attend), args, {}))
    torch.testing.assert_close(got, attend(*args))


def attend_with(attend):
    return lambda q, k, v: attend(q, k, v)
