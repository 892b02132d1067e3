"""RMSNorm and LayerNorm: every shape, dtype, option and gradient against FP64."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from on_device import (
    DEVICE,
    INTERPRETED,
    LONG,
    LONGER,
    ROUNDED_ONCE,
    poisoned,
    random,
    recorded_launches,
    require_close,
    runs_kernels,
    shapes_with_slow_long_rows,
)

from kernelwright.core.errors import DeviceError, UsageError
from kernelwright.kernels.norms import backward_launcher as gradients
from kernelwright.kernels.norms.configs import backward_layout, backward_stages
from kernelwright.kernels.norms.op import LayerNorm, RMSNorm, layer_norm, rms_norm
from kernelwright.kernels.norms.reference import norm
from kernelwright.kernels.operators import ShapeError
from kernelwright.kernels.rows.launcher import launch_programs
from kernelwright.kernels.rows.layout import VECTOR_BYTES, WARP_SIZE

pytestmark = runs_kernels
SHAPES = ((1, 1), (7, 13), (1, 4096), (33, 64), (70, 33), (40, 200), (5, 1000), (3, LONG), (2, LONGER))
TURNS = (
    (200, 33),
    (70, 520),
    (100, 512),
    (100, 256),
    *(((52, 1024), (26, 3000)) if INTERPRETED else ((100, 1024), (40, 3000))),
)
"""Of more tiles than programs where there is one multiprocessor, and more rows than are read again."""
FEW_LONG = 1104 if INTERPRETED else 4000
"""Columns of rows that are worth reading again for the weight's gradient."""
HALF = (torch.bfloat16, torch.float16)
NORMS = {"rms": (rms_norm, False), "layer": (layer_norm, True)}


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture(params=NORMS)
def normed(request):
    """A norm and its reference."""
    norm_of, centred = NORMS[request.param]
    return norm_of, lambda *given, **about: norm(*given, **{"eps": 1e-5, "centred": centred} | about)


@pytest.mark.parametrize("shape", shapes_with_slow_long_rows(SHAPES), ids=str)
def test_forward(normed, shape):
    norm_of, reference = normed
    x, weight, bias = random(*shape), random(shape[-1]), random(shape[-1])
    require_close(poisoned(lambda: norm_of(x, eps=1e-5)), reference(x), what="plain")
    require_close(
        poisoned(lambda: norm_of(x, weight, bias, eps=1e-5)), reference(x, weight, bias), what="weight and bias"
    )


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("weights", [torch.float32, None], ids=["wide weight", "weight alike"])
def test_half_precision_rounds_once(normed, dtype, weights):
    norm_of, reference = normed
    x, weight = random(9, 200, dtype=dtype), random(200, dtype=weights or dtype)
    got = norm_of(x, weight, eps=1e-5)
    assert got.dtype == dtype
    require_close(got, reference(x, weight), budget=ROUNDED_ONCE)


@pytest.mark.parametrize("N", [64, 128, 512, 1024, 2048, 8192])
def test_every_layout_of_rows_in_16_bits(normed, N):
    norm_of, reference = normed
    x, weight = random(20, N, dtype=torch.bfloat16), random(N, dtype=torch.bfloat16)
    require_close(norm_of(x, weight, eps=1e-5), reference(x, weight), budget=ROUNDED_ONCE)


@pytest.mark.parametrize("shape", shapes_with_slow_long_rows(SHAPES), ids=str)
def test_gradients(normed, shape):
    norm_of, reference = normed
    given = [random(*shape, grad=True), random(shape[-1], grad=True), random(shape[-1], grad=True)]
    residual, dy, dsum = random(*shape, grad=True), random(*shape), random(*shape)
    y, total = norm_of(*given, residual=residual, eps=1e-5)
    torch.testing.assert_close(total, given[0] + residual)
    got = poisoned(lambda: torch.autograd.grad((y, total), [*given, residual], (dy, dsum)))
    wanted = reference(*given, residual, eps=1e-5)
    want = torch.autograd.grad((wanted, given[0] + residual), [*given, residual], (dy.double(), dsum))
    terms = (
        0.1 if shape[-1] > 1 else 1e-5**-0.5
    )  # of a row of one element nothing is left but a rounding of dy / sqrt(eps)
    for name, one, other in zip(("x", "weight", "bias", "residual"), got, want, strict=True):
        require_close(one, other, budget=16, terms=terms, what=name)


