"""Which operators of a GPU program become contractions, with which epilogue, and which do not."""

import sys
from pathlib import Path

import msgspec
import pytest
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from contraction_programs import ALL, CONVOLUTIONS, Layer, contractions, normal, plan, planned_for_gpu, product
from tiers import fast_where

from kernelwright.compiler.capture.capture import capture
from kernelwright.compiler.forward_codegen import ForwardCodegen
from kernelwright.compiler.guards import emit_precision_checks
from kernelwright.compiler.planning import anonymous_text, plan_program
from kernelwright.compiler.reference import bind_placeholders, build_reference, record_region_inputs
from kernelwright.compiler.regions.contraction import ContractionRegion
from kernelwright.compiler.regions.contraction_planning import plan_contractions
from kernelwright.compiler.regions.lowering import lower_nodes
from kernelwright.compiler.regions.region import Region
from kernelwright.verification.outcome import widened_precision

X, Y = normal(20, 40), normal(40, 30)
FEWEST = {"kept": 2, "chain": 2}
"""Contractions of programs with several."""


@pytest.mark.parametrize("name", fast_where(range(0, 99, 5), list(ALL)))
def test_every_contraction_is_planned_and_its_reference_is_the_program(name):
    program, *args = ALL[name]
    found = plan(program, *args)
    parts = contractions(found)
    assert len(parts) == FEWEST.get(name, 1)
    values = bind_placeholders(found.captured, program, args, {})
    (inputs, *_) = record_region_inputs(found.captured, parts, values)
    outputs = build_reference(found.captured, parts[0])(*inputs)
    assert [list(one.shape) for one in outputs] == [list(store.shape) for store in parts[0].region.stores]
    if len(found.regions) == 1 and len(outputs) == 1:
        with torch.no_grad():
            torch.testing.assert_close(outputs[0], program(*args))


def meta(*shape, dtype=torch.float32):
    return torch.empty(shape, device="meta", dtype=dtype)


LARGE = meta(512, 512)
NOT_PLANNED = {
    "one channel a group": (Layer(nn.Conv2d(32, 64, 3, groups=32)).to("meta"), meta(16, 32, 64, 64)),
    "few rows a group": (Layer(nn.Conv2d(64, 64, 3, groups=16)).to("meta"), meta(16, 64, 64, 64)),
    "FP64": (product, LARGE.double(), LARGE.double()),
    "integers": (lambda a, b: (a @ b) + 1, LARGE.int(), LARGE.int()),
    "few operations": (product, meta(64, 512), meta(512, 512)),
    "few rows": (product, meta(8, 4096), meta(4096, 4096)),
    "few columns": (product, meta(4096, 4096), meta(4096, 8)),
    "shallow": (product, meta(4096, 8), meta(8, 4096)),
    "a vector": (product, meta(16384, 16384), meta(16384)),
    "broadcast batches": (product, meta(8, 1, 512, 512), meta(1, 3, 512, 512)),
    "a bias of one element": (lambda c, a, b: torch.addmm(c, a, b), meta(1), LARGE, LARGE),
    "a bias that is a matrix": (lambda c, a, b: F.linear(a, b, c), LARGE, LARGE, LARGE),
    "rows that are not one dimension": (lambda a, b: a[:, :500] @ b, meta(4, 512, 512), LARGE),
}  # fmt: skip


@pytest.mark.parametrize("what", NOT_PLANNED)
def test_torch_computes_other_products(what):
    program, *args = NOT_PLANNED[what]
    assert not contractions(plan(program, *args, any_size=False))


@pytest.mark.parametrize("program", [product, lambda a, b: (a @ b).relu()])
def test_products_of_that_size_are_planned(program):
    assert contractions(plan(program, LARGE, LARGE, any_size=False))
    assert contractions(plan(program, LARGE.half(), LARGE.half(), any_size=False))


@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_groups_of_a_few_channels_are_planned(kind):
    layer = Layer(kind(32, 32, 3, stride=2, groups=4)).to("meta")
    (part,) = contractions(plan(layer, meta(32, 32, 64, 64), any_size=False))
    one = part.region.contraction
    assert (one.batch, one.m, one.right.channels) == (32 * 4, 8, 8)
    assert part.region.bytes_moved[0] == 4 * (32 * 8 * 9 + 32 * 32 * 64 * 64)


