"""The library's product as a candidate: what of an epilogue it computes, and the results of the generated calls."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))  # for this file alone, where it is interpreted
sys.path.insert(0, str(Path(__file__).parent))
from contraction_programs import EPILOGUES, PRODUCTS, ROW, WEIGHT, Layer, X, Y, contractions, normal, plan
from random_products import RandomProduct
from triton_interpreter import Library, interpret, report_cases, selected_cases

from kernelwright.compiler.assembly.kernel_layer import KernelLayer
from kernelwright.compiler.assembly.output_file import assemble_file
from kernelwright.compiler.backends import TRITON, uses_library
from kernelwright.compiler.compile_pool import _empty_product
from kernelwright.compiler.kernel_source import RegionKernel, load
from kernelwright.compiler.library.product_epilogues import match_epilogue
from kernelwright.compiler.library.products import GEMM, ProductConfig, generate_product_configs, print_product
from kernelwright.compiler.reference import bind_placeholders, build_reference, record_region_inputs
from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.triton.target import HOPPER
from kernelwright.kernels.matmul import product
from kernelwright.problems import Problem

pytestmark = [pytest.mark.xdist_group("triton"), pytest.mark.filterwarnings("ignore")]
pytest.importorskip("triton")
ACTIVATIONS = {
    "none": lambda x: x,
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}


def gemm(a, b, *, bias=None, activation="none", residual=None, alpha=1.0, beta=1.0, out_dtype=None, precision=""):
    """The formula of `kernelwright.kernels.gemm`, with its checks of shapes."""
    assert a.dtype == b.dtype
    assert b.dim() == 2 or a.shape[:-2] == b.shape[:-2]
    value = alpha * (a.float() @ b.float())
    if bias is not None:
        assert bias.shape == (b.shape[-1],)
        value = value + bias.float()
    if residual is not None:
        assert residual.shape == value.shape
        value = value + beta * residual.float()
    return ACTIVATIONS[activation](value).to(out_dtype or a.dtype)


def linear(after, *more):
    return lambda x, w, b, *given: after(F.linear(x, w, b), *given), normal(33, 40), WEIGHT, ROW, *more


WHOLE = {
    "plain": (lambda a, b: a @ b, X, Y),
    "relu": linear(torch.relu),
    "gelu": linear(F.gelu),
    "gelu_tanh": linear(lambda y: F.gelu(y, approximate="tanh")),
    "silu": linear(F.silu),
    "swish": linear(lambda y: y * torch.sigmoid(y)),
    "relu, halved": linear(lambda y: torch.relu(y) / 2),
    "relu of half precision": (lambda a, b: torch.relu(a @ b) * 0.5, X.half(), Y.half()),
    "itself added": linear(lambda y: F.silu(y * 0.5 + y)),
    "residual": linear(lambda y, r: y + r, normal(33, 30)),
    "residual of rows": linear(lambda y, r: y + r, normal(33, 1)),
    "scaled residual": linear(lambda y, r: torch.relu(r * 0.5 + y / 3.0), normal(33, 30)),
    "residual less": linear(lambda y, r: r - y, normal(33, 30)),
    "transposed residual": linear(lambda y, r: y + r.T, normal(30, 33)),
    "second bias": linear(lambda y, v: (y - 2.0) * 1.5 - v, normal(30)),
    "shift": (lambda a, b: 2.0 - a @ b, X, Y),
    "number of the program": linear(lambda y, v: y + v, torch.tensor(0.3)),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, alpha=0.5, beta=2.0), normal(20, 30), X, Y),
    "addmm of a vector": (lambda c, a, b: torch.addmm(c, a, b, alpha=0.5), ROW, X, Y),
    "addmm without its input": (lambda c, a, b: torch.addmm(c, a, b, beta=0), ROW * float("nan"), X, Y),
    "baddbmm": (
        lambda c, a, b: torch.baddbmm(c, a, b, alpha=0.5, beta=2.0),
        *(normal(3, 20, 30), normal(3, 20, 40), normal(3, 40, 30)),
    ),
    "batches of heads": (
        lambda a, b: (a.transpose(1, 2) @ b.permute(0, 2, 3, 1)) * 0.125,
        *(normal(2, 20, 3, 40), normal(2, 30, 3, 40)),
    ),
    "narrower": (lambda a, b: (a @ b).half(), X, Y),
    "half": (lambda a, b, r: torch.relu(a @ b + r), X.half(), Y.half(), normal(20, 30).half()),
    "transposed operands": (lambda a, b: torch.relu(a.T @ b.T), normal(40, 20), normal(30, 40)),
    "sliced operands": PRODUCTS["sliced"],
    "images": (lambda x, w: torch.einsum("bijl,lk->bijk", x, w).relu(), normal(2, 3, 5, 40), Y),
}
"""Programs of which a call computes everything."""
PARTS = {
    "itself subtracted": linear(lambda y: (y - y * 1.0) + torch.tanh(y)),
    "relu, negative": linear(lambda y: torch.relu(y) * -2),
    "gelu, scaled": linear(lambda y: F.gelu(y) * 2),
    "tanh": linear(torch.tanh),
    "factors of columns": linear(lambda y, v: y * v, ROW),
    "activation that is kept": linear(lambda y: (torch.sigmoid(y), y * torch.sigmoid(y))),
    "two residuals": linear(lambda y, r, s: y + r + s, normal(33, 30), normal(33, 30)),
    "half with two biases": (lambda a, b, v: (a @ b + v) * 2, X.half(), Y.half(), ROW.half()),
    "double": linear(lambda y: y.double() * 2),
    "second activation": linear(lambda y: F.silu(torch.relu(y))),
    **EPILOGUES,
}
"""Programs with a kernel for what is left, or for another product."""
RANDOM = {f"random {seed}": seed for seed in range(60)}


def generated(program, args):
    """Each product with its inputs, its reference, and the function that calls the library."""
    found = plan(program, *args)
    parts = contractions(found)
    assert parts
    values = bind_placeholders(found.captured, program, args, {})
    for part, inputs in zip(parts, record_region_inputs(found.captured, parts, values), strict=True):
        config = next(one for one in TRITON.generate_configs(part.region) if isinstance(one, ProductConfig))
        module = TRITON.load(TRITON.emit_module([RegionKernel(part.region, config)]))
        setattr(module, GEMM, gemm)
        yield part.region, inputs, build_reference(found.captured, part), module


def tolerance(one):
    """Of FP16, which torch rounds after every operator; of an integer, the last place of what it is rounded from."""
    known = {torch.float16: {"rtol": 5e-3, "atol": 1e-2}, torch.int32: {"rtol": 0, "atol": 1}}
    return known.get(one.dtype, {"rtol": 1e-5, "atol": 1e-4})


@pytest.mark.parametrize("name", WHOLE)
def test_a_call_computes_a_product_and_what_follows(name):
    program, *args = WHOLE[name]
    for region, inputs, reference, module in generated(program, args):
        (expected,), got = reference(*inputs), getattr(module, region.name)(*inputs)
        assert "make_launcher" not in vars(module), "a kernel for what is left"
        assert (got.shape, got.stride(), got.dtype) == (expected.shape, expected.stride(), expected.dtype)
        torch.testing.assert_close(got, expected, **tolerance(got))


@pytest.mark.parametrize("name", [name for name in PRODUCTS if name != "flipped"])
def test_operands_of_any_layout(name):
    program, *args = PRODUCTS[name]
    for region, inputs, reference, module in generated(program, args):
        torch.testing.assert_close(getattr(module, region.name)(*inputs), *reference(*inputs), rtol=1e-5, atol=1e-4)


@pytest.fixture(scope="module")
def interpreted(request):
    return interpret(__file__, selected_cases(request, "test_a_kernel_computes_what_is_left"))


@pytest.mark.parametrize("name", [*PARTS, *RANDOM])
def test_a_kernel_computes_what_is_left(interpreted, name):
    assert not interpreted[name]["fault"], interpreted[name]["fault"]


def check_part(name):
    program, *args = PARTS[name] if name in PARTS else random_product(RANDOM[name])
    for region, inputs, reference, module in generated(program, args):
        module.libdevice = Library()
        expected, got = reference(*inputs), getattr(module, region.name)(*inputs)
        for one, other in zip(got if isinstance(got, tuple) else (got,), expected, strict=True):
            assert (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)
            torch.testing.assert_close(one, other, **tolerance(one))


def random_product(seed):
    made = RandomProduct(seed)
    return made, *made.inputs


def test_only_what_was_matched_is_left_out():
    (part,) = contractions(plan(*PARTS["gelu, scaled"]))
    matched = match_epilogue(part.region)
    assert matched.activation == "gelu"
    assert [step.op for step in matched.steps] == ["mul"]
    (part,) = contractions(plan(*PARTS["half with two biases"]))
    assert [step.op for step in match_epilogue(part.region).steps] == ["mul"], "a factor of the bias would be rounded"
    (part,) = contractions(plan(*PARTS["second activation"]))
    assert match_epilogue(part.region).activation == "relu"
    (part,) = contractions(plan(*PARTS["activation that is kept"]))
    assert match_epilogue(part.region).activation == "none"


def test_torch_has_no_reversed_operands():
    (part,) = contractions(plan(*PRODUCTS["flipped"]))
    with pytest.raises(Unsupported, match="reversed"):
        print_product(part.region, ProductConfig())
    program, x, w, b, r = linear(lambda y, r: y + r.flip(0), normal(33, 30))
    (part,) = contractions(plan(program, x, w, b, r))
    assert match_epilogue(part.region).residual is None


# ---- which products


def region_of(program, *args, **options):
    return contractions(plan(program, *args, **options))[0].region


def test_other_gpus_and_convolutions_have_no_library_product():
    matrices = region_of(*WHOLE["plain"])
    assert generate_product_configs(matrices, HOPPER)
    for capability in ((8, 0), (8, 9), (10, 0)):
        assert not generate_product_configs(matrices, msgspec.structs.replace(HOPPER, capability=capability))
    images = region_of(Layer(nn.Conv2d(3, 20, 3)).eval(), normal(2, 3, 14, 15))
    assert not generate_product_configs(images, HOPPER)


@pytest.mark.parametrize(
    ("args", "tf32", "precision"),
    [((X, Y), False, "fp32_emulated"), ((X, Y), True, "tf32"), ((X.half(), Y.half()), True, "default")],
)
def test_precision_is_that_of_the_program(args, tf32, precision):
    (config,) = generate_product_configs(region_of(lambda a, b: a @ b, *args, tf32=tf32))
    assert config.precision == precision
    text = TRITON.emit([RegionKernel(region_of(lambda a, b: a @ b, *args, tf32=tf32), config)])
    assert ('precision="' in text) == (precision != "default")


@pytest.mark.parametrize(
    ("shape", "dtype", "num_splits"),
    [
        ((256, 256, 2**19), torch.float32, 32),
        ((256, 256, 2**13), torch.float32, 8),
        ((256, 256, 2**13 + 8), torch.float32, 1),
        ((1024, 8192, 8192), torch.float32, 1),
        ((256, 512, 2**14), torch.bfloat16, 16),
        ((64, 512, 2**14), torch.bfloat16, 1),
    ],
)
def test_sums_are_split_where_the_result_has_few_tiles(shape, dtype, num_splits):
    m, n, k = shape
    args = [torch.empty(*size, dtype=dtype, device="meta") for size in ((m, k), (k, n))]
    configs = generate_product_configs(region_of(lambda a, b: a @ b, *args), HOPPER)
    assert [one.num_splits for one in configs] == ([num_splits, 1] if num_splits > 1 else [1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("bias", [(), (ROW,)])
def test_parts_of_a_sum_are_added(dtype, bias):
    program, args = lambda x, w, *bias: F.linear(x, w, *bias), [one.to(dtype) for one in (X, WEIGHT, *bias)]
    (part,) = contractions(plan(program, *args))
    module = TRITON.load(TRITON.emit_module([RegionKernel(part.region, ProductConfig(num_splits=4))]))
    setattr(module, GEMM, gemm)
    got = getattr(module, part.region.name)(*args)
    torch.testing.assert_close(got, program(*args), **tolerance(got))


# ---- the file


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(40, 64), nn.Linear(64, 40)

    def forward(self, x, gemm):
        return self.down(F.gelu(self.up(x))) + x + gemm


def file_of(program, *args):
    """The file of a program whose products are the library's, as for a GPU."""
    found = plan(program, *args)
    parts = contractions(found)
    kernels = [RegionKernel(part.region, generate_product_configs(part.region)[0]) for part in parts]
    layer = KernelLayer(captured=found.captured, regions=parts, kernels=kernels, device="cuda", same_as=found.same_as)
    assert uses_library(kernels)
    return assemble_file(Problem.from_callable(program, *args), [layer], "A test.")