@pytest.mark.parametrize("wide", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("of_weight", [None, torch.bfloat16, torch.float32], ids=str)
def test_tiles_of_all_tensors_find_room(wide, of_weight):
    x, residual = random(3, 16384, dtype=torch.bfloat16, grad=True), random(3, 16384, dtype=wide, grad=True)
    weight = None if of_weight is None else random(16384, dtype=of_weight)
    dy, dsum = random(3, 16384, dtype=torch.bfloat16), random(3, 16384, dtype=wide)
    got = torch.autograd.grad(rms_norm(x, weight, residual=residual), [residual], (dy, dsum))
    total = (x.double() + residual.double()).detach().requires_grad_()
    want = torch.autograd.grad((norm(total, weight, eps=1e-6), total), [total], (dy.double(), dsum.double()))
    require_close(got[0], want[0], budget=2.0)


def test_fewer_tiles_are_under_way_where_they_are_larger():
    layout, _ = backward_layout(100, 16384, 2)
    sizes = (2, 2), (2, 2, 2), (4, 4), (4, 4, 4), (8,) * 5
    assert [backward_stages(100, layout, 1, 16384, given, 0, 226 * 2**10) for given in sizes] == [3, 3, 2, 2, 1]
    assert [backward_stages(100, layout, 1, 16384, (2, 2), along, 226 * 2**10) for along in (2, 4)] == [3, 2]
    assert backward_stages(100, *backward_layout(100, 33, 2), 33, (2, 2), 0, 226 * 2**10) == 1


def test_short_rows_one_by_one_take_tiles_of_few_lanes():
    assert [backward_layout(9, N, 2)[1] for N in (13, 33, 100, 127, 128, 1001)] == [1, 5, 7, 8, 1, 1]


@pytest.mark.parametrize("itemsize", [2, 4])
def test_a_thread_has_the_same_columns_of_the_weight_as_of_a_row(itemsize):
    for N in range(8, 16385, 8):
        layout, tiles = backward_layout(100, N, itemsize)
        threads = WARP_SIZE * layout.num_warps
        assert layout.block_n < threads or layout.block_n * itemsize >= threads * VECTOR_BYTES, N
        assert (tiles - 1) * layout.block_n < N <= tiles * layout.num_splits * layout.block_n, N


def test_a_bias_in_fp32_has_its_gradient_in_fp32():
    x, weight = random(9, 40, dtype=torch.bfloat16), random(40, dtype=torch.bfloat16, grad=True)
    bias, dy = random(40, grad=True), random(9, 40, dtype=torch.bfloat16)
    (dbias,) = torch.autograd.grad(layer_norm(x, weight, bias), bias, dy)
    torch.testing.assert_close(dbias, dy.float().sum(0))


def test_few_rows_have_a_small_tile():
    for N in (1, 13, 128, 500, 1024, 16384):
        (few, _), (many, _) = backward_layout(8, N, 2), backward_layout(9, N, 2)
        assert few.block_m == (8 if many.block_m > 8 else 1) and few.block_n == many.block_n
        assert backward_stages(8, few, 1, N, (2, 2), 0, 226 * 2**10) == 1, "there is no second tile"


@pytest.mark.slow
@pytest.mark.parametrize("asked", [("weight",), ("bias",), ("x", "weight", "bias")], ids=str)
@pytest.mark.parametrize("wide", [torch.bfloat16, torch.float32], ids=str)
def test_few_long_rows_are_read_again_for_the_gradient_of_a_weight(wide, asked, monkeypatch):
    monkeypatch.setattr(gradients, "multiprocessors", lambda device: 132)
    monkeypatch.setattr(gradients, "sum_partials_kernel", None)
    given = {"x": random(66, FEW_LONG, dtype=torch.bfloat16), "weight": random(FEW_LONG, dtype=wide)}
    given["bias"] = random(FEW_LONG, dtype=wide)
    for name in asked:
        given[name].requires_grad_()
    dy, those = random(66, FEW_LONG, dtype=torch.bfloat16), [given[name] for name in asked]
    got = poisoned(lambda: torch.autograd.grad(layer_norm(*given.values(), eps=1e-5), those, dy))
    want = torch.autograd.grad(norm(*given.values(), eps=1e-5, centred=True), those, dy.double())
    for one, other, wanted in zip(got, want, those, strict=True):
        assert one.dtype == wanted.dtype
        require_close(one, other, budget=16 if one.dtype == torch.float32 else 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("shape", shapes_with_slow_long_rows(TURNS, longest=100), ids=str)
def test_a_program_that_has_many_tiles_in_turn(normed, shape, dtype, monkeypatch):
    monkeypatch.setattr(gradients, "multiprocessors", lambda device: 1)
    norm_of, reference = normed
    x, weight, bias = (random(*size, dtype=dtype, grad=True) for size in (shape, shape[1:], shape[1:]))
    dy = random(*shape, dtype=dtype)
    got = poisoned(lambda: torch.autograd.grad(norm_of(x, weight, bias, eps=1e-5), [x, weight, bias], dy))
    want = torch.autograd.grad(reference(x, weight, bias, eps=1e-5), [x, weight, bias], dy.double())
    for one, other in zip(got, want, strict=True):
        require_close(one, other, budget=16 if dtype == torch.float32 else 2)


def test_gradients_of_what_asks_for_them_only(normed):
    norm_of, reference = normed
    x, weight = random(6, 40), random(40, grad=True)
    norm_of(x, weight, eps=1e-5).sum().backward()
    (want,) = torch.autograd.grad(reference(x, weight).sum(), weight)
    require_close(weight.grad, want, budget=16)
    assert x.grad is None


def test_the_sum_alone_may_be_used(normed):
    norm_of, _ = normed
    x, residual = random(4, 10, grad=True), random(4, 10, grad=True)
    norm_of(x, residual=residual, eps=1e-5)[1].sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))


