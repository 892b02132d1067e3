"""Contractions on a GPU: near the FP64 result, with the infinities and NaN of torch, and the same in every call."""

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from contraction_programs import Layer, contractions, normal, plan, product

from kernelwright.compiler.backends import TRITON
from kernelwright.compiler.kernel_source import RegionKernel
from kernelwright.compiler.reference import bind_placeholders, build_reference, record_region_inputs

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
REPEATS = 20
FP32_BOUND, TF32_BOUND = 5e-7, 1e-3
"""Of the error, relative to the sum of the products' magnitudes: the split keeps 2**-22, the rest is the summation."""


def layer(kind, *options, after=lambda x, scale: x, **named):
    return Layer(kind(*options, **named), after).eval()


def relu(x, scale):
    return torch.relu(x)


FP32 = {
    "linear with GELU": (layer(nn.Linear, 1024, 768, after=lambda x, scale: F.gelu(x)), normal(512, 1024)),
    "odd product": (product, normal(333, 517), normal(517, 259)),
    "batches": (lambda a, b: a @ b.transpose(-1, -2) * 0.125, normal(2, 12, 200, 64), normal(2, 12, 200, 64)),
    "residual": (lambda a, b, c: torch.relu(a @ b) + c, normal(512, 700), normal(700, 512), normal(512, 512)),
}
HALF = {
    "FP16": (lambda a, b: torch.relu(a @ b), normal(512, 1000).half(), normal(1000, 384).half()),
    "BF16": (lambda a, b: torch.relu(a @ b), normal(512, 1000).bfloat16(), normal(1000, 384).bfloat16()),
}
CONVOLUTIONS = {
    "convolution": (layer(nn.Conv2d, 64, 128, 3, after=relu), normal(4, 64, 40, 41)),
    "first layer": (layer(nn.Conv2d, 3, 64, 7, 2, 3, after=relu), normal(8, 3, 112, 112)),
    "volume": (layer(nn.Conv3d, 3, 16, 3, padding=1, after=relu), normal(4, 3, 20, 40, 40)),
    "transposed": (layer(nn.ConvTranspose2d, 64, 32, 4, 2, 1, after=relu), normal(8, 64, 32, 32)),
    "groups": (layer(nn.Conv2d, 64, 128, 3, groups=4, after=relu), normal(8, 64, 40, 41)),
    "transposed with stride 3": (layer(nn.ConvTranspose2d, 32, 48, 4, 3, 1, after=relu), normal(8, 32, 33, 34)),
    "transposed and dilated": (
        layer(nn.ConvTranspose2d, 32, 64, 3, 5, 1, dilation=2, after=relu),
        normal(8, 32, 32, 40),
    ),
    "transposed groups": (layer(nn.ConvTranspose3d, 32, 32, 3, 2, 1, groups=4, after=relu), normal(4, 32, 12, 13, 14)),
    "transposed volume": (layer(nn.ConvTranspose3d, 32, 16, 3, 2, 1, 1, after=relu), normal(4, 32, 12, 13, 14)),
}


def on_gpu(program, args):
    return (program.cuda() if isinstance(program, nn.Module) else program), [one.cuda() for one in args]


def kernels(program, args, *, tf32):
    """Each region with its inputs, its reference, and the function of each config."""
    program, args = on_gpu(program, args)
    found = plan(program, *args, tf32=tf32)
    parts = contractions(found)
    assert parts
    values = bind_placeholders(found.captured, program, args, {})
    for part, inputs in zip(parts, record_region_inputs(found.captured, parts, values), strict=True):
        configs = TRITON.generate_configs(part.region)
        chosen = {getattr(one, "operands", ""): one for one in [*configs[::-1], configs[0]]}.values()
        for config in dict.fromkeys([*chosen, configs[-1]]):
            module = TRITON.load(TRITON.emit_module([RegionKernel(part.region, config)]))
            yield part.region, inputs, build_reference(found.captured, part), getattr(module, part.region.name), config


def in_double(one):
    return one.double() if one.is_floating_point() else one


def check(program, args, *, tf32, tolerance):
    for region, inputs, reference, kernel, config in kernels(program, args, tf32=tf32):
        (exact,) = reference(*map(in_double, inputs))
        magnitudes = reference(*(in_double(one).abs() for one in inputs))[0].abs()
        limit = torch.maximum(magnitudes, exact.abs()) * tolerance + tolerance
        got = kernel(*inputs)
        error = (got.double() - exact).abs()
        assert (error <= limit).all(), f"{config}: {(error / limit).max():.2f} times the bound"
        for _ in range(REPEATS):
            assert torch.equal(kernel(*inputs), got), f"{config}: {region.name} differs between calls"


@pytest.mark.parametrize("name", FP32)
def test_fp32_products_have_the_accuracy_of_fp32(name):
    program, *args = FP32[name]
    check(program, args, tf32=False, tolerance=FP32_BOUND)


@pytest.mark.parametrize("name", HALF)
def test_half_precision_is_rounded_once(name):
    program, *args = HALF[name]
    check(program, args, tf32=False, tolerance={"FP16": 2**-10, "BF16": 2**-7}[name])


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_have_the_accuracy_of_tf32_where_torch_permits_it(name):
    program, *args = CONVOLUTIONS[name]
    check(program, args, tf32=True, tolerance=TF32_BOUND)


@pytest.mark.parametrize("name", list(CONVOLUTIONS)[::2])
def test_convolutions_have_the_accuracy_of_fp32_elsewhere(name):
    program, *args = CONVOLUTIONS[name]
    check(program, args, tf32=False, tolerance=2e-6)


def test_rows_beyond_the_split_are_as_in_torch():
    x, y = normal(512, 600), normal(600, 520)
    x[3, 4], x[5, 5], x[11] = float("inf"), float("nan"), 0
    x[7] *= 1e30
    x[9] *= 1e-35
    y[2, 300] = float("-inf")
    columns = [at for at in range(520) if at != 300]
    for _, inputs, reference, kernel, config in kernels(lambda a, b: (a @ b) * 2, [x, y], tf32=False):
        got, (right,), (exact,) = kernel(*inputs), reference(*inputs), reference(*map(in_double, inputs))
        assert torch.equal(got.isnan(), right.isnan()), config
        assert torch.equal(got.isinf() * got.sign().nan_to_num(), right.isinf() * right.sign().nan_to_num()), config
        for row, tolerance in ((0, 2e-6), (7, 2e-6), (9, 1e-3), (11, 0)):
            error = (got.double() - exact)[row, columns].abs().max()
            assert error <= tolerance * exact[row, columns].abs().max(), f"{config}: row {row}"


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_images_beyond_fp16_do_not_change_others(name):
    program, image = CONVOLUTIONS[name]
    image = image[:4].clone()
    image[1].view(-1)[0], image[1].view(-1)[-1] = float("inf"), float("nan")
    image[2] *= 1e25
    with torch.no_grad():
        exact = program.cpu().double()(image.double()).cuda()
    program.float()
    others = [at for at in range(len(image)) if at != 1]
    largest = exact[others].abs().flatten(1).amax(1)
    for _, inputs, _, kernel, config in kernels(program, [image], tf32=True):
        got = kernel(*inputs).double()
        error = (got - exact)[others].abs().flatten(1).amax(1)
        assert (error <= 5e-3 * largest).all(), config
        assert torch.equal(got[1].isfinite(), exact[1].isfinite()), config
