"""The operator of matrix products: as torch's tools see it, its gradients, and repeated and concurrent calls."""

import itertools
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from kernelwright.evidence.artifact_digest import HOPPER
from kernelwright.kernels.matmul import emulated, op, product
from kernelwright.kernels.matmul.configs import make_defines
from kernelwright.kernels.matmul.op import gemm, linear
from kernelwright.kernels.matmul.reference import FORMULAS
from kernelwright.kernels.matmul.reference import gemm as exact_gemm
from kernelwright.kernels.matmul.workloads import USE_CASES
from kernelwright.kernels.norms.op import rms_norm
from kernelwright.kernels.workload import OURS, make_backward

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
gpu = pytest.mark.gpu
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
DTYPES = (torch.bfloat16, torch.float16, torch.float32, *FP8)
OUT_EPS = {torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float32: 2**-23}
SUM_EPS = {torch.bfloat16: 2**-16, torch.float16: 2**-16, torch.float32: 2**-20, **dict.fromkeys(FP8, 2**-12)}
"""Of |a| @ |b|: rounding of sums in tensor cores, which is coarser for FP8, and of FP32 operands in two terms."""


@pytest.fixture(autouse=True)
def emulate_all(monkeypatch):
    """FP32 products of all sizes take the kernel."""
    monkeypatch.setattr(product, "emulation_pays", lambda *_, **__: True)


def make_matrix(rng, shape, dtype):
    """Random values, in one of the layouts that torch passes."""
    *batch, rows, columns = shape
    make = lambda *size: torch.randn(*batch, *size, device=DEVICE).to(dtype)  # noqa: E731
    return rng.choice(
        (
            lambda: make(rows, columns),
            lambda: make(columns, rows).mT,
            lambda: make(rows, columns + 3)[..., 1 : columns + 1],
            lambda: make(rows, columns + 16)[..., 8 : columns + 8],
            lambda: make(2 * rows, 2 * columns)[..., ::2, ::2],
            lambda: make(1, columns).expand(*batch, rows, columns),
        )
    )()


