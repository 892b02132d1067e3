"""Contractions printed as Triton: interpreted, they compute what torch does; compiled, they load whole vectors."""

import copy
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))  # for this file alone, where it is interpreted
sys.path.insert(0, str(Path(__file__).parent))
from contraction_programs import (
    ALL,
    CONVOLUTIONS,
    EPILOGUES,
    PRODUCTS,
    TRANSPOSED,
    Layer,
    contractions,
    normal,
    plan,
    product,
)
from tiers import slow
from triton_interpreter import compiled, interpret, module_of, report_cases, selected_cases

from kernelwright.compiler.reference import bind_placeholders, build_reference, record_region_inputs
from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.triton import contractions as triton_contractions
from kernelwright.compiler.triton.contraction_configs import ContractionConfig, generate_contraction_configs
from kernelwright.compiler.triton.contractions import print_contraction

triton = pytest.importorskip("triton")
pytestmark = pytest.mark.xdist_group("triton")
SPLIT_BOUND, TF32_BOUND = 4e-7, 1e-3
"""Of the error, relative to the sum of the products' magnitudes."""
SMALL_TILE = {"BLOCK_M": 32, "BLOCK_N": 64}


def poisoned(tensor, shape, strides, dtype=None):
    """Memory in which nothing is as it should be."""
    made = torch.empty_strided(shape, strides, dtype=dtype or tensor.dtype)
    return made.fill_(float("nan") if made.is_floating_point() else 77)


def small(config):
    """A config whose tiles the interpreter computes quickly, with several steps along k."""
    block_k = min(config.BLOCK_K, 16 if config.operands == "packed" else 32)
    tile = {name: min(size, getattr(config, name)) for name, size in SMALL_TILE.items()}
    return msgspec.structs.replace(config, **tile, BLOCK_K=block_k)


def run_region(region, inputs, config):
    printed = print_contraction(region, config)
    module = module_of(printed)
    module.empty_on_device_of = poisoned
    made = {one.buffer: poisoned(torch.empty(0, dtype=getattr(torch, one.dtype)), one.shape, one.shape_strides)
            for one in region.stores}  # fmt: skip
    before = [one.clone() for one in inputs]
    getattr(module, printed.launcher_name)(*inputs, *made.values())
    assert all(torch.equal(old.nan_to_num(), new.nan_to_num()) for old, new in zip(before, inputs, strict=True))
    return list(made.values())


def in_double(one):
    return one.double() if one.is_floating_point() else one


def check_output(got, right, exact, bound):
    """The same infinities and NaN as in torch, and elsewhere an error below the bound of each element."""
    assert (got.shape, got.stride(), got.dtype) == (right.shape, right.stride(), right.dtype)
    if not got.is_floating_point():
        off = (got != right).float().mean()
        assert off < 0.02, f"{off:.1%} of the elements differ"
        return
    assert torch.equal(got.isnan(), right.isnan())
    assert torch.equal(got.isinf() * got.sign().nan_to_num(), right.isinf() * right.sign().nan_to_num())
    finite = right.isfinite()
    error, limit = (got.double() - exact).abs()[finite], bound[finite]
    assert (error <= limit).all(), f"{(error / limit).max():.2f} times the bound"


def check(program, args, *, tf32=False, modes=1, hard=False):
    """Every contraction of a program with every kind of operands against torch in FP32 and FP64."""
    planned = plan(program, *args, tf32=tf32)
    values = bind_placeholders(planned.captured, program, args, {})
    parts = contractions(planned)
    assert parts, "nothing was planned"
    for part, inputs in zip(parts, record_region_inputs(planned.captured, parts, values), strict=True):
        reference = build_reference(planned.captured, part)
        rights, exacts = reference(*inputs), reference(*map(in_double, inputs))
        configs = {one.operands: small(one) for one in generate_contraction_configs(part.region)[::-1]}
        assert len(configs) >= modes
        for one in configs.values():
            outputs = run_region(part.region, inputs, one)
            for got, right, exact in zip(outputs, rights, exacts, strict=True):
                check_output(got, right, exact, bound_of(part.region, reference, inputs, right, exact, hard))


