"""Random programs with every region as a kernel: as near to FP64 as eager is, values and gradients."""

import statistics
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path

import pytest
import torch
from tiers import fast_first

sys.path.insert(0, str(Path(__file__).parent))
from first_choice import FirstChoice, quick
from hard_inputs import KINDS, hard, wrong
from random_programs import generate, outputs_of

from kernelwright.compiler.capture.capture import capture
from kernelwright.compiler.dynamo_backend import kernelwright
from kernelwright.compiler.forward_codegen import ForwardCodegen, PlannedRegion
from kernelwright.compiler.kernel_source import load
from kernelwright.compiler.regions.partition import plan_regions

FEW, MANY = range(25), range(500)
FEW_GRADIENTS = (1, 2, 3, 8, 10, 11, 12, 13, 14, 15)
TIMES_EAGER = 4.0
"""How many times eager's own error, at its largest, a kernel may be off: it sums in another order."""
NEIGHBOURS, NEARBY = 9, 1e-4
"""Where eager was right by luck, its error is the median of so many draws, of inputs times 1 to 1 + NEARBY."""
EPSILONS, EPSILONS_OF_FP64 = 4.0, 100.0
"""What is excused anyway, of an output's root mean square."""


@pytest.fixture(scope="module", autouse=True)
def quickly():
    with quick():
        yield


def with_kernels(program, inputs):
    """The program with every region as a kernel in its first choice, and how many there are."""
    with torch.no_grad():
        captured = capture(program, tuple(inputs), {})
    regions, _ = plan_regions(captured.graph)
    pairs = [(PlannedRegion(region, tuple(nodes)), FirstChoice().first(region)) for region, nodes in regions]
    parts, kernels = [part for part, kernel in pairs if kernel], [kernel for _, kernel in pairs if kernel]
    if not kernels:
        return program, 0
    names = ", ".join(node.name for node, source in captured.sources.items() if source.kind == "argument")
    body = textwrap.indent("\n".join(ForwardCodegen(captured, parts).lines("self")), "    ")
    text = f"{FirstChoice.backend.emit_module(kernels)}\n\ndef forward({names}):\n{body}\n"
    return load(text).forward, len(kernels)


def distance(got, right):
    """The largest error, in the size of the output."""
    size = right.double().square().mean().sqrt().item() + 1e-30
    return ((got.double() - right.double()).abs().max().item() / size) if right.numel() else 0.0


def values(program, inputs):
    with torch.no_grad():
        return outputs_of(program(*inputs))


def gradients(program, inputs):
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    outputs = outputs_of(program(*leaves))
    generator = torch.Generator().manual_seed(0)
    seeds = [torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.dtype) for x in outputs]
    return torch.autograd.grad(outputs, leaves, seeds)


def cast(inputs, dtype):
    return [x.to(dtype) if x.is_floating_point() else x for x in inputs]


def usual_error(program, made, run, place, dtype):
    """The error of a program in one result as it usually is, on inputs nearby that are cast to a dtype."""
    drawn = []
    for seed in range(NEIGHBOURS):
        factors = 1 + NEARBY * torch.rand(len(made.inputs), generator=torch.Generator().manual_seed(seed))
        near = [x * f.to(x.dtype) if x.is_floating_point() else x for x, f in zip(made.inputs, factors, strict=True)]
        inputs = cast(near, dtype) if dtype else near
        drawn.append(distance(run(program, inputs)[place], run(made.wide, cast(inputs, torch.float64))[place]))
    return statistics.median(drawn)


def usual_error_of_eager(made, run, place, dtype):
    """FP64, which nothing wider judges, is taken to be as far off as FP32 is, in its own roundings."""
    usual = usual_error(made.program, made, run, place, None)
    if dtype != torch.float64:
        return usual
    smaller = torch.finfo(dtype).eps / torch.finfo(torch.float32).eps
    return max(usual, smaller * usual_error(made.single, made, run, place, torch.float32))