def test_a_cpu_program_has_no_contractions():
    assert not contractions(plan_program(product, [normal(512, 512), normal(512, 512)], {}))


# ---- epilogues


@pytest.mark.parametrize(
    "program",
    [
        lambda a, b: (a @ b)[:10] + 1,
        lambda a, b: (a @ b).softmax(-1),
        lambda a, b: (a @ b).square().sum(0),
        lambda a, b: (a @ b) + (a @ b).flip(1),
        lambda a, b: (a @ b)[:, None] * a[:, :3, None],
    ],
    ids=["a part", "a reduction", "a sum", "flipped", "repeated"],
)
def test_other_regions_read_the_stored_product(program):
    parts = plan(program, X, Y).regions
    (one,) = [part for part in parts if isinstance(part.region, ContractionRegion)]
    assert not one.region.epilogue.steps
    assert any(one.region.writes[0] in part.region.reads for part in parts if part is not one)


KEPT = {
    "returned": (lambda p: (p.relu(), p), True),
    "read as a view": (lambda p: (p.relu(), p.view(-1).cumsum(0)), True),
    "read by torch": (lambda p: (p.relu(), torch.linalg.norm(p, 2)), True),
    "read by the epilogue alone": (lambda p: p.relu() + p, False),
    "read through a view": (lambda p: p.view(40, 15).relu(), False),
}


@pytest.mark.parametrize("what", KEPT)
def test_a_product_is_stored_if_something_else_reads_it(what):
    after, is_kept = KEPT[what]
    (part,) = contractions(plan(lambda a, b: after(a @ b), X, normal(40, 30)))
    one = part.region
    stored = [store for store in one.stores if store.buffer == one.contraction.value]
    assert len(stored) == is_kept


def regions_of(graph, *groups):
    """A partition of a graph: by name, its nodes and those that it stores."""
    by_name = {node.name: node for node in graph.nodes}
    planned = []
    for at, (names, stored) in enumerate(groups):
        nodes = [by_name[name] for name in names]
        lowered = lower_nodes(nodes)
        planned.append((lowered.build(f"region_{at}", [by_name[name] for name in stored]), nodes))
    return planned


def test_the_region_that_moves_most_becomes_the_epilogue():
    with planned_for_gpu():
        graph = capture(lambda a, b, c: ((p := a @ b).sin(), p * c), (X, Y, normal(20, 30)), {}).graph
        apart = regions_of(graph, (["sin"], ["sin"]), (["mul"], ["mul"]))
        (fused, _), (other, _) = plan_contractions(graph, apart)
    assert (type(fused), fused.writes) == (ContractionRegion, ["mul", "matmul"])
    assert (other.reads, other.writes) == (["matmul"], ["sin"])


def test_an_epilogue_reads_nothing_that_another_region_computes_after_the_product():
    """The other region reads the product for one output, so that all of its outputs come after it."""

    def program(a, b, y):
        p, v = a @ b, y.sin()
        return (p + v).sum(-1), p * v, v

    with planned_for_gpu():
        graph = capture(program, (X, Y, normal(20, 30)), {}).graph
        names = [node.name for node in graph.nodes if node.op == "call_function"]
        assert names == ["matmul", "sin", "add", "sum_1", "mul"]
        both = regions_of(graph, (["sin", "add", "sum_1"], ["sin", "sum_1"]), (["mul"], ["mul"]))
        assert [type(one) for one, _ in plan_contractions(graph, both)] == [ContractionRegion, Region, Region]
        apart = regions_of(graph, (["sin"], ["sin"]), (["add", "sum_1"], ["sum_1"]), (["mul"], ["mul"]))
        fused = {one.name: type(one) for one, _ in plan_contractions(graph, apart)}
        assert fused["region_2"] is ContractionRegion