def bound_of(region, reference, inputs, right, exact, hard):
    """The bound of each element: from the magnitudes of its products for a product alone, else from the largest."""
    tolerance = TF32_BOUND if region.contraction.tf32 else SPLIT_BOUND
    tolerance = {torch.float16: 1e-3, torch.bfloat16: 8e-3}.get(right.dtype, tolerance)
    if not region.epilogue.steps:
        (magnitudes, *_) = reference(*(in_double(one).abs() for one in inputs))
        return magnitudes * tolerance * (1.25 if hard else 1) + 1e-44
    finite = exact[exact.isfinite()].double().abs()
    return torch.full_like(exact, max(finite.max().item(), 1.0) * tolerance * 10, dtype=torch.float64)


# ---- hard values


def hard_operands():
    """Rows with infinity, NaN, huge and tiny numbers, zeros, and exponents far apart."""
    x, y = normal(130, 40), normal(40, 70)
    x[3, 4], x[5, 5], x[11] = float("inf"), float("nan"), 0
    x[7] *= 1e30
    x[9] *= 1e-35
    x[13] *= torch.exp2(torch.linspace(-15, 15, 40))
    y[:, 8] *= torch.exp2(torch.linspace(15, -15, 40))
    y[2, 3], y[7, 69] = float("-inf"), 3e38
    y[:, 12] = 0
    return x, y


def hard_layer(layer, image, *, in_weight=False):
    layer = Layer(layer).eval()
    image = normal(*image)
    image[1].view(-1)[7], image[1].view(-1)[-1] = float("inf"), float("nan")
    image[2] *= 1.0 if in_weight else 1e25
    image[3] = 0
    image[4] *= 1e-30
    if in_weight:
        (weight, *_) = layer.layer.parameters()
        weight.data[1].view(-1)[3] = float("inf")
        weight.data[2] *= 1e30
    return layer, image


HARD_IMAGES = {
    "image": (hard_layer(nn.Conv2d(3, 6, 3), (6, 3, 6, 7)), 2),
    "first_pixel": (hard_layer(nn.Conv1d(5, 6, 3), (6, 5, 9)), 2),
    "padded": (hard_layer(nn.Conv2d(5, 7, 3, padding=1, dilation=2), (6, 5, 6, 7)), 2),
    "weight": (hard_layer(nn.Conv2d(3, 6, 3), (6, 3, 6, 7), in_weight=True), 2),
    "t_volume": (
        hard_layer(
            nn.ConvTranspose3d(5, 6, (3, 5, 7), stride=(2, 2, 1), padding=(1, 2, 3), output_padding=(1, 1, 0)),
            (6, 5, 2, 3, 3),
        ),
        1,
    ),
    "t_gaps": (hard_layer(nn.ConvTranspose2d(3, 6, (5, 3), stride=(3, 5), padding=(1, 0)), (6, 3, 4, 3)), 1),
    "t_signal": (hard_layer(nn.ConvTranspose1d(4, 7, 3, stride=2), (6, 4, 9)), 1),
}  # fmt: skip


