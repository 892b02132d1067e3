"""The first line on an optimised program, for every engine."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import msgspec
import pytest

from kernelwright.core.optimization import BudgetUse, StageTime
from kernelwright.report.optimization import regions_text
from kernelwright.report.optimization_headline import budget_text, engine_text, headline_text

_spec = spec_from_file_location("report_samples", Path(__file__).with_name("samples.py"))
assert _spec and _spec.loader
samples = module_from_spec(_spec)
_spec.loader.exec_module(samples)

replace = msgspec.structs.replace


@pytest.mark.parametrize(
    ("winners", "text"),
    [
        (("kernel",), "1 kernel (C++) in the only region"),
        (("torch.compile",), "torch.compile in the only region"),
        (("kernel", "kernel"), "2 kernels (C++) in 2 of 2 regions"),
        (("torch.compile", "torch"), "torch.compile in 1 of 2 regions, torch for the rest"),
        (("kernel", "torch"), "1 kernel (C++) in 1 of 2 regions, torch for the rest"),
        (
            ("kernel", "torch.compile", "torch"),
            "1 kernel (C++) in 1 of 3 regions, torch.compile in 1, torch for the rest",
        ),
    ],
)
def test_the_winners_are_counted(winners, text):
    kernel = samples.OPTIMIZED.regions[0]
    regions = tuple(kernel if winner == "kernel" else replace(kernel, winner=winner) for winner in winners)
    record = replace(samples.OPTIMIZED, regions=regions, num_kernels=winners.count("kernel"))
    assert engine_text(record) == text


def test_operators_without_a_region_are_torch_too():
    record = replace(samples.OPTIMIZED, fallbacks=samples.NOTHING.fallbacks)
    assert engine_text(record) == "1 kernel (C++) in the only region, torch for the rest"


@pytest.mark.parametrize(
    ("engine", "options", "text"),
    [
        ("torch.compile", (), "runs torch.compile for the whole program: 39.6 ms, 2.56x eager [2.53, 2.59]"),
        (
            "torch.compile",
            ("channels-last", "in a CUDA graph"),
            "runs torch.compile for the whole program, channels-last, in a CUDA graph: 39.6 ms, "
            "2.56x eager [2.53, 2.59], 1.04x torch.compile [1.02, 1.06]",
        ),
        (
            "torch",
            ("channels-last",),
            "runs the original program, channels-last: 39.6 ms, 2.56x eager [2.53, 2.59], "
            "1.04x torch.compile [1.02, 1.06]",
        ),
    ],
)
def test_torch_for_the_whole_program_uses_no_kernel(engine, options, text):
    record = replace(samples.OPTIMIZED, engine=engine, options=options, num_kernels=0)
    assert headline_text(record) == f"add_scale_bias_relu_optimized.py {text}; no kernel of ours is used"
    assert record.whole_program_winner == ", ".join((engine, *options))
    assert not record.is_unchanged


def test_an_unchanged_program_was_not_beaten_by_what_was_tried():
    name = "add_scale_bias_relu_optimized.py is the original program:"
    assert headline_text(samples.UNCHANGED) == f"{name} nothing was faster"
    short = BudgetUse(total_s=40.0, spent_s=41.0, left_out=("torch.compile", "kernels of 2 of 2 regions"))
    assert headline_text(replace(samples.UNCHANGED, budget=short)) == (
        f"{name} nothing that was tried in 40 s was faster (not tried: torch.compile, kernels of 2 of 2 regions)"
    )
    assert samples.UNCHANGED.is_unchanged


def test_what_was_not_timed_has_no_time():
    assert headline_text(samples.DECODER).endswith("torch.compile in 1, torch for the rest: not timed")
    in_memory = replace(samples.OPTIMIZED, output_file="", bench=None)
    assert headline_text(in_memory) == "add_scale_bias_relu runs 1 kernel (C++) in the only region: not timed"


def test_a_budget_lists_the_longest_stages():
    stages = tuple(StageTime(name=f"stage {at}", time_s=9.0 - at) for at in range(8))
    text = budget_text(BudgetUse(total_s=60.0, spent_s=44.2, stages=stages))
    assert (
        text == "44 s of a budget of 60 s: stage 0 9 s, stage 1 8 s, stage 2 7 s, stage 3 6 s, stage 4 5 s, other 9 s"
    )
    assert budget_text(BudgetUse(total_s=60.0, spent_s=44.2)) == "44 s of a budget of 60 s"


def test_the_regions_that_kernels_won_are_counted():
    assert regions_text(samples.WHOLE_MODEL) == "a kernel is the fastest in 33 of 35 regions"
    reason = "not used: the whole program is faster with torch.compile"
    assert regions_text(samples.UNUSED) == f"a kernel is the fastest in 33 of 35 regions, {reason}"
    assert regions_text(samples.NOTHING) == "no regions to generate kernels for"
