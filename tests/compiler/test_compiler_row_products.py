"""Products of one row, and attention of one query, on a GPU: few regions, which compute what the program does.

The regions of a program for a GPU are planned here without one, and run as C++.
"""

import re
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import llama_decode
from first_choice import optimised, quick, run

from kernelwright.compiler.capture.capture import capture
from kernelwright.compiler.capture.target_device import capturing_for
from kernelwright.compiler.planning import plan_program
from kernelwright.compiler.regions.nodes import ROW_PRODUCT
from kernelwright.compiler.regions.partition import plan_regions
from kernelwright.compiler.regions.region import Reduction
from kernelwright.compiler.triton.configs import generate_configs
from kernelwright.compiler.triton.target import HOPPER


@pytest.fixture(scope="module", autouse=True)
def quickly():
    with quick(), torch.no_grad():
        yield


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


X, W, V, B = normal(1, 64), normal(48, 64, seed=1), normal(48, 64, seed=2), normal(48, seed=3)


def optimised_for_gpu(program, *args):
    with capturing_for("cuda"):
        return optimised(program, *args)


def num_marked(program, *args, device="cuda"):
    with capturing_for(device):
        captured = capture(program, args, {})
    return sum(ROW_PRODUCT in node.meta for node in captured.graph.nodes)


PRODUCTS = {
    "linear": (lambda x, w: F.linear(x, w) + 1, X, W),
    "bias": (lambda x, w, b: F.linear(x, w, b).relu(), X, W, B),
    "vector": (lambda x, w: F.linear(x[0], w) + 1, X, W),
    "mm": (lambda x, w: torch.mm(x, w.t()) * 2, X, W),
    "matmul": (lambda x, w: x @ w, X, W.t().contiguous()),
    "addmm": (lambda x, w, b: torch.addmm(b, x, w.t()).tanh(), X, W, B),
    "batches": (lambda x, w: torch.bmm(x, w.mT) + 1, normal(3, 1, 64), normal(3, 48, 64)),
    "heads": (lambda x, w: x @ w.mT, normal(2, 3, 4, 32), normal(2, 3, 20, 32)),
    "shared batches": (lambda x, w: x @ w.mT, normal(2, 3, 1, 32), normal(1, 3, 20, 32)),
    "gated": (lambda x, w, v: F.silu(F.linear(x, w)) * F.linear(x, v), X, W, V),
    "residual": (lambda x, w, y: y + F.linear(x * 2, w), X, W, B[None]),
    "half": (lambda x, w: F.linear(x, w) * 2, X.bfloat16(), W.bfloat16()),
}


@pytest.mark.parametrize("case", [pytest.param(v, id=k) for k, v in PRODUCTS.items()])
def test_a_product_of_one_row_is_one_region(case):
    program, *args = case
    made = optimised_for_gpu(program, *args)
    got, used = run(made, *args)
    right = program(*args)
    assert used and got.dtype == right.dtype
    assert len(made.optimization.regions) == 1 and not made.optimization.fallbacks
    torch.testing.assert_close(got, right)


def test_a_sum_of_halves_is_rounded_once():
    x, w = torch.ones(1, 4096).bfloat16(), torch.full((16, 4096), 1.0).bfloat16()
    w[:, ::2] = -1.0
    w[:, 0] += 2**-7  # lost in a sum of halves
    made = optimised_for_gpu(lambda x, w: F.linear(x, w) * 1, x, w)
    assert torch.equal(made(x, w), torch.full((1, 16), 2**-7).bfloat16())


@pytest.mark.parametrize(
    ("program", "args"),
    [(lambda x, w: F.linear(x, w) + 1, (normal(2, 64), W)), (lambda x, w: x @ w + 1, (normal(1, 8), normal(8, 9)))],
    ids=["two rows", "short"],
)
def test_other_products_stay_with_torch(program, args):
    assert num_marked(program, *args) == 0


def test_products_of_a_program_on_a_cpu_stay_with_torch():
    assert num_marked(PRODUCTS["linear"][0], X, W, device="cpu") == 0