def three_programs():
    """Three programs compute what is lost in all tiles, of which there are more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton_contractions, "EXACT_PROGRAMS", 3)
        (program, image), modes = HARD_IMAGES["t_signal"]
        check(program, [image], tf32=True, modes=modes)


def halves(program):
    """A program whose module and inputs are in FP16."""
    layer, image = program
    return copy.deepcopy(layer).half(), image.half()


def random_products(count):
    """Products of random shapes, dtypes and layouts."""
    random = torch.Generator().manual_seed(1)

    def size():
        return int(torch.randint(2, 70, (), generator=random))

    for at in range(count):
        batch, m, n, k = size() % 4 + 1, size(), size(), size()
        left, right = normal(batch, m, k + 3, seed=at)[:, :, 3 * (at % 2) : k + 3 * (at % 2)], normal(batch, n, k)
        if at % 3 == 0:
            left = left.transpose(1, 2).contiguous().transpose(1, 2)
        if at % 4 == 0:
            left, right = left.half(), right.half()
        yield f"{batch}x{m}x{n}x{k}", (lambda a, b: torch.bmm(a, b.transpose(1, 2)), left, right)


RANDOM = dict(random_products(16))


def random_transposed(count):
    """Transposed convolutions with random strides, dilations, paddings and groups, in 1 to 3 dimensions."""
    random = torch.Generator().manual_seed(2)

    def size(least, most):
        return int(torch.randint(least, most + 1, (), generator=random))

    for at in range(count):
        rank, groups = at % 3 + 1, at % 2 + 1
        kind = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[rank - 1]
        kernel, stride, dilation = ([size(1, most) for _ in range(rank)] for most in (4, 4, 3))
        reach = [(taps - 1) * far for taps, far in zip(kernel, dilation, strict=True)]
        padding = [size(0, min(2, most // 2)) for most in reach]
        extra = [size(0, max(step, far) - 1) for step, far in zip(stride, dilation, strict=True)]
        channels, out = groups * size(2, 9), groups * size(1, 20)
        layer = kind(channels, out, kernel, stride, padding, extra, groups, dilation=dilation)
        yield f"t_random_{at}", (Layer(layer).eval(), normal(2, channels, *(size(2, 5) for _ in range(rank))))


RANDOM_TRANSPOSED = dict(random_transposed(12))


def cases():
    """By name, a function that checks it."""
    for name, (program, *args) in (PRODUCTS | EPILOGUES | RANDOM).items():
        yield f"{name}", lambda p=program, a=args: check(p, a)
    for name in ("linear_bias", "bmm_four", "odd", "scaled", "chain"):
        program, *args = (PRODUCTS | EPILOGUES)[name]
        yield f"{name}-tf32", lambda p=program, a=args: check(p, a, tf32=True)
    for name, (program, image) in (CONVOLUTIONS | TRANSPOSED | RANDOM_TRANSPOSED).items():
        modes = 1 if name.startswith("t_") or "forty" in name else 2
        for tf32 in (False, True):
            yield f"{name}{'-tf32' * tf32}", lambda p=program, x=image, t=tf32, n=modes: check(p, [x], tf32=t, modes=n)
    for name in (
        "every_option",
        "one_channel",
        "t_phases",
        "t_volume",
        "t_gaps",
        "seventeen_channels",
        "groups",
        "t_strided_dilated",
        "t_groups",
    ):
        modes = 1 if name.startswith("t_") else 2
        program, image = halves((CONVOLUTIONS | TRANSPOSED)[name])
        yield f"{name}-half", lambda p=program, x=image, n=modes: check(p, [x], modes=n)
    x, y = hard_operands()
    yield "hard", lambda: check(product, [x, y], hard=True)
    yield "hard-epilogue", lambda: check(lambda a, b, c: (a @ b) * c + 1, [x, y, normal(130, 1)])
    yield "hard-batches", lambda: check(product, [torch.stack([x, x.flip(0)]), torch.stack([y, y * 2])], hard=True)
    for name, ((program, image), modes) in HARD_IMAGES.items():
        for tf32 in (False, True):
            yield (
                f"hard-{name}{'-tf32' * tf32}",
                lambda p=program, x=image, t=tf32, n=modes: check(p, [x], tf32=t, modes=n),
            )
    yield "hard-three_programs-tf32", three_programs


NAMES = [name for name, _ in cases()]
_FAST = {
    "linear_bias", "bmm_four", "flipped", "of_itself", "kept", "outputs", "positions", "rows_and_columns", "heads",
    "named", "halves", "batches_of_heads", "odd-tf32", "plain-tf32", "one_channel-tf32", "signal", "t_phases-half",
    "t_empty_phases-tf32",
    "t_groups-tf32", "hard-epilogue", "hard-first_pixel-tf32", "hard-t_signal", *list(RANDOM)[:1],
}  # fmt: skip
TIERS = [name if name in _FAST else slow(name) for name in NAMES]


@pytest.fixture(scope="module")
def interpreted(request):
    """What the selected cases gave, all from one process."""
    return interpret(__file__, selected_cases(request, "test_interpreted_contractions_compute_what_torch_does"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", TIERS)
def test_interpreted_contractions_compute_what_torch_does(interpreted, name):
    assert not interpreted[name]["fault"]


# ---- what is printed, and what the compiler makes of it


def meta(*shape, dtype=torch.float32):
    return torch.empty(shape, device="meta", dtype=dtype)


def region_of(program, *args, **options):
    (part,) = contractions(plan(program, *args, **options))
    return part.region


def stack_bytes(kernel):
    """Bytes of local memory that each thread of a compiled kernel has for registers that are spilled."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        command = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        usage = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    return int(re.search(r"STACK:(\d+)", usage)[1])


