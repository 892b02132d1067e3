"""What a person reads in a terminal: the tour's shape, at every width, with and without Unicode and colour."""

from __future__ import annotations

import io
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from kernelwright.core.bench import Bench
from kernelwright.core.diagnosis import Recommendation
from kernelwright.core.errors import CompileError, UsageError
from kernelwright.core.optimization import AppliedRewrite
from kernelwright.core.work import Work
from kernelwright.evidence.library import load_library
from kernelwright.report import optimization, render_text, show

_spec = spec_from_file_location("report_samples", Path(__file__).with_name("samples.py"))
assert _spec and _spec.loader
samples = module_from_spec(_spec)
_spec.loader.exec_module(samples)

replace = msgspec.structs.replace


def printed(record, *, width: int = 100, encoding: str = "utf-8", **console) -> str:
    sink = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
    show(record, Console(file=sink, width=width, **console))
    sink.seek(0)
    return sink.read()


@pytest.mark.parametrize("name", samples.EVERY)
@pytest.mark.parametrize("width", [80, 100, 132, 160, 400])
def test_no_line_is_wider_than_the_terminal(name, width):
    assert max(map(len, render_text(samples.EVERY[name], width).splitlines())) <= min(width, 160)


@pytest.mark.parametrize("name", samples.EVERY)
def test_a_terminal_without_unicode_gets_ascii(name):
    record = samples.poisoned(samples.EVERY[name], "größer → µs 核 " + "x" * 40)
    assert printed(record, encoding="ascii").isascii()


def test_ascii_bars_are_hashes():
    lines = printed(samples.MEMORY, encoding="ascii").splitlines()
    assert sum("####" in line for line in lines) == 3


@pytest.mark.parametrize("name", samples.EVERY)
def test_hostile_names_cannot_drive_the_terminal(name):
    hostile = render_text(samples.poisoned(samples.EVERY[name], "\x1b[31m\r\n\x07"), 160)
    assert not any(c in hostile for c in "\x1b\r\x07")