# ---- the norm of the row


def rms_norm(x, scale):
    wide = x.float()
    return scale * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


class Gated(nn.Module):
    """A norm, two products of its result with one more reader, and a residual sum."""

    def __init__(self):
        super().__init__()
        self.scale, self.gate, self.up = (nn.Parameter(one) for one in (normal(64, seed=4), W / 8, V / 8))
        self.down = nn.Parameter(normal(64, 48, seed=5) / 7)

    def forward(self, x):
        y = rms_norm(x, self.scale)
        x = x + F.linear(F.silu(F.linear(y, self.gate)) * F.linear(y, self.up), self.down)
        return x, F.linear(rms_norm(x, self.scale), self.gate)


def test_a_norm_joins_each_product_in_one_pass():
    with capturing_for("cuda"):
        regions = [part.region for part in plan_program(Gated(), (X,), {}).regions]
    assert len(regions) == 3
    for region in regions:
        sums = [step for step in region.steps if isinstance(step, Reduction)]
        assert {region.pass_of[step.arg] for step in sums} == {0}, "the norm's factor is multiplied afterwards"


def test_a_norm_with_products_computes_what_torch_does():
    model = Gated()
    got, used = run(optimised_for_gpu(model, X), X)
    assert used
    torch.testing.assert_close(got, model(X))


def test_a_factor_that_prevents_an_overflow_stays_in_the_sum():
    """The largest element is no mean of squares: without it the products overflow."""

    def program(x, w):
        return F.linear(x / x.abs().amax(-1, keepdim=True) * 1.0, w) + 1

    x = X * 3e37
    torch.testing.assert_close(optimised_for_gpu(program, x, W * 30)(x, W * 30), program(x, W * 30))


def test_products_of_one_row_with_as_many_results_are_one_region():
    with capturing_for("cuda"):
        plan = plan_program(lambda x, w, v: (F.linear(x, w) + 1, F.linear(x, v) * 2), (X, W, V), {})
    assert len(plan.regions) == 1


# ---- attention of one query

QUERY, KEYS, VALUES = normal(2, 4, 1, 32), normal(2, 2, 20, 32, seed=1), normal(2, 2, 20, 32, seed=2)
MASK = torch.arange(20)[None] <= 11


def attention(q, k, v, mask=None, **options):
    return F.scaled_dot_product_attention(q + 1, k, v, attn_mask=mask, enable_gqa=True, **options)


def nothing_to_read(q, k, v):
    return attention(q, k, v, torch.zeros(1, 20, dtype=torch.bool, device=q.device))


ATTENTIONS = {
    "all": (attention, QUERY, KEYS, VALUES),
    "mask": (attention, QUERY, KEYS, VALUES, MASK),
    "mask of each head": (attention, QUERY, KEYS, VALUES, normal(1, 4, 1, 20) > -1),
    "added mask": (attention, QUERY, KEYS, VALUES, torch.where(MASK, 0.0, float("-inf"))[None, None]),
    "mask of each sample": (attention, QUERY, KEYS, VALUES, normal(2, 1, 1, 20)),
    "scale": (lambda q, k, v: attention(q, k, v, scale=0.3), QUERY, KEYS, VALUES),
    "nothing to read": (nothing_to_read, QUERY, KEYS, VALUES),
    "heads alone": (attention, QUERY[:, :2].contiguous(), KEYS, VALUES),
}


@pytest.mark.parametrize("case", [pytest.param(v, id=k) for k, v in ATTENTIONS.items()])
def test_attention_of_one_query_is_products_of_rows(case):
    program, *args = case
    made = optimised_for_gpu(program, *args)
    assert "scaled_dot_product" not in made.optimization.source.rpartition("def forward(self")[2]
    got, used = run(made, *args)
    assert used
    torch.testing.assert_close(got, program(*args))