def test_windows_that_begin_at_odd_elements_are_not_loaded_in_pairs():
    layer = Layer(torch.nn.ConvTranspose2d(32, 48, 4, 3, 1)).eval()
    region = region_of(layer, normal(4, 32, 33, 34), tf32=True)
    config = generate_contraction_configs(region)[0]
    (exact,) = [one for one in compiled(region, config) if one.metadata.name.endswith("exact_kernel")]
    assert "ld.global.v2" not in exact.asm["ptx"]


def wide_layer(kind, *options):
    return Layer(kind(*options), lambda x, scale: x.relu()).to("meta")


LARGE = {
    "split": (product, [meta(1024, 512), meta(512, 1000)], False),
    "tf32": (product, [meta(1024, 512), meta(512, 1000)], True),
    "bfloat16": (product, [meta(1024, 512, dtype=torch.bfloat16), meta(512, 1000, dtype=torch.bfloat16)], False),
    "packed": (wide_layer(nn.Conv2d, 64, 128, 3), [meta(8, 64, 64, 64)], True),
    "packed_fp32": (wide_layer(nn.Conv2d, 64, 128, 3), [meta(8, 64, 64, 64)], False),
    "packed_phases": (wide_layer(nn.ConvTranspose2d, 64, 64, 4, 2, 1), [meta(8, 64, 32, 32)], True),
    "packed_pixels": (wide_layer(nn.Conv2d, 8, 64, 3, 2), [meta(32, 8, 64, 64)], True),
}


@pytest.mark.parametrize("name", ["packed", *(slow(name) for name in LARGE if name != "packed")])
def test_the_operands_of_compiled_loops_are_copied_asynchronously_in_whole_vectors(name):
    program, args, tf32 = LARGE[name]
    region = region_of(program, *args, tf32=tf32, any_size=False)
    config = next(
        one for one in generate_contraction_configs(region) if one.operands != "direct" or "acked" not in name
    )
    *_, main = [one for one in compiled(region, config) if not one.metadata.name.endswith("exact_kernel")]
    assert re.search(r"wgmma|mma\.sync", main.asm["ptx"])
    assert "cp.async" in main.asm["ptx"]
    loads = re.findall(r"ld\.global\S*", main.asm["ptx"])
    assert not [load for load in loads if load.endswith(("b16", "u16", "b8"))]
    assert len(loads) <= 32, "scales and bias alone"


@pytest.mark.parametrize("kernel", [4, slow(3)])
def test_compiled_phases_are_stored_in_whole_vectors_without_spills(kernel):
    """Output pixels of all phases of a line are stored together, and wait for that in registers."""
    program = wide_layer(nn.ConvTranspose2d, 64, 64, kernel, 2, 1, kernel % 2)
    region = region_of(program, meta(8, 64, 32, 32), tf32=True, any_size=False)
    for config in generate_contraction_configs(region)[:2]:
        *_, main = [one for one in compiled(region, config) if not one.metadata.name.endswith("exact_kernel")]
        assert set(re.findall(r"st\.global\S*", main.asm["ptx"])) == {"st.global.v4.b32"}
        assert stack_bytes(main) == 0