def test_a_wide_residual_stays_wide():
    x, residual = random(5, 64, dtype=torch.bfloat16), random(5, 64)
    y, total = rms_norm(x, residual=residual)
    assert (y.dtype, total.dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(total, x.float() + residual)


def test_the_gradient_of_a_weight_sees_what_the_weight_saw():
    x, residual = random(64, 40, dtype=torch.float16), random(64, 40)
    weight, dy = random(40, grad=True), random(64, 40, dtype=torch.float16)
    (got,) = torch.autograd.grad(rms_norm(x, weight, residual=residual, cast_first=True)[0], weight, dy)
    seen = norm(x, None, None, residual, eps=1e-6).half()
    require_close(got, (seen.double() * dy.double()).sum(0), budget=64)


def test_gemma_and_llama():
    x, weight = random(8, 96, dtype=torch.bfloat16), random(96, dtype=torch.bfloat16, scale=0.1)
    require_close(rms_norm(x, weight, offset=1.0), norm(x, weight, eps=1e-6, offset=1.0), budget=ROUNDED_ONCE)
    x, weight = x.half(), weight.half()
    llama = (norm(x, eps=1e-6).half() * weight.double()).half()
    same = (rms_norm(x, weight, cast_first=True) == llama, rms_norm(x, weight) == llama)
    assert same[0].float().mean() > 0.97 > same[1].float().mean(), "rounded before the weight, as Llama does"


@pytest.mark.parametrize("kind", ["constant", "offset", "one hot", "outlier"])
def test_hard_rows(kind):
    x = torch.randn(6, 3000, device=DEVICE)
    if kind == "constant":
        x = torch.full_like(x, 3.0)
    elif kind == "offset":
        x += 1e4
    else:
        x *= 0.0 if kind == "one hot" else 1e-3
        x[:, 1234] = 1.0 if kind == "one hot" else 1e4
    want = norm(x, eps=1e-5, centred=True)
    torch.testing.assert_close(layer_norm(x).double(), want, rtol=1e-4, atol=2e-3 if kind == "offset" else 1e-5)
    require_close(rms_norm(x), norm(x, eps=1e-6))


def test_views_are_read_as_they_lie():
    packed = random(3, 5, 3, 4, 64)
    query = packed[:, :, 1]
    require_close(rms_norm(query), norm(query, eps=1e-6), what="two strides")
    for view in (packed.transpose(0, 3)[..., ::2], packed[..., :1].expand(3, 5, 3, 4, 64), packed[0, 0, 0, 0]):
        require_close(rms_norm(view), norm(view, eps=1e-6), what=str(view.stride()))
    x = random(6, 40, grad=True)
    (got,) = torch.autograd.grad(rms_norm(x.t().contiguous().t()), x, random(40, 6).t())
    assert torch.isfinite(got).all()


@pytest.mark.parametrize("shape", [(0, 8), (3, 0), (2, 0, 4)], ids=str)
def test_empty(normed, shape):
    norm_of, _ = normed
    x, weight = random(*shape, grad=True), random(shape[-1], grad=True)
    y = norm_of(x, weight)
    assert y.shape == x.shape
    y.sum().backward()
    assert (x.grad.shape, weight.grad.shape) == (x.shape, weight.shape)
    assert not weight.grad.any()


def test_modules_are_torchs_with_a_residual():
    x = random(4, 32, grad=True)
    for ours, theirs in (
        (RMSNorm(32, eps=1e-5), torch.nn.RMSNorm(32, eps=1e-5)),
        (LayerNorm(32), torch.nn.LayerNorm(32)),
    ):
        ours.to(DEVICE).load_state_dict(theirs.state_dict())
        torch.testing.assert_close(ours(x), theirs.to(DEVICE)(x), rtol=1e-5, atol=1e-6)
        assert ours(x, x)[1].shape == x.shape


def test_what_does_not_fit_is_said():
    x = random(4, 8)
    for call, says in (
        (lambda: rms_norm(x, random(9)), r"weight is \(9,\); it must be \(8,\)"),
        (lambda: rms_norm(x, residual=random(4, 9)), r"residual is \(4, 9\)"),
        (lambda: rms_norm(x.double()), "float64"),
        (lambda: rms_norm(x[0, 0]), "no dimension"),
    ):
        with pytest.raises(ShapeError, match=says):
            call()
    with pytest.raises(DeviceError, match="got meta"):
        launch_programs(None, 1, torch.device("meta"), (), num_warps=1)


def test_it_is_an_operator_of_torch():
    x, weight = random(3, 16, grad=True), random(16, grad=True)
    given = (x, random(3, 16, grad=True), weight, random(16, grad=True), 1e-5, 0.0, True, False, True)
    torch.library.opcheck(torch.ops.kernelwright.norm.default, given)


def test_torch_compile_takes_it_whole_and_for_any_number_of_rows():
    weight, frames = random(24), []

    def backend(graph, _):
        frames.append(graph)
        return graph.forward

    compiled = torch.compile(
        lambda x: layer_norm(torch.relu(x), weight) * 2, fullgraph=True, dynamic=True, backend=backend
    )
    for rows in (3, 5, 9):
        x = random(rows, 24)
        require_close(compiled(x), norm(torch.relu(x), weight, eps=1e-5, centred=True) * 2)
    assert len(frames) == 1


def test_results_repeat():
    rows = 60 if INTERPRETED else 300
    x, weight = random(rows, 129, grad=True), random(129, grad=True)
    one, other = (torch.autograd.grad(rms_norm(x, weight).square().sum(), (x, weight)) for _ in range(2))
    assert all(map(torch.equal, one, other))


def test_modules_normalise_over_all_their_dimensions():
    x = random(3, 4, 8)
    for ours, theirs in ((RMSNorm, torch.nn.RMSNorm), (LayerNorm, torch.nn.LayerNorm)):
        torch.testing.assert_close(ours((4, 8)).to(DEVICE)(x), theirs((4, 8)).to(DEVICE)(x), rtol=1e-5, atol=1e-6)
        with pytest.raises(ShapeError, match="it must end in"):
            ours(16).to(DEVICE)(x)


def test_weights_need_not_be_dense():
    x, weight, bias = random(3, 8), random(16)[::2], random(1).expand(8)
    require_close(layer_norm(x, weight, bias), norm(x, weight, bias, eps=1e-5, centred=True))


def test_gradients_that_it_does_not_have_are_refused():
    x = random(3, 8, grad=True)
    (dx,) = torch.autograd.grad(rms_norm(x).square().sum(), x, create_graph=True)
    with pytest.raises(UsageError, match="no second derivative"):
        dx.sum().backward()
    with pytest.raises(UsageError, match="no forward-mode gradients"):
        torch.func.jvp(rms_norm, (x.detach(),), (x.detach(),))


def test_the_number_of_rows_compiles_nothing_anew():
    """Every constant of a launch is the same for 1 row and for 3."""
    seen = []
    for rows in (1, 3):
        x, weight = random(rows, 40, grad=True), random(40, grad=True)
        with recorded_launches() as launches:
            rms_norm(x, weight).sum().backward()
        seen.append([constants for _, constants in launches])
    assert seen[0] == seen[1] and len(seen[0]) == 2