def test_an_epilogue_reads_nothing_that_torch_computes_from_the_product():
    parts = plan(lambda a, b: (p := a @ b) + torch.linalg.norm(p, 2), X, Y).regions
    (one,) = [part for part in parts if isinstance(part.region, ContractionRegion)]
    assert not one.region.epilogue.steps


class Accumulated(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(20, 30))

    def forward(self, a, b):
        self.total.mul_(0.5).add_(a @ b)
        return a.sum()


def test_an_epilogue_does_not_overwrite_what_it_may_read_again():
    """The exact kernel reads the inputs of the epilogue after the main kernel has stored its outputs."""
    found = plan(Accumulated(), X, Y)
    (one,) = contractions(found)
    assert "b_total" in one.region.reads
    names = {part.region.name for part in found.regions}
    assert not ForwardCodegen(found.captured, found.regions, {}, names).in_place.get(one.region.name)


# ---- equal ones, and what torch permits


def altered(record):
    """Copies of a record, each with one number or tuple of numbers changed."""
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if isinstance(value, bool):
            yield name, msgspec.structs.replace(record, **{name: not value})
        elif isinstance(value, int):
            yield name, msgspec.structs.replace(record, **{name: value + 1})
        elif isinstance(value, tuple) and value and isinstance(value[0], int):
            yield name, msgspec.structs.replace(record, **{name: (*value[:-1], value[-1] + 1)})
        elif isinstance(value, tuple) and value and isinstance(value[0], tuple):
            last = (*value[-1][:-1], value[-1][-1] + 1)
            yield name, msgspec.structs.replace(record, **{name: (*value[:-1], last)})


def test_contractions_that_differ_in_any_number_are_kernels_of_their_own():
    for name in ("linear_bias", "t_phases"):
        program, *args = ALL[name]
        (part,) = contractions(plan(program, *args))
        one = part.region.contraction
        others = [msgspec.structs.replace(one, **{side: other}) for side in ("left", "right")
                  for _, other in altered(getattr(one, side))]  # fmt: skip
        others += [other for _, other in altered(one)]
        others.append(msgspec.structs.replace(one, bias_along="n" if one.bias_along == "m" else "m"))
        others.append(msgspec.structs.replace(one, bias=()))
        regions = [part.region, *(msgspec.structs.replace(part.region, contraction=other) for other in others)]
        texts = [anonymous_text(part._replace(region=region)) for region in regions]
        assert len(set(texts)) == len(texts) > 10


def test_equal_layers_are_one_kernel_also_with_other_tensors():
    found = plan(lambda a, b, c, d: (torch.relu(a @ b), torch.relu(c @ d)), X, Y, X + 1, Y + 1)
    assert len(found.same_as) == 1
    assert len(contractions(found)) == 2


def test_a_product_of_a_tensor_with_itself_is_another_kernel():
    square = normal(20, 20)
    found = plan(lambda a, b: (torch.relu(a @ b), torch.relu(a @ a)), square, square + 1)
    assert not found.same_as


def planned_with_tf32():
    """A convolution and a product that may use TF32."""
    layer, image = CONVOLUTIONS["plain"]
    return [part.region for program, *args in ((layer, image), (product, X, Y))
            for part in contractions(plan(program, *args, tf32=True))]  # fmt: skip


def test_files_planned_with_tf32_run_kernels_only_while_torch_permits_it():
    regions = planned_with_tf32()
    with planned_for_gpu(tf32=True):
        checks = emit_precision_checks(regions)
        assert len(checks) == 2
        assert all(eval(check, {"torch": torch}) for check in checks)
    with planned_for_gpu(tf32=False):
        assert not any(eval(check, {"torch": torch}) for check in checks)


def test_what_the_user_permits_is_not_checked():
    regions = planned_with_tf32()
    with planned_for_gpu(tf32=False):
        assert not emit_precision_checks(regions)
    with planned_for_gpu(tf32=True), widened_precision("tf32"):
        assert not emit_precision_checks(regions)


def test_fp32_is_not_checked():
    with planned_for_gpu(tf32=True):
        assert not emit_precision_checks([part.region for part in plan(product, X, Y, tf32=False).regions])
