"""Recurrences as one kernel: planned, interpreted they compute what torch does, compiled they keep their weights."""

import functools
import math
import re
import sys
from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))  # for this file alone, where it is interpreted
sys.path.insert(0, str(Path(__file__).parent))
from tiers import slow
from triton_interpreter import POINTERS, interpret, module_of, report_cases, selected_cases

from kernelwright.compiler.backends import TRITON
from kernelwright.compiler.capture.target_device import capturing_for
from kernelwright.compiler.forward_codegen import ForwardCodegen
from kernelwright.compiler.kernel_source import RegionKernel
from kernelwright.compiler.library.recurrences import (
    RecurrenceConfig,
    count_shared_bytes,
    generate_recurrence_configs,
    kernel_shape,
    parse_recurrence,
    print_recurrence,
)
from kernelwright.compiler.planning import plan_program
from kernelwright.compiler.reference import bind_placeholders, build_reference, record_region_inputs
from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.call import CallRegion
from kernelwright.compiler.session import trainable_plan
from kernelwright.compiler.tuning import Tuner
from kernelwright.core.optimization import TORCH
from kernelwright.machines import machine_from_spec

pytest.importorskip("triton")
pytestmark = pytest.mark.xdist_group("triton")


class Recurrent(nn.Module):
    """A recurrence with or without initial states; the cell state of an LSTM is its third result."""

    def __init__(self, kind, num_inputs, hidden, **options):
        super().__init__()
        self.recurrence = getattr(nn, kind)(num_inputs, hidden, **options)

    def forward(self, x, *states):
        given = states[0] if len(states) == 1 else states
        output, last = self.recurrence(x, *([given] if states else []))
        return (output, *last) if isinstance(last, tuple) else (output, last)


def call_of(program, args):
    """The region of a program's only recurrence, and its plan."""
    with capturing_for("cuda"), torch.no_grad():
        plan = plan_program(program, args, {})
    (region,) = [part.region for part in plan.regions if isinstance(part.region, CallRegion)]
    return region, plan