@pytest.mark.slow
@pytest.mark.parametrize("layer", range(3))
def test_tiles_of_packed_fp32_do_not_spill(layer):
    layers = (
        (nn.Conv2d, (64, 128, 3), (8, 64, 66, 66)),
        (nn.Conv2d, (40, 48, 3), (8, 40, 66, 66)),
        (nn.ConvTranspose2d, (64, 128, 4, 2, 1), (8, 64, 33, 33)),
    )
    kind, options, image = layers[layer]
    region = region_of(wide_layer(kind, *options), meta(*image), any_size=False)
    for config in generate_contraction_configs(region):
        *_, main = compiled(region, config)
        assert stack_bytes(main) == 0, config


def test_few_programs_look_for_what_scaled_operands_lose():
    region = region_of(LARGE["packed_phases"][0], meta(32, 64, 256, 256), tf32=True, any_size=False)
    launcher = print_contraction(region, generate_contraction_configs(region)[0]).launcher
    (programs,) = re.findall(r"_exact_kernel, (\d+), 8\)", launcher)
    assert int(programs) == triton_contractions.EXACT_PROGRAMS


def test_phases_without_taps_have_no_loop():
    program = wide_layer(nn.ConvTranspose2d, 64, 64, 3, 2, 1, 0, 1, False, 2)
    region = region_of(program, meta(8, 64, 32, 32), tf32=True, any_size=False)
    printed = print_contraction(region, generate_contraction_configs(region)[0]).kernels
    main = printed[printed.index(f"def {region.name}_kernel") : printed.index(f"def {region.name}_exact_kernel")]
    assert main.count("tl.dot(") == 1
    assert "acc = tl.interleave(acc_0, acc_1)" in main


def test_a_loop_has_no_remainders():
    """Triton does not know that a remainder of a multiple of 8 is one, and would load element by element."""
    region = region_of(*LARGE["packed"][:1], *LARGE["packed"][1], tf32=True)
    printed = print_contraction(region, generate_contraction_configs(region)[0]).kernels
    assert re.search(r"in_run = k - run \* 192", printed)
    assert not re.search(r"\bk % ", printed)


def test_offsets_beyond_int32_are_wider():
    region = region_of(lambda a, b: (a @ b).relu(), meta(2**17, 64), meta(64, 2**15), any_size=False)
    printed = print_contraction(region, generate_contraction_configs(region)[0])
    assert "rows = (offs_m).to(tl.int64)" in printed.kernels
    assert printed.kernels.count("rows = (offs_m).to(tl.int64)") == 2, "in the exact kernel too"
    deep = region_of(lambda a, b: a @ b, meta(2**16, 2**16), meta(2**16, 64), any_size=False)
    printed = print_contraction(deep, generate_contraction_configs(deep)[0]).kernels
    assert "left_rows.to(tl.int64)" in printed
    assert "start = rows.to(tl.int64)" in printed
    assert "offs_m[:, None].to(tl.int64)" in printed, "in the exact kernel"


def test_narrow_offsets_are_int32():
    region = region_of(*LARGE["split"][:1], *LARGE["split"][1])
    printed = print_contraction(region, generate_contraction_configs(region)[0]).kernels
    assert "left_rows[:, None]" in printed
    assert "rows = offs_m\n" in printed


def test_a_tensor_of_the_program_may_have_the_name_of_a_buffer():
    region = region_of(*EPILOGUES["named"])
    config = next(one for one in generate_contraction_configs(region) if one.operands == "split")
    assert set(print_contraction(region, config).scratch) == {
        "left_operand_hi", "left_operand_lo", "left_operand_scale", "right_operand_hi", "right_operand_lo",
        "right_operand_scale",
    }  # fmt: skip