def make_call(rng, dtype, activation, with_bias, with_residual):
    """Operands and options of a random product."""
    m, n, k = (int(2 ** rng.uniform(0, 10)) for _ in range(3))
    batch = rng.choice(((), (), (3,), (2, 2)))
    a = make_matrix(rng, (*batch, m, k), dtype)
    b = make_matrix(rng, (*(batch if rng.random() < 0.5 else ()), k, n), dtype)
    out_dtype = rng.choice(tuple(OUT_EPS))
    options = {"activation": activation, "alpha": rng.choice((1.0, 0.25, -1.5)), "beta": rng.choice((1.0, 0.5))}
    if with_bias:
        options["bias"] = torch.randn(n, device=DEVICE).to(out_dtype)
    if with_residual:
        options["residual"] = make_matrix(rng, (*batch, m, n), out_dtype)
    if dtype in FP8:
        of_blocks, blocks = rng.random() < 0.3 and k > 128, -(-k // 128)
        sizes = ((*batch, m, blocks), (blocks, -(-n // 128))) if of_blocks else ((*batch, m, 1), (1, n))
        options["scale_a"], options["scale_b"] = (torch.rand(size, device=DEVICE) + 0.5 for size in sizes)
        if not of_blocks and rng.random() < 0.5:
            options["scale_b"] = rng.choice((None, torch.full((), 0.5, device=DEVICE)))
    return a, b, options, out_dtype


def require_exact(got, a, b, options, dtype):
    """Every element is within the rounding of its own sum, and finite."""
    want = exact_gemm(a, b, **options)
    magnitudes = {key: value for key, value in options.items() if key.startswith("scale")}
    sums = abs(options["alpha"]) * exact_gemm(a.double().abs(), b.double().abs(), **magnitudes)
    for name in ("bias", "residual"):
        sums = sums + (options[name].double().abs() if name in options else 0.0)
    bound = 1.2 * SUM_EPS[dtype] * sums + OUT_EPS[got.dtype] * want.abs() + 1e-6
    assert torch.isfinite(got).all()
    ratios = (got.double() - want).abs() / bound
    worst = ratios.argmax()
    values = [float(one.flatten()[worst]) for one in (ratios, got, want, sums.expand_as(got))]
    assert ratios.max() <= 1, (dtype, got.dtype, a.shape, b.shape, options["alpha"], values)


@gpu
@pytest.mark.parametrize("part", range(10))
def test_random_products_against_fp64(part):
    rng = random.Random(100 + part)
    torch.manual_seed(part)
    activation, (with_bias, with_residual) = tuple(FORMULAS)[part % 5], [(0, 0), (1, 0), (0, 1), (1, 1)][part % 4]
    for index in range(50):
        dtype = DTYPES[index % len(DTYPES)]
        a, b, options, out_dtype = make_call(rng, dtype, activation, with_bias, with_residual)
        before = a.float(), b.float()
        shape = (*a.shape[:-1], b.shape[-1])
        out = torch.full(shape, torch.nan, device=DEVICE, dtype=out_dtype)
        result = gemm(a, b, out_dtype=out_dtype, **options)
        if part % 2:
            gemm(a, b, out=out, out_dtype=out_dtype, **options)
            assert torch.equal(out, result), "the same bits in memory of the caller"
        require_exact(result, a, b, options, dtype)
        assert torch.equal(before[0], a.float()) and torch.equal(before[1], b.float()), "operands are unchanged"


@gpu
def test_random_gated_products_against_fp64():
    rng = random.Random(7)
    torch.manual_seed(7)
    for index in range(50):
        m, n, k = (rng.randint(1, 900) for _ in range(3))
        dtype = (torch.bfloat16, torch.float16, torch.float32)[index % 3]
        a, b = torch.randn(m, k, device=DEVICE).to(dtype), (torch.randn(2 * n, k, device=DEVICE) / k**0.5).to(dtype).T
        b = b if index % 2 else b.contiguous()
        gate, up = (a.double() @ b.double()).chunk(2, dim=1)
        want, tolerance = torch.nn.functional.silu(gate) * up, {2: 2**-6, 4: 1e-5}[a.element_size()]
        got = gemm(a, b, activation="swiglu").double()
        assert torch.isfinite(got).all()
        assert ((got - want).abs() <= tolerance * (want.abs() + 1)).all(), (m, n, k, dtype)


def make_repeated_calls():
    """Calls of every kind of kernel: few rows with a split K, one wave, two terms, FP8, gated."""
    x = torch.randn(512, 4096, device=DEVICE)
    weight = torch.randn(1024, 4096, device=DEVICE) / 64
    bf16, half_weight = x.bfloat16(), weight.bfloat16()
    fp8, fp8_weight = x.to(FP8[0]), weight.to(FP8[0])
    return {
        "few rows": lambda: linear(bf16[:8], half_weight),
        "64 rows": lambda: linear(bf16[:64], half_weight),
        "bf16": lambda: linear(bf16, half_weight, activation="gelu"),
        "gated": lambda: linear(bf16, half_weight, activation="swiglu"),
        "fp8": lambda: gemm(fp8, fp8_weight.T),
        "fp32": lambda: linear(x, weight),
    }


@gpu
@pytest.mark.parametrize("kind", ["few rows", "64 rows", "bf16", "gated", "fp8", "fp32"])
def test_ten_thousand_repetitions_have_the_same_bits(kind):
    call = make_repeated_calls()[kind]
    first, differing = call(), torch.zeros((), dtype=torch.int64, device=DEVICE)
    for _ in range(10_000):
        differing += (call() != first).any()
    assert int(differing) == 0


@gpu
def test_buffers_that_rotate_are_read_where_they_are():
    shape, rng = (256, 512), random.Random(0)
    sets = [
        [torch.randn(*shape, device=DEVICE).bfloat16() for _ in range(2)] + [torch.empty(256, 256, device=DEVICE)]
        for _ in range(30)
    ]
    want = [a.double() @ b.double().T for a, b, _ in sets]
    for _ in range(200):
        at = rng.randrange(len(sets))
        a, b, out = sets[at]
        out.fill_(torch.nan)
        gemm(a, b.T, out=out, out_dtype=torch.float32)
        assert ((out - want[at]).abs() <= 1e-3).all()


@gpu
def test_streams_and_threads_do_not_share_what_a_launch_writes():
    def run(seed):
        generator = torch.Generator(DEVICE).manual_seed(seed)
        x = torch.randn(300, 1024, device=DEVICE, generator=generator)
        stream, wrong = torch.cuda.Stream(), torch.zeros((), dtype=torch.int64, device=DEVICE)
        stream.wait_stream(torch.cuda.current_stream())
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            for dtype in (torch.bfloat16, torch.float32):
                a, b = x[:, :512].to(dtype), x[:, 512:].to(dtype).T
                first = gemm(a, b)
                for _ in range(300):
                    wrong += (gemm(a, b) != first).any()
                wrong += ((first.double() - a.double() @ b.double()).abs() > 1.0).any()
        stream.synchronize()
        return int(wrong)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(8))) == [0] * 8


@gpu
def test_graphs_replay_with_new_values():
    kinds = make_repeated_calls()
    for call in kinds.values():
        call()
    torch.cuda.synchronize()
    x = torch.randn(64, 4096, device=DEVICE)
    weight = torch.randn(2048, 4096, device=DEVICE) / 64

    def step():
        hidden = linear(x.bfloat16(), weight.bfloat16(), activation="silu")
        return linear(x, weight), hidden, gemm(hidden, hidden.mT, out_dtype=torch.float32)

    step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    for seed in range(5):
        torch.manual_seed(seed)
        x.copy_(torch.randn_like(x))
        for one in results:
            one.fill_(torch.nan)
        graph.replay()
        for got, want in zip(results, step(), strict=True):
            assert torch.equal(got, want)


@gpu
def test_a_norm_reads_what_a_product_before_it_wrote_in_place():
    a, b = torch.randn(64, 512, device=DEVICE).bfloat16(), torch.randn(512, 2048, device=DEVICE).bfloat16()
    weight, start = torch.rand(2048, device=DEVICE).bfloat16(), torch.randn(64, 2048, device=DEVICE).bfloat16()

    def steps(residual, count):
        for _ in range(count):
            gemm(a, b, residual=residual, beta=0.5, alpha=0.01, out=residual)
            residual.copy_(rms_norm(residual, weight))
        return residual

    first = steps(start.clone(), 100)
    assert all(torch.equal(first, steps(start.clone(), 100)) for _ in range(20))
    slow = start.clone()
    for _ in range(100):
        steps(slow, 1)
        torch.cuda.synchronize()
    assert torch.equal(first, slow) and first.isfinite().all()


@gpu
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")  # the first product of autograd's thread
def test_gradients_of_emulated_products_are_no_less_accurate_than_fmas():
    inputs = [torch.randn(*shape, device=DEVICE, requires_grad=True) for shape in ((8, 128, 1024), (768, 1024), (768,))]
    dy = torch.randn(8, 128, 768, device=DEVICE)

    def gradients(multiply, dtype):
        return torch.autograd.grad(multiply(*(one.to(dtype) for one in inputs)), inputs, dy.to(dtype))

    exact = [one.double() for one in gradients(F.linear, torch.float64)]
    own, fma = gradients(linear, torch.float32), gradients(F.linear, torch.float32)
    for got, other, want in zip(own[:2], fma[:2], exact[:2], strict=True):
        assert (got - want).norm() <= (other - want).norm() + 2**-24 * want.norm()
    torch.testing.assert_close(own[2].double(), exact[2], rtol=1e-5, atol=1e-4)


SAMPLES = {
    "plain": {},
    "bias": {"bias": (48,)},
    "residual": {"residual": (40, 48), "alpha": 0.5, "beta": 2.0},
}


@gpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", SAMPLES)
def test_torch_checks_the_operator(name, dtype):
    tensors = {
        key: torch.randn(*value, device=DEVICE, dtype=dtype, requires_grad=True)
        for key, value in SAMPLES[name].items()
        if isinstance(value, tuple)
    }
    a, b = (torch.randn(*size, device=DEVICE, dtype=dtype, requires_grad=True) for size in ((40, 64), (64, 48)))
    arguments = (
        a, b, tensors.get("bias"), tensors.get("residual"), None, None, "none",
        SAMPLES[name].get("alpha", 1.0), SAMPLES[name].get("beta", 1.0), dtype, "default",
    )  # fmt: skip
    tolerance = {torch.bfloat16: {"atol": 0.5, "rtol": 0.1}, torch.float32: {"atol": 1e-3, "rtol": 1e-3}}[dtype]
    torch.library.opcheck(torch.ops.kernelwright.gemm, arguments, **tolerance)


@gpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_compiled_program_has_the_results_and_gradients_of_eager(dynamic):
    def program(x, weight, bias, residual):
        return linear(x, weight, bias, activation="gelu", residual=residual).square().mean()

    compiled = torch.compile(program, fullgraph=True, dynamic=dynamic)
    for m in (256, 640):
        shapes = ((m, 512), (768, 512), (768,), (m, 768))
        inputs = [torch.randn(shape, device=DEVICE, requires_grad=True) for shape in shapes]
        got, want = (torch.autograd.grad(run(*inputs), inputs) for run in (compiled, program))
        for one, other in zip(got, want, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-8)


@gpu
@pytest.mark.parametrize("one", USE_CASES, ids=lambda one: f"{one.kernel}, {one.name}")
def test_planned_launches_are_those_of_a_call(one, monkeypatch):
    launched, empty = [], type(product.THREAD)()
    of_package = product.GemmLaunch

    class Recorded(of_package):
        def __call__(self, *arguments, **options):
            launched.append(make_defines(self.config, self.variant))
            return super().__call__(*arguments, **options)

    for module in (product, emulated):
        monkeypatch.setattr(module, "GemmLaunch", Recorded)
    for module in (op, product, emulated):
        monkeypatch.setattr(module, "THREAD", empty)
    for workload in one.workloads(shape for shape in one.recorded if max(shape) <= 14336):
        with torch.set_grad_enabled(workload.direction != "forward"):
            inputs = workload.make_inputs()
            results = workload.implementations[OURS](*inputs)
        if workload.direction != "forward":
            launched.clear()
            make_backward(inputs, results)()
        planned = [launch.macros for launch in workload.plan(HOPPER) if launch.name == "gemm_sm90"]
        assert launched == planned, workload.size
        launched.clear()


@pytest.fixture
def on_cpu(monkeypatch):
    """The operator with its kernels replaced by FP64 arithmetic, which a CPU has."""

    def compute(a, b, epilogue, out, precision):
        known = {name: value for name, value in epilogue._asdict().items() if name != "statistics"}
        return out.copy_(exact_gemm(a, b, **known))

    monkeypatch.setattr(op, "compute", compute)


@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "gelu_tanh", "silu", "swiglu"])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize("b_is_batched", [False, True])
def test_gradients_are_those_of_fp64(on_cpu, activation, batch, b_is_batched):
    gated = activation == "swiglu"
    shapes = [(*batch, 5, 7), (*(batch if b_is_batched else ()), 7, 6)]
    shapes += [] if gated else [(6,), (*batch, 5, 6)]
    inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]

    def run(multiply, a, b, *epilogue):
        names = dict(zip(("bias", "residual"), epilogue, strict=False))
        return multiply(a, b, activation=activation, alpha=0.7, beta=0.3, **names)

    results = run(gemm, *inputs), run(exact_gemm, *(one.double() for one in inputs))
    dy = torch.randn(results[0].shape)
    got = torch.autograd.grad(results[0], inputs, dy)
    want = torch.autograd.grad(results[1], inputs, dy.double())
    torch.testing.assert_close(results[0].double(), results[1], rtol=1e-6, atol=1e-6)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("needed", [*itertools.product((False, True), repeat=3)])