def test_a_file_computes_a_chain_of_two_products(monkeypatch):
    program, args = Perceptron().eval(), (normal(20, 40), torch.tensor(0.5))
    text = file_of(program, *args)
    assert text.count(f"{GEMM}(") == 2
    text = text.replace("not tensor.is_cuda", "not tensor.is_cpu")  # as if the tensors were on a GPU
    module = load(text, {"Model": Perceptron})
    called = []
    setattr(module, GEMM, lambda *given, **options: called.append(options) or gemm(*given, **options))
    model = module.ModelNew().eval()
    model.load_state_dict(program.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(model(*args), program(*args), rtol=1e-5, atol=1e-5)
    assert [options.get("activation") for options in called] == ["gelu", None]
    assert "residual" in called[1]
    setattr(module, GEMM, None)
    called.clear()
    with torch.no_grad():
        assert torch.equal(model(*args), program(*args)), "the original runs"
    assert not called


def test_a_file_runs_without_kernelwright():
    program, args = lambda a, b: torch.relu(a @ b), (X, Y)
    text = file_of(program, *args)
    code = f"""
import sys, types, warnings
import torch
sys.modules["kernelwright"] = None  # an import of it raises ImportError
module = types.ModuleType("optimised")
module.Model = lambda a, b: torch.relu(a @ b)
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    exec(compile({text!r}, "optimised.py", "exec"), vars(module))
assert any("kernelwright is not installed" in str(one.message) for one in found), found
a, b = torch.randn(20, 40), torch.randn(40, 30)
assert torch.equal(module.ModelNew()(a, b), torch.relu(a @ b))
assert not any(name.startswith("kernelwright.") for name in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/", env={"PATH": ""})
    assert run.returncode == 0, run.stderr[-2000:]


def test_a_file_without_what_the_library_needs_warns(monkeypatch):
    monkeypatch.setattr(product, "gemm_is_available", lambda: False)
    with pytest.raises(RuntimeWarning, match=r"needs the extra cuda"):  # `load` makes warnings errors
        load(file_of(lambda a, b: torch.relu(a @ b) * 3, X, Y), {"Model": None})


@pytest.mark.parametrize(
    ("program", "folded"),
    [
        (lambda x, w, b: torch.tanh((F.linear(x, w) + b).float()), True),
        (lambda x, w, b: torch.tanh(F.linear(x, w, b)), False),
    ],
    ids=["a sum is folded", "the product alone"],
)
def test_what_follows_a_folded_step_reads_fp32(program, folded):
    args = [one.half() for one in (X, WEIGHT, ROW)]
    (part,) = contractions(plan(program, *args))
    text = TRITON.emit_module([RegionKernel(part.region, ProductConfig())])
    assert ("out_dtype=torch.float32" in text) == folded


@pytest.mark.parametrize(
    "program",
    [
        lambda a, b: (a @ b) * float("inf"),
        lambda a, b: (a @ b) * 1e300,
        lambda a, b: (a @ b) * 1e-30 * 1e-30 * 1e38,
        lambda a, b: torch.relu(a @ b) * float("inf"),
    ],
    ids=["inf", "beyond FP32", "vanishing", "inf after relu"],
)
def test_numbers_that_fp32_cannot_hold_are_not_folded(program):
    (part,) = contractions(plan(program, X, Y))
    text = TRITON.emit_module([RegionKernel(part.region, ProductConfig())])
    call = next(line for line in text.splitlines() if f"= {GEMM}(" in line)
    assert "inf" not in call and "nan" not in call and "e+300" not in call
    module = TRITON.load(text)
    setattr(module, GEMM, gemm)


def test_only_files_that_call_the_library_look_for_it():
    region = region_of(*WHOLE["relu"])
    library, other = (RegionKernel(region, config) for config in TRITON.generate_configs(region)[:2])
    assert GEMM in TRITON.emit([library, library])
    assert TRITON.emit([library, library._replace(region=region)]).count("def find_gemm") == 1
    assert GEMM not in TRITON.emit([other])
    assert (TRITON.missing_kernels_check([other]), TRITON.missing_kernels_check([library])) == (
        "",
        f"{GEMM} is None or ",
    )


def test_kernels_of_what_is_left_compile_without_the_library(monkeypatch):
    region = region_of(*PARTS["tanh"])
    module = TRITON.load(TRITON.emit_module([RegionKernel(region, generate_product_configs(region)[0])]))
    setattr(module, GEMM, _empty_product)
    launched = []
    setattr(module, f"launch_{region.name}", lambda *tensors: launched.append(tensors))
    getattr(module, region.name)(*(torch.empty(shape) for shape in region.argument_shapes))
    assert len(launched) == 1


if __name__ == "__main__":
    report_cases({name: lambda name=name: check_part(name) for name in sys.argv[1:]})