def faults(made, run, got):
    """What is wrong with results: their kind, or an error that eager's own does not excuse."""
    found = []
    eager, right = run(made.program, made.inputs), run(made.wide, cast(made.inputs, torch.float64))
    for place, (one, other, wide) in enumerate(zip(got, eager, right, strict=True)):
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            found.append(f"result {place} is {one.dtype} {tuple(one.shape)}, not {other.dtype} {tuple(other.shape)}")
        elif not one.is_floating_point():
            found += [] if torch.equal(one, other) else [f"result {place} differs"]
        else:
            excused = (EPSILONS_OF_FP64 if one.dtype == torch.float64 else EPSILONS) * torch.finfo(one.dtype).eps
            error, own = distance(one, wide), distance(other, wide)
            if error <= TIMES_EAGER * own + excused:
                continue
            usual = usual_error_of_eager(made, run, place, one.dtype)
            if not error <= TIMES_EAGER * usual + excused:
                found.append(f"result {place} is off by {error:.2g}, eager by {own:.2g} and usually {usual:.2g}")
    return found


def wrong_values(made):
    """What is wrong with a program's values, and how many of its regions are kernels."""
    ours, count = with_kernels(made.program, made.inputs)
    before = [x.clone() for x in made.inputs]
    found = faults(made, values, values(ours, made.inputs))
    if not all(map(torch.equal, before, made.inputs)):
        found.append("an input was changed")
    return found, count


def wrong_gradients(made):
    torch._dynamo.reset()
    program = torch.compile(made.program, backend=kernelwright, dynamic=False)
    return faults(made, gradients, gradients(program, made.inputs))


def wrong_on_hard_inputs(made):
    """What is wrong with a program's values on inputs that it was not drawn for, where it takes them at all."""
    ours, count = with_kernels(made.program, made.inputs)
    found = []
    for kind in KINDS if count else ():
        inputs = hard(made.inputs, kind, made.seed)
        try:
            eager, right = values(made.program, inputs), values(made.wide, cast(inputs, torch.float64))
        except (RuntimeError, IndexError):  # a mask may be empty now
            continue
        got = values(ours, inputs)
        found += [f"{kind}: result {at} {text}" for at, trio in enumerate(zip(got, eager, right, strict=True))
                  if (text := wrong(*trio))]  # fmt: skip
    return found


@pytest.mark.parametrize("seed", fast_first(8, FEW))
def test_values_of_hard_inputs_are_as_near_to_fp64_as_those_of_eager(seed):
    made = generate(seed)
    found = wrong_on_hard_inputs(made)
    assert not found, f"{found}\n{made}"


@pytest.mark.parametrize("seed", fast_first(8, FEW))
def test_values_are_as_near_to_fp64_as_those_of_eager(seed):
    made = generate(seed)
    found, _ = wrong_values(made)
    assert not found, f"{found}\n{made}"


@pytest.mark.parametrize("seed", fast_first(4, FEW_GRADIENTS))
def test_gradients_are_as_near_to_fp64_as_those_of_eager(seed):
    made = generate(seed)
    assert made.differentiable
    found = wrong_gradients(made)
    assert not found, f"{found}\n{made}"


@pytest.mark.parametrize(("seed", "run", "off"), [(188, values, 2e-5), (54, gradients, 2e-5), (312, gradients, 1e-11)])
def test_what_is_off_by_more_than_rounding_is_refused_where_eager_is_right_by_luck(seed, run, off):
    made = generate(seed)
    right = run(made.program, made.inputs)
    assert not faults(made, run, right)
    assert len(faults(made, run, [x * (1 + off) for x in right])) == len(right)


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_many_programs_are_right(capsys):
    start, wrong, done = time.monotonic(), {}, Counter()
    for made in map(generate, MANY):
        for what, check in (
            ("values", lambda made=made: wrong_values(made)),
            ("hard values", lambda made=made: (wrong_on_hard_inputs(made), 0)),
            ("gradients", lambda made=made: (wrong_gradients(made), 0)),
        ):
            if what == "gradients" and not made.differentiable:
                continue
            try:
                found, count = check()
            except Exception as fault:  # counted with the rest: one broken program must not hide the others
                found, count = [f"{type(fault).__name__}: {fault}"[:300]], 0
            done[what] += 1
            done["kernels"] += count
            if found:
                wrong[made.seed, what] = found
    with capsys.disabled():
        print(f"\n{dict(done)} in {time.monotonic() - start:.0f} s, {len(wrong)} wrong")
        print("\n".join(f"{seed} {what}: {found[0]}" for (seed, what), found in wrong.items()))
    assert done["kernels"] >= len(MANY)
    assert not wrong