def test_only_the_gradients_that_are_needed_are_computed(on_cpu, monkeypatch, needed):
    calls = []
    compute = op.compute
    monkeypatch.setattr(op, "compute", lambda *arguments: calls.append(1) or compute(*arguments))
    x, weight, bias = (
        torch.randn(shape, requires_grad=flag) for shape, flag in zip(((4, 8), (6, 8), (6,)), needed, strict=True)
    )
    result = linear(x, weight, bias)
    assert result.requires_grad == any(needed)
    if any(needed):
        result.sum().backward()
    assert len(calls) == 1 + needed[0] + needed[1]
    assert [one.grad is not None for one in (x, weight, bias)] == list(needed)


@pytest.mark.parametrize("activation", ["none", "swiglu"])
@pytest.mark.parametrize("out_dtype", [None, torch.float32])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fake_results_have_the_shape_and_dtype_of_a_product(dtype, activation, out_dtype):
    with FakeTensorMode():
        a, b = torch.empty(3, 5, 16, dtype=dtype), torch.empty(16, 8, dtype=dtype)
        result = gemm(a, b, activation=activation, out_dtype=out_dtype)
    assert result.shape == (3, 5, 4 if activation == "swiglu" else 8)
    assert result.dtype == (out_dtype or (torch.bfloat16 if dtype in FP8 else dtype))
    assert result.is_contiguous()


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_a_traced_product_is_one_node(mode):
    def program(x, weight, bias):
        return linear(x, weight, bias, activation="gelu")

    inputs = torch.randn(6, 16), torch.randn(8, 16), torch.randn(8)
    targets = [str(node.target) for node in make_fx(program, tracing_mode=mode)(*inputs).graph.nodes]
    assert targets.count("kernelwright.gemm.default") == 1
    assert not any("gelu" in one for one in targets), "the activation is fused"


def test_a_product_without_gradients_keeps_nothing(on_cpu):
    x, weight = torch.randn(4, 8, requires_grad=True), torch.randn(6, 8)
    with torch.no_grad():
        assert linear(x, weight, activation="relu").grad_fn is None
    assert torch.equal(linear(x, weight, activation="relu"), F.relu(linear(x, weight)))