def test_what_has_no_form_is_a_misfit():
    images = region_of(CONVOLUTIONS["plain"][0], CONVOLUTIONS["plain"][1], tf32=True)
    matrices = region_of(*PRODUCTS["mm"])
    tile = {"BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4, "num_stages": 3}
    with pytest.raises(Unsupported, match="images in two terms"):
        print_contraction(images, ContractionConfig(**tile, BLOCK_K=16, operands="split"))
    with pytest.raises(Unsupported, match="packed matrices"):
        print_contraction(matrices, ContractionConfig(**tile, BLOCK_K=16, operands="packed"))
    with pytest.raises(Unsupported, match="not a multiple of the step"):
        print_contraction(images, ContractionConfig(**tile, BLOCK_K=64, operands="packed"))
    scaled = region_of(*EPILOGUES["scaled"])
    steps = (msgspec.structs.replace(scaled.epilogue.steps[0], op="bessel"), *scaled.epilogue.steps[1:])
    unknown = msgspec.structs.replace(scaled, epilogue=msgspec.structs.replace(scaled.epilogue, steps=steps))
    with pytest.raises(Unsupported, match="bessel"):
        print_contraction(unknown, generate_contraction_configs(unknown)[0])


def test_printed_text_is_narrow_and_has_no_dead_lines():
    for name in ("kept", "heads", "every_option", "t_volume", "seventeen_channels", "bmm_four"):
        program, *args = ALL[name]
        for part in contractions(plan(program, *args, tf32=name == "t_volume")):
            for config in generate_contraction_configs(part.region):
                printed = print_contraction(part.region, config)
                assert max(map(len, (printed.source + printed.launcher).splitlines())) <= 100
                for kernel in printed.kernels.split("@triton.jit"):
                    given = re.findall(r"^ +(\w+) = ", kernel, re.MULTILINE)
                    assert all(len(re.findall(rf"\b{word}\b", kernel)) > 1 for word in given)


@pytest.mark.parametrize("name", ["mm", "bmm_four", "plain", "forty_channels", "t_phases", "halves"])
def test_configs_are_different_and_do_not_waste_most_of_a_tile(name):
    program, *args = ALL[name]
    (part, *_) = contractions(plan(program, *args, tf32=True))
    configs = generate_contraction_configs(part.region)
    assert configs and len(set(configs)) == len(configs)
    smallest = min(one.BLOCK_M for one in configs)
    assert all(2 * max(part.region.contraction.m, smallest) > one.BLOCK_M for one in configs)


def test_products_that_memory_limits_are_not_split():
    shallow = region_of(lambda a, b: a @ b, meta(64, 64, 128), meta(64, 128, 16), any_size=True)
    configs = generate_contraction_configs(shallow)
    assert [one.operands for one in configs[:1] + configs[-1:]] == ["direct", "split"]
    assert not print_contraction(shallow, configs[0]).scratch
    deep = region_of(lambda a, b: a @ b, meta(512, 512), meta(512, 512), any_size=False)
    assert {one.operands for one in generate_contraction_configs(deep)} == {"split"}


@pytest.mark.parametrize(
    ("k", "steps"), [(5, {(16, 1)}), (32, {(32, 1)}), (100, {(64, 2)}), (4096, {(64, 3), (64, 4)})]
)
def test_short_sums_have_short_steps_and_pipelines(k, steps):
    (part,) = contractions(plan(product, normal(256, k), normal(k, 256), tf32=False))
    configs = generate_contraction_configs(part.region)
    assert {(one.BLOCK_K, one.num_stages) for one in configs if one.operands == "split"} == steps


@pytest.mark.parametrize("channels", [41, 144, 480, 528, 1056])
@pytest.mark.parametrize("filters", [24, 128, 300])
def test_every_number_of_channels_has_a_tile(channels, filters):
    layer = nn.Conv2d(channels, filters, 1)
    (part,) = contractions(plan(layer, torch.randn(1, channels, 20, 20), tf32=True))
    assert generate_contraction_configs(part.region)


if __name__ == "__main__":
    report_cases({name: run for name, run in cases() if not sys.argv[1:] or name in sys.argv[1:]})