def normal(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


# ---- interpreted: one slice of each lane, since the programs run one after the other


def poisoned(tensor, shape, strides, dtype=None):
    """Memory in which nothing is as it should be."""
    made = torch.empty_strided(shape, strides, dtype=dtype or tensor.dtype)
    return made.fill_(float("nan") if made.is_floating_point() else 77)


def function_of(region, config):
    """The interpreted function of a region."""
    printed = print_recurrence(region, config)
    module = module_of(printed)
    module.empty_on_device_of, module.num_sms_of = poisoned, lambda device: sys.maxsize
    return getattr(module, printed.launcher_name)


def check(program, args, *, chained=False, tolerance=3e-6):
    """The function of a region against torch: values, shapes, strides, and inputs that stay as they are."""
    region, plan = call_of(program, args)
    call = parse_recurrence(region)
    config = RecurrenceConfig(UNITS=max(16, 1 << (call.hidden - 1).bit_length()), num_warps=2, chained=chained)
    launch = function_of(region, config)
    values = bind_placeholders(plan.captured, program, args, {})
    (part,) = [part for part in plan.regions if part.region is region]
    (inputs,) = record_region_inputs(plan.captured, [part], values)
    before = [one.clone() for one in inputs]
    got = launch(*inputs)
    expected = build_reference(plan.captured, part)(*inputs)
    for one, right in zip(got if len(expected) > 1 else [got], expected, strict=True):
        assert (one.shape, one.stride(), one.dtype) == (right.shape, right.stride(), right.dtype)
        torch.testing.assert_close(one, right, atol=tolerance, rtol=tolerance)
    assert all(map(torch.equal, before, inputs))


class LastStep(Recurrent):
    """Of the results, the output's last step alone is used."""

    def forward(self, x):
        return super().forward(x)[0][-1] * 2


def cases():
    x = normal(7, 3, 5)
    for kind in ("LSTM", "GRU", "RNN"):
        yield f"{kind}-one layer", lambda k=kind: check(Recurrent(k, 5, 20), [x])
        for chained in (True, False):
            name = "chained" if chained else "layer by layer"
            options = {"num_layers": 3, "batch_first": True}
            yield f"{kind}-{name}", lambda k=kind, c=chained, o=options: check(Recurrent(k, 5, 20, **o), [x], chained=c)
        for layers in (1, 2):
            options = {"num_layers": layers, "bidirectional": True, "bias": layers == 1}
            yield f"{kind}-{layers} bidirectional", lambda k=kind, o=options: check(Recurrent(k, 5, 20, **o), [x])
        states = [normal(2, 3, 32)] * (1 + (kind == "LSTM"))
        given = [x.transpose(0, 1), states[0] * 3, *(one.flip(0) for one in states[1:])]
        options = {"num_layers": 2, "bias": False, "batch_first": True}
        yield f"{kind}-states", lambda k=kind, o=options, g=given: check(Recurrent(k, 5, 32, **o), g, chained=True)
        program, half = Recurrent(kind, 5, 16, num_layers=2).half(), [x.half()]
        yield f"{kind}-half", lambda p=program, h=half: check(p, h, chained=True, tolerance=4e-3)
    relu = {"nonlinearity": "relu", "num_layers": 2}
    yield "RNN-relu", lambda: check(Recurrent("RNN", 5, 20, **relu), [x], chained=True)
    yield "LSTM-large batch", lambda: check(Recurrent("LSTM", 5, 8), [normal(3, 33, 5)])
    yield "LSTM-last step", lambda: check(LastStep("LSTM", 5, 20), [x])
    yield "GRU-one step of one", lambda: check(Recurrent("GRU", 5, 1), [normal(1, 1, 5)])
    yield "LSTM-of not finite", lambda: check_not_finite()


def check_not_finite():
    """NaN and infinities reach what they reach in torch, and are no reason to wait."""
    x = normal(4, 3, 5)
    x[1, 0, 2], x[2, 1, 1] = float("nan"), float("inf")
    program = Recurrent("LSTM", 5, 16, num_layers=2)
    region, _ = call_of(program, [x])
    launch = function_of(region, RecurrenceConfig(UNITS=16, num_warps=2, chained=True))
    states = torch.zeros(2, 3, 16)
    states[1, 2, 3] = torch.tensor(-1, dtype=torch.int32).view(torch.float32)  # NaN as unset states are
    got = launch(x, states, *program.parameters())
    expected = program(x, states, states)
    torch.testing.assert_close(got, expected, equal_nan=True)


NAMES = [name for name, _ in cases()]
_FAST = {"LSTM-chained", "GRU-2 bidirectional", "LSTM-states", "GRU-layer by layer", "RNN-relu", "LSTM-of not finite"}
TIERS = [name if name in _FAST else slow(name) for name in NAMES]


@pytest.fixture(scope="module")
def interpreted(request):
    """What the selected cases gave, all from one process."""
    return interpret(__file__, selected_cases(request, "test_interpreted_recurrences_compute_what_torch_does"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", TIERS)
def test_interpreted_recurrences_compute_what_torch_does(interpreted, name):
    assert not interpreted[name]["fault"]


# ---- planned and compiled


def meta_call(kind, *sizes, x=(512, 10, 128), dtype=torch.float32, **options):
    program = Recurrent(kind, *sizes, **options).to("meta", dtype)
    return call_of(program, [torch.empty(x, device="meta", dtype=dtype)])[0]


def compiled(region, config):
    """Each kernel of a region as machine code for a GPU that is not here."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    printed = print_recurrence(region, config)
    module = module_of(printed, library=False)
    for name in printed.kernel_names:
        function = getattr(module, name)
        dtypes = {f"{one}_ptr": dtype for one, dtype in printed.scratch.items()}
        signature = {one: f"*{POINTERS[dtypes.get(one, region.output.dtype)]}" for one in function.arg_names}
        yield triton.compile(
            ASTSource(function, signature, {}, {(at,): [["tt.divisibility", 16]] for at in range(len(signature))}),
            target=GPUTarget("cuda", 90, 32),
            options={"num_warps": config.num_warps, "launch_cooperative_grid": True},
        )


STACK = {"num_layers": 6}
LARGE = {
    "LSTM": (("LSTM", 128, 256), STACK),
    "GRU": (("GRU", 128, 256), STACK),
    "RNN": (("RNN", 128, 256), STACK),
    "bidirectional": (("GRU", 128, 256), STACK | {"bidirectional": True}),
    "512 hidden units": (("LSTM", 128, 512), {}),
    "batch of 40": (("LSTM", 128, 256), {"x": (512, 40, 128)}),
    "FP16": (("LSTM", 128, 256), STACK | {"dtype": torch.float16}),
    "BF16": (("LSTM", 128, 256), STACK | {"dtype": torch.bfloat16}),
}


@functools.cache
def large(name):
    sizes, options = LARGE[name]
    return meta_call(*sizes, **options)


def loop_of(kernel):
    """The TTGIR of the loop over the steps, which is the outermost one."""
    lines = kernel.asm["ttgir"].splitlines()
    (start,) = [at for at, line in enumerate(lines) if re.match(r"    \S+(:\d+)? = scf.for ", line)]
    return lines[start : next(at for at, line in enumerate(lines) if at > start and line.startswith("    }"))]


@pytest.mark.parametrize("name", [name if name == "LSTM" else slow(name) for name in LARGE])
def test_the_weights_stay_on_chip(name):
    region = large(name)
    configs = generate_recurrence_configs(region)
    assert configs
    for config in {one.chained: one for one in configs[::-1]}.values():
        for kernel in compiled(region, config):
            assert kernel.metadata.shared <= count_shared_bytes(kernel_shape(parse_recurrence(region), config))
            assert "mma.sync" in kernel.asm["ptx"]
            loads = [line for line in loop_of(kernel) if "tt.load" in line]
            assert len(loads) == (6 if config.chained else 4), "projected; each states to wait for twice; the first"
            assert sum("isVolatile = true" in line for line in loads) == len(loads) - 2
            assert re.search(r"ld\.volatile\.global\.v4|ld\.volatile\.global\.v2", kernel.asm["ptx"])


def changed(region, literals, num_params=None):
    """A region as one with other literals, and with so many weights."""
    tensors = {name: one for name, one in region.tensors.items() if name != f"params[{num_params}]"}
    shapes = {name: region.shapes[name] for name in tensors}
    return msgspec.structs.replace(region, literals=region.literals | literals, tensors=tensors, shapes=shapes)


UNSUPPORTED = {
    "batch of 65": lambda: meta_call("LSTM", 8, 16, x=(4, 65, 8)),
    "float64": lambda: meta_call("GRU", 8, 16, x=(4, 3, 8), dtype=torch.float64),
    "projections": lambda: changed(meta_call("LSTM", 8, 16, x=(4, 3, 8)), {}, num_params=3),
    "dropout": lambda: changed(meta_call("GRU", 8, 16, x=(4, 3, 8), num_layers=2), {"dropout": "0.5"}),
}


@pytest.mark.parametrize("reason", UNSUPPORTED)
def test_what_the_kernel_does_not_compute_stays_with_torch(reason):
    region = UNSUPPORTED[reason]()
    assert not generate_recurrence_configs(region)
    with pytest.raises(Unsupported, match=reason):
        parse_recurrence(region)


def test_weights_beyond_the_shared_memory_have_no_config():
    assert not generate_recurrence_configs(meta_call("LSTM", 128, 2048))


def test_configs_are_resident_at_once():
    assert {config.chained for config in generate_recurrence_configs(large("LSTM"))} == {True, False}
    assert {config.chained for config in generate_recurrence_configs(large("bidirectional"))} == {False}
    many = meta_call("LSTM", 128, 256, num_layers=20)
    assert {config.chained for config in generate_recurrence_configs(many)} == {False}


def test_equal_calls_are_repetitions():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.GRU(8, 8), nn.GRU(8, 8)

        def forward(self, x):
            return self.second(self.first(x)[0])[0]

    with capturing_for("cuda"), torch.no_grad():
        plan = plan_program(Twice(), [normal(5, 3, 8)], {})
    regions = [part.region for part in plan.regions]
    assert plan.same_as == {regions[1].name: regions[0].name}
    assert [len(region.writes) for region in regions] == [1, 1]


def test_forward_calls_the_region_and_reads_its_results():
    program, x = LastStep("LSTM", 5, 20), normal(7, 3, 5)
    _, plan = call_of(program, [x])
    lines = "\n".join(ForwardCodegen(plan.captured, plan.regions).lines("self"))
    assert re.search(r"getitem = region_\d+\(\s+x, full, self.recurrence.weight_ih_l0", lines)
    assert "aten.lstm" not in lines


def test_a_trained_program_leaves_recurrences_to_torch():
    _, plan = call_of(Recurrent("GRU", 5, 20), [normal(7, 3, 5)])
    assert not trainable_plan(plan).regions


def test_a_recurrence_is_not_compiled_by_torch(monkeypatch):
    """torch.compile unrolls its steps."""
    monkeypatch.setattr(Tuner, "_time_rounds", lambda self, variants, inputs, budget_s: (variants, ""))
    tuner = Tuner(TRITON, "cuda", machine_from_spec("h200"))
    variants, _ = tuner._time_finalists(large("LSTM"), None, [], {"kernel": print}, math.inf)
    assert list(variants) == ["kernel", TORCH]


def test_a_module_holds_the_helpers_once():
    region = large("RNN")
    text = TRITON.emit_module([RegionKernel(region, generate_recurrence_configs(region)[0])])
    assert text.count("def wait_states(") == text.count("def make_launcher(") == 1
    compile(text, "generated", "exec")


def test_recurrences_on_a_cpu_stay_with_torch():
    with torch.no_grad():
        plan = plan_program(Recurrent("LSTM", 5, 6), [normal(4, 3, 5)], {})
    assert not [part for part in plan.regions if isinstance(part.region, CallRegion)]
    assert ("aten.lstm.input", 1) in [(one.operator, one.count) for one in plan.fallbacks]


if __name__ == "__main__":
    report_cases({name: run for name, run in cases() if not sys.argv[1:] or name in sys.argv[1:]})