def test_colour_only_on_a_terminal_that_wants_it(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" not in printed(samples.MEMORY)
    assert "\x1b[1;38;5;33m" in printed(samples.MEMORY, force_terminal=True, color_system="256")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "38;5" not in printed(samples.MEMORY, force_terminal=True, color_system="256")


def test_why_reads_like_the_tour():
    lines = render_text(samples.MEMORY, 100).splitlines()
    assert lines[0].startswith("relu((x + y) * scale + bias)")
    assert lines[0].endswith("1.07 GB in and out, on AMD EPYC 9R14 (2 threads)")
    assert lines[2] == "  memory-bound: it moves 2.7 GB where 1.1 GB would do, at 91 % of this machine's 29.1 GB/s"
    assert [line.split()[0] for line in lines[4:7]] == ["now", "as", "fused"]
    assert [line.count("█") for line in lines[4:7]] == sorted((line.count("█") for line in lines[4:7]), reverse=True)
    assert "operator   time      share   bytes    FLOP/byte   bound by   x floor" in lines[8]
    assert lines[9].split() == ["add", "30.2", "ms", "30", "%", "805", "MB", "0.08", "memory", "1.08x"]
    assert "  1. fuse all four into one pass   101 -> about 39 ms" in "\n".join(lines)
    assert lines[-1] == "  2. nothing else: after that it is at the memory's speed"


def test_bars_are_in_proportion():
    now, _, fused = [line.count("█") for line in render_text(samples.MEMORY, 160).splitlines() if "█" in line]
    assert now == 40
    assert fused == round(40 * 36_900 / 101_300)


def test_a_long_table_shows_what_gains_most():
    said = render_text(samples.OVERHEAD, 120)
    assert "and 52 more" in said
    best = max(samples.OVERHEAD.operators, key=lambda row: row.gain_us)
    worst = min(samples.OVERHEAD.operators, key=lambda row: row.gain_us)
    assert f"{best.time_us:.2f} us" in said
    assert f" {worst.time_us:.2f} us" not in said
    assert "…decoder" not in render_text(samples.OVERHEAD, 80)


def test_stop_is_said_only_when_nothing_is_left():
    assert "  stop: no further speedup" in render_text(samples.COMPUTE)
    assert "stop" not in render_text(samples.UNDETERMINED)
    assert "no recommendation: evidence is missing" in render_text(samples.UNDETERMINED)
    assert "stop" not in render_text(samples.OVERHEAD)


def test_a_prediction_says_that_nothing_was_run():
    said = render_text(samples.FORESEEN)
    assert "predicted: nothing was run" in said
    assert "  now " not in said
    assert "559 -> about 220 us" in said


def test_a_gain_across_units_names_both():
    moved = replace(samples.MEMORY, recommendations=(Recommendation(kind="fuse", action="fuse", predicted_us=812.0),))
    assert "101 ms -> about 810 us" in render_text(moved)


def test_verdicts():
    assert render_text(samples.ACCEPTED, 120) == (
        "accepted   as accurate as the reference against FP64, 12 input sets, inputs intact, deterministic"
    )
    lines = render_text(samples.REJECTED, 120).splitlines()
    assert lines[0] == ("rejected   inaccurate: 4,100 times the reference's own error against FP64, 38 times the limit")
    assert lines[1] == "           worst at [17, 903]: got 0.0009765625, expected 0.0009770393"
    assert lines[2] == "           looks like half-precision arithmetic"


def test_a_verdict_worse_than_the_reference_says_by_how_much():
    accuracy = replace(samples.ACCEPTED.accuracy, error_over_reference=1.8, error_over_limit=0.22)
    said = render_text(replace(samples.ACCEPTED, accuracy=accuracy), 140)
    assert "1.80x the reference's own error against FP64, 0.22x the limit" in said


def test_bench_puts_every_time_beside_its_floor():
    lines = render_text(samples.BENCH, 120).splitlines()
    assert lines[0].split() == ["candidate", "39.6", "ms", "1.07x", "floor"]
    assert lines[2].split() == ["torch.compile", "41.0", "ms", "1.11x"]
    assert lines[3].startswith("FASTER than eager           2.56x  [2.53, 2.59]")
    assert lines[4].endswith("60 pairs, interleaved, cold cache, no disturbed samples")


def test_bench_names_the_first_variant_where_there_are_several():
    other = replace(samples.BENCH.comparisons[0], variant="second", verdict="SLOWER")
    said = render_text(replace(samples.BENCH, comparisons=(samples.BENCH.comparisons[0], other)))
    assert "candidate FASTER than eager" in said
    assert "second SLOWER than eager" in said


def test_a_suspicious_time_says_why():
    said = render_text(samples.SUSPICIOUS)
    assert "suspicious  19 times faster than the datasheet's memory allows" in said
    assert "UNCLEAR against eager" in said
    assert "no floor" in said


def test_a_bench_says_who_was_rejected_and_why_before_what_was_timed():
    lines = render_text(samples.REFUSED, 140).splitlines()
    verdict = render_text(samples.REJECTED, 140).splitlines()
    named = verdict[0].replace("rejected   ", "rejected   examples/wrong/softmax_fp16.py: ")
    assert " ".join(" ".join(lines).split()).startswith(" ".join(" ".join([named, *verdict[1:]]).split()))
    assert any(line.startswith("FASTER than eager") for line in lines)


def test_a_bench_of_nothing_but_rejected_candidates_says_nothing_of_times():
    lines = render_text(samples.ALL_REFUSED, 140).splitlines()
    assert lines[0].startswith("rejected   examples/wrong/softmax_fp16.py: inaccurate")
    assert not any("pairs" in line or "cache" in line for line in lines)


def test_an_empty_bench_still_prints():
    assert render_text(Bench(problem="p", machine=samples.LAPTOP, variants=(), comparisons=())) == ""


def test_machine_tables():
    said = render_text(samples.H200)
    assert "measured ceilings" in said
    assert "78 % of 989 TFLOP/s" in said
    assert "launch in a CUDA graph        1.10 us" in said
    assert "triad" not in said
    assert "triad" in render_text(samples.LAPTOP)
    assert "datasheet ceilings, not measured" in render_text(samples.PREDICTED)


def test_a_kernel_of_the_library_keeps_its_name_whatever_is_said_of_it():
    found = load_library()
    found = replace(
        found, kernels=tuple(replace(one, evidence="1.15x " + "the best of all " * 20) for one in found.kernels)
    )
    said = render_text(found, 80)
    assert all(f"  {one.name} " in said for one in found.kernels)


def test_an_error_names_the_value_and_the_next_step():
    said = render_text(UsageError("no file examples/nope.py", next="kw why examples/softmax.py", where="load"))
    assert said.splitlines() == ["error: no file examples/nope.py", "where: load", "next:  kw why examples/softmax.py"]


def test_a_compiler_message_keeps_its_lines():
    said = render_text(CompileError("a.cpp:3: error: expected ';'\n  3 | int x\n"))
    assert said.splitlines()[:2] == ["error: a.cpp:3: error: expected ';'", "       3 | int x"]


def test_an_unknown_record_is_refused():
    with pytest.raises(TypeError, match="Work"):
        show(Work())  # pyright: ignore[reportArgumentType]


def test_the_terminal_does_not_pay_for_pages():
    code = (
        "import sys, kernelwright.report as r; assert not {'jinja2', 'torch'} & set(sys.modules), 'too much imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- kw optimize


def test_optimize_reads_headline_regime_regions_verdict_bench_file():
    lines = render_text(samples.OPTIMIZED, 160).splitlines()
    assert lines[0].startswith(
        "add_scale_bias_relu_optimized.py runs 1 kernel (C++) in the only region: 39.6 ms, 2.56x"
    )
    assert lines[1] == "add_scale_bias_relu: float32, 64 M elements, on AMD EPYC 9R14 (2 threads)"
    assert lines[2].startswith("  memory-bound: it moves 2.7 GB")
    assert lines[4].split() == ["region", "computation", "before", "predicted", "after", "x", "floor", "winner"]
    assert "1.07x" in lines[5]
    assert lines[5].endswith("   C++, vectors along i0, all threads, non-temporal stores")
    assert lines[7].startswith("accepted   as accurate as the reference")
    assert any(line.startswith("FASTER than eager") for line in lines)
    assert lines[-1] == "wrote examples/add_scale_bias_relu_optimized.py"


def test_optimize_names_the_rewrites():
    rewrite = AppliedRewrite(name="means", count=2, description="a sum divided by its count becomes a mean")
    lines = render_text(replace(samples.OPTIMIZED, rewrites=(rewrite, rewrite)), 100).splitlines()
    assert "  rewrites: means x2, means x2" in lines
    assert "rewrites" not in render_text(samples.OPTIMIZED, 100)
    unused = replace(rewrite, not_used="the whole program is faster with torch")
    lines = render_text(replace(samples.OPTIMIZED, rewrites=(unused,)), 100).splitlines()
    assert "  rewrites, not used (the whole program is faster with torch): means x2" in lines


def test_the_texts_leave_the_rows_where_these_are_too_wide():
    wide, narrow = (render_text(samples.DECODER, width).splitlines() for width in (160, 80))
    assert wide[4].rstrip().endswith("x floor   winner")
    assert wide[5].endswith("1.38x     Triton, tiles of 1 x 4096, 8 warps")
    assert narrow[7].split() == ["region", "before", "predicted", "after", "x", "floor"]
    assert narrow[8].startswith("  region_0 x24  31.0 us")
    assert narrow[9] == "    pow, mean, add, rsqrt, mul, mul; 512 rows of 4,096"
    assert narrow[10] == "    winner: Triton, tiles of 1 x 4096, 8 warps"


def test_the_regions_with_the_largest_gains_and_why_the_others_were_left():
    said = render_text(samples.DECODER, 160)
    assert sum(line.startswith("  region_") and "x  " in line for line in said.splitlines()) == 8
    assert "and 4 more with smaller gains" in said
    assert "region_2: torch.compile, 1.04x faster than the next, Triton, tiles of 4 x 512, 2 warps" in said
    assert "fallback operator linear (7 times): not pointwise, a reduction or a view" in said
    assert "and 3 more fallback operators" in said


@pytest.mark.parametrize("width", [80, 132, 160])
@pytest.mark.parametrize("name", ["optimized", "decoder", "broken", "nothing", "whole model", "unused", "unchanged"])
def test_every_optimization_has_at_most_38_lines(name, width):
    assert len(render_text(samples.EVERY[name], width).splitlines()) <= 38


def test_a_whole_model_is_a_table_of_modules():
    said = render_text(samples.WHOLE_MODEL, 132)
    assert "layers.0-11.mlp x12" in said
    assert "kernels in 12 of 12 regions (region_0); region_1: no kernel, already at 1.05x its floor; torch: " in said
    assert "smaller modules; --html FILE or --json for all" in said
    assert "region_0, region_1, region_2 and 37 more stay with torch: there was not enough time" in said
    assert "71 s of a budget of 60 s: tuning the regions 40 s, checking 31 s" in said


def test_everything_is_shown_where_that_is_wanted():
    console = Console(width=132, record=True, file=io.StringIO())
    show(samples.WHOLE_MODEL, console, full=True)
    said = console.export_text()
    assert said.count("relative_position_bias x4") == 60
    assert "smaller modules" not in said


@pytest.mark.parametrize("name", ["unused", "whole model"])
def test_kernels_that_lost_to_the_whole_program_are_marked(name):
    said = render_text(samples.EVERY[name], 132)
    marked = "kernels not used: the whole program is faster with torch.compile" in said
    assert marked == (name == "unused")


def test_regions_without_modules_are_marked_too():
    said = render_text(replace(samples.UNUSED, modules=()), 160)
    assert "region_0 x24: Triton, tiles of 1 x 4096, 8 warps; not used: the whole program is faster with" in said


def test_a_region_that_was_not_tuned_is_not_timed():
    untuned = replace(samples.OPTIMIZED.regions[0], before_us=0.0, predicted_us=0.0, after_us=0.0, winner="torch")
    assert "region_0  not timed" in render_text(replace(samples.OPTIMIZED, regions=(untuned,)), 80)


def test_a_plan_is_the_text_of_its_regions():
    assert render_text(samples.PLAN, 100) == samples.PLAN.regions[0].text


def test_a_long_plan_shows_the_largest_regions():
    region = samples.PLAN.regions[0]
    regions = tuple(replace(region, bytes_moved=at, text=f"region_{at}:\n  one\n  two") for at in range(40))
    lines = render_text(replace(samples.PLAN, regions=regions), 100).splitlines()
    assert len(lines) <= 38
    assert [line for line in lines if line.startswith("region_")] == [f"region_{at}:" for at in range(31, 40)]
    assert lines[-1] == "  and 31 more regions; --show all for all"


def test_a_region_that_is_too_long_for_a_plan_is_truncated():
    long = replace(samples.PLAN.regions[0], text="\n".join(f"line {at}" for at in range(100)))
    lines = render_text(replace(samples.PLAN, regions=(long,)), 100).splitlines()
    assert len(lines) <= 38
    assert "more lines; --show all for all" in lines[-1]


def test_a_program_without_regions_is_described_by_its_operators():
    said = render_text(samples.NOTHING, 100)
    assert "  no regions to generate kernels for" in said
    assert "fallback operator mm: not pointwise" in said


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (
            {"vector_axis": "i0", "parallel": True, "num_splits": 1, "nontemporal_stores": False},
            "C++, vectors along i0, all threads",
        ),
        (
            {
                "vector_axis": "i1",
                "inner_vector_axis": "r0",
                "loop_interchange": True,
                "parallel": True,
                "num_splits": 1,
            },
            "C++, vectors along i1 and r0, all threads, loops interchanged",
        ),
        (
            {"vector_axis": "i0", "inner_vector_axis": "", "loop_interchange": False},
            "C++, vectors along i0, all threads",
        ),
        (
            {"vector_axis": "r0", "parallel": False, "num_splits": 64, "nontemporal_stores": True},
            "C++, vectors along r0, one thread, 64 splits, non-temporal stores",
        ),
        (
            {"BLOCK_M": 1, "BLOCK_N": 1024, "num_warps": 2, "num_stages": 1, "num_splits": 1, "evict_last": True},
            "Triton, tiles of 1 x 1024, 2 warps",
        ),
        (
            {"BLOCK_M": 32, "BLOCK_N": 64, "num_warps": 1, "num_stages": 3, "num_splits": 16, "evict_last": False},
            "Triton, tiles of 32 x 64, 1 warp, 3 stages, 16 splits, no evict_last",
        ),
        ({"vector_axis": "i0", "unrolled": 4}, "C++, vectors along i0, all threads, unrolled 4"),
        ({"BLOCK_M": 4, "BLOCK_N": 8}, "Triton, tiles of 4 x 8"),
        (
            {"library": "kernelwright.kernels.gemm", "precision": "fp32_emulated", "num_splits": 1},
            "kernelwright.kernels.gemm, FP32 emulated on tensor cores",
        ),
        (
            {"library": "kernelwright.kernels.gemm", "precision": "default", "num_splits": 8},
            "kernelwright.kernels.gemm, 8 splits",
        ),
        ({"block_m": 128}, "block m 128"),
    ],
)
def test_a_choice_reads_as_words(choice, said):
    assert optimization.config_text(choice) == said


def test_a_reason_names_choices_in_words():
    long, short = (samples.cpu_attempt(1.0, num_splits=parts) for parts in (16, 1))
    region = replace(samples.OPTIMIZED.regions[0], attempts=(short, long), winner="torch")
    why = replace(region, winner_reason=f"1.20x faster than the next, {long.name}")
    assert (
        optimization.winner_reason_text(why)
        == "1.20x faster than the next, C++, vectors along i0, all threads, 16 splits"
    )
    copied = replace(region, summary="; 1,024 elements")
    assert optimization.computation_text(copied) == "copy; 1,024 elements"