@pytest.mark.parametrize(
    "call",
    [lambda q, k, v: attention(q, k, v, is_causal=True), lambda q, k, v: attention(q.expand(2, 4, 3, 32), k, v)],
    ids=["causal", "three queries"],
)
def test_other_attention_stays_with_torch(call):
    with capturing_for("cuda"):
        captured = capture(call, (QUERY, KEYS, VALUES), {})
    assert "query_attention" not in [rewrite.name for rewrite in captured.rewrites]


# ---- a whole model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_decoded_token_is_that_of_the_model(dtype):
    torch.manual_seed(0)
    model = llama_decode.Model(2, 128, 4, 2, 96, 64, 32)
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor is not model.frequencies:
            tensor.data = tensor.data.to(dtype)
    made = optimised_for_gpu(model, torch.tensor([[3]]), torch.tensor([5]))
    caches = [buffer.clone() for buffer in model.buffers()]
    with torch.no_grad():
        for token, position in ((7, 6), (9, 7)):
            args = torch.tensor([[token]]), torch.tensor([position])
            got, used = run(made, *args)
            after = [buffer.clone() for buffer in model.buffers()]
            for buffer, before in zip(model.buffers(), caches, strict=True):
                buffer.copy_(before)
            tolerance = {} if dtype == torch.float32 else {"rtol": 0.05, "atol": 0.1}
            torch.testing.assert_close(got, model(*args), **tolerance)
            torch.testing.assert_close(after, [*model.buffers()], **tolerance)
            caches = [buffer.clone() for buffer in model.buffers()]
            assert used


def test_a_layer_of_llama_is_few_launches_that_read_its_weights_once(monkeypatch):
    sizes = {"layers": 2, "width": 2048, "heads": 32, "groups": 8, "hidden": 8192, "vocabulary": 4096}
    monkeypatch.setattr(llama_decode, "DEVICE", "meta")
    monkeypatch.setattr(llama_decode, "normal", lambda *s: torch.empty(s, dtype=torch.bfloat16, device="meta"))
    model = llama_decode.Model(**sizes, positions=1024)
    args = [torch.zeros(shape, dtype=torch.int64, device="meta") for shape in ((1, 1), (1,))]
    with capturing_for("cuda"):
        plan = plan_program(model, args, {})
    others = {"aten.embedding.default", "aten.index_put.default", "aten.view.default"}
    assert {one.operator for one in plan.fallbacks} == others
    num_updates = sum(one.count for one in plan.fallbacks if one.operator == "aten.index_put.default")
    assert len(plan.regions) + num_updates <= 12 * sizes["layers"] + 2
    moved = sum(sum(part.region.bytes_moved) for part in plan.regions)
    needed = sum(one.numel() * 2 for one in (*model.parameters(), *model.buffers()))
    assert needed <= moved <= 1.05 * needed


def test_rows_of_a_matrix_share_the_row_that_multiplies_them():
    with capturing_for("cuda"):
        args = (torch.empty(1, 2048, device="meta").half(), torch.empty(8192, 2048, device="meta").half())
        ((region, _),), _ = plan_regions(capture(lambda x, w: F.linear(x, w) * 2, args, {}).graph)
    configs = generate_configs(region, HOPPER)
    assert any(config.BLOCK_M == 8 and config.BLOCK_N == 2048 for config in configs)
    assert all(HOPPER.min_programs <= -(-8192 // config.BLOCK_M) for config in configs)


def test_weights_are_read_in_vectors_of_16_bytes():
    pytest.importorskip("triton")
    from test_compiler_triton import compiled

    with capturing_for("cuda"):
        args = [torch.empty(*shape, device="meta").bfloat16() for shape in ((1, 2048), (2048,), (8192, 2048))]
        graph = capture(lambda x, scale, w: F.linear(rms_norm(x, scale), w), tuple(args), {}).graph
    ((region, _),), _ = plan_regions(graph)
    (kernel,) = compiled(region, next(one for one in generate_configs(region) if one.BLOCK_M == 4))
    loads = re.findall(r"ld\.global\S*", kernel.asm["ptx"])
    assert len(loads) >= 8 and all(".v4." in load for load in loads)
