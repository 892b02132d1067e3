"""The page stands alone, says the same as the terminal, and draws every number where it belongs."""

from __future__ import annotations

import html
import math
import re
from html.parser import HTMLParser
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import msgspec
import pytest

from kernelwright.core.bench import Bench
from kernelwright.core.diagnosis import Diagnosis
from kernelwright.core.document import build_document, decode, encode
from kernelwright.core.machine import Machine, MemoryLevel
from kernelwright.core.work import Work
from kernelwright.report import charts, render_fragment, render_page
from kernelwright.report.axes import LinearScale, LogScale, padded_range
from kernelwright.report.drawing import jinja_environment, join_units
from kernelwright.report.roofline import count_unplaced_operators, render_roofline

_spec = spec_from_file_location("report_samples", Path(__file__).with_name("samples.py"))
assert _spec and _spec.loader
samples = module_from_spec(_spec)
_spec.loader.exec_module(samples)

replace = msgspec.structs.replace
VOID = {"meta", "wbr"}


class Outline(HTMLParser):
    """Reads a page: complains about tags that do not close, collects names, attributes and text."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(markup)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).replace("\u00a0", " ").split())

    def with_class(self, *names: str) -> list[dict[str, str | None]]:
        return [attrs for _, attrs in self.tags if set(names) <= set((attrs.get("class") or "").split())]


def between(markup: str, start: str, end: str) -> str:
    return markup.partition(start)[2].partition(end)[0]


@pytest.mark.parametrize("name", samples.EVERY)
def test_a_page_stands_alone(name):
    markup = render_page(samples.EVERY[name])
    outline = Outline(markup)
    assert len(markup.encode()) < 1_000_000
    assert not {"script", "link", "img", "iframe", "object", "form"} & {tag for tag, _ in outline.tags}
    assert not any({"src", "href", "action", "onclick", "onload"} & attrs.keys() for _, attrs in outline.tags)
    style = between(markup, "<style>", "</style>")
    assert "@import" not in style
    assert set(re.findall(r"url\(([^)]*)\)", style)) <= {"#kw-hatch"}
    assert "prefers-color-scheme: dark" in style
    assert "@media print" in style
    assert "default-src 'none'" in markup


@pytest.mark.parametrize("name", samples.EVERY)
@pytest.mark.parametrize("draw", [render_page, render_fragment])
def test_names_are_escaped_everywhere(name, draw):
    markup = draw(samples.poisoned(samples.EVERY[name], samples.HOSTILE))
    outline = Outline(markup)
    assert "<script" not in markup
    assert "&lt;script&gt;" in markup
    assert "script" not in {tag for tag, _ in outline.tags}
    quoted = draw(samples.poisoned(samples.EVERY[name], '" onload="alert(1)'))
    assert not any("onload" in attrs for _, attrs in Outline(quoted).tags)


@pytest.mark.parametrize("name", samples.EVERY)
def test_the_page_carries_its_json(name):
    record = samples.EVERY[name]
    assert decode(html.unescape(between(render_page(record), "<pre>", "</pre>")), type(record)) == record


def test_the_page_holds_the_document_of_the_run():
    kept = html.unescape(
        between(render_page(samples.BENCH, status="finding", next=["kw verify a b"]), "<pre>", "</pre>")
    )
    assert kept == encode(build_document("bench", samples.BENCH, status="finding", next=["kw verify a b"]))


def test_a_page_of_thousands_of_operators_stays_small():
    many = replace(samples.OVERHEAD, operators=samples.OVERHEAD.operators * 100)
    markup = render_page(many)
    assert len(markup.encode()) < 1_000_000
    assert "<pre>" not in markup
    assert "too large for this page" in markup
    assert "and 6376 more" in markup


def test_the_verdict_sentence_is_the_headline():
    said = Outline(between(render_page(samples.MEMORY), "</p>", "</h1>") + "</h1>").text
    assert said == "memory-bound it moves 2.7 GB where 1.1 GB would do, at 91 % of this machine's 29.1 GB/s"


def test_why_shows_gap_evidence_operators_and_moves():
    said = Outline(render_page(samples.MEMORY)).text
    assert "64.4 ms above the fused floor, 2.75x" in said
    assert "DRAM bandwidth reached 26.5 GB/s, 91 % 80 % or more bytes over time" in said
    assert "relu 21.1 ms 21 % 537 MB 0.12 memory 1.14x" in said
    assert "fuse all four into one pass 101 → about 39 ms" in said
    assert "kw optimize examples/add_scale_bias_relu.py" in said


def test_the_page_says_stop_when_nothing_is_left():
    assert "stop no further speedup is expected" in Outline(render_page(samples.COMPUTE)).text
    assert "<b>stop</b>" not in render_page(samples.UNDETERMINED)
    assert "<b>stop</b>" not in render_page(samples.OVERHEAD)


def test_a_rejection_shows_reason_accuracy_and_sandbox():
    said = Outline(render_page(samples.REJECTED)).text
    assert "rejected inaccurate: 4,100 times the reference's own error" in said
    assert "candidate 7.05e-4 4,100x 38.1x" in said
    assert "[17, 903]" in said
    assert "sandbox own process, no network, 8 GB of memory, 60 s" in said
    assert "looks like half-precision arithmetic" in said


def test_a_rejection_without_numbers_still_has_its_page():
    bare = replace(samples.REJECTED, accuracy=None, reason=replace(samples.REJECTED.reason, code="timeout"))
    assert "timeout" in Outline(render_page(bare)).text
    endless = replace(
        samples.REJECTED.accuracy, error=math.inf, error_over_reference=math.inf, error_over_limit=math.nan
    )
    assert "inf" in Outline(render_page(replace(samples.REJECTED, accuracy=endless))).text


def test_bench_page_shows_variants_intervals_and_conditions():
    said = Outline(render_page(samples.BENCH)).text
    assert "FASTER candidate is FASTER than eager, 2.56x [2.53, 2.59]" in said
    assert "eager 101 ms" in said
    assert "60 pairs, interleaved, cold cache, no disturbed samples" in said
    assert "suspicious: 19 times faster" in Outline(render_page(samples.SUSPICIOUS)).text
    empty = Bench(problem="p", machine=samples.LAPTOP, variants=(), comparisons=())
    assert "no baseline to compare with" in Outline(render_page(empty)).text


@pytest.mark.parametrize("draw", [render_page, render_fragment])
def test_a_bench_says_who_was_rejected_and_why_beside_what_was_timed(draw):
    said = Outline(draw(samples.REFUSED)).text.partition("JSON document")[0]
    assert "FASTER candidate is FASTER than eager" in said
    assert "Rejected examples/wrong/softmax_fp16.py inaccurate: 4,100 times the reference's own error" in said
    assert "looks like half-precision arithmetic" in said


def test_a_bench_of_nothing_but_rejected_candidates_is_headed_by_the_first():
    said = Outline(render_page(samples.ALL_REFUSED)).text.partition("JSON document")[0]
    assert "rejected examples/wrong/softmax_fp16.py: inaccurate: 4,100 times the reference's own error" in said
    assert "Variants" not in said
    assert "Samples" not in said


def test_a_fragment_is_no_page():
    markup = render_fragment(samples.MEMORY)
    tags = {tag for tag, _ in Outline(markup).tags}
    assert not {"html", "head", "body", "details"} & tags
    assert "it moves 2.7" in markup.replace("\u00a0", " ")
    assert "roofline wide" not in markup


def test_an_unknown_record_has_no_page():
    with pytest.raises(TypeError, match="Work"):
        render_page(Work())  # pyright: ignore[reportArgumentType]


def test_every_template_is_shipped_and_compiles():
    names = jinja_environment().list_templates()
    assert {"page.html.j2", "fragment.html.j2", "roofline.svg.j2", "bars.svg.j2", "variants.svg.j2"} <= set(names)
    for name in names:
        jinja_environment().get_template(name)


# ---- an optimised program


def shown(record) -> str:
    """What the page says, without the JSON at its end."""
    return Outline(render_page(record)).text.partition("JSON document")[0]


def test_optimize_is_headed_by_what_the_file_does_and_its_worth():
    head = "FASTER add_scale_bias_relu_optimized.py runs 1 kernel (C++) in the only region: 39.6 ms, "
    assert head + "2.56x eager [2.53, 2.59], 1.04x torch.compile [1.02, 1.06]" in shown(samples.OPTIMIZED)
    assert "rejected add_scale_bias_relu_optimized.py is rejected: inaccurate: 4,100 times" in shown(samples.BROKEN)
    assert "accepted add_scale_bias_relu_optimized.py is the original program: nothing was faster" in shown(
        samples.NOTHING
    )
    assert "plan 1 region to generate kernels for; nothing was generated" in shown(samples.PLAN)


def test_the_modules_are_a_table_and_the_regions_are_folded():
    said, markup = shown(samples.WHOLE_MODEL), render_page(samples.WHOLE_MODEL)
    assert "mlp x12 kernels in 12 of 12 regions (region_0)" in said
    assert "and 152 smaller modules" in said
    assert "<details>\n<summary>before, predicted and after</summary>" in markup
    assert "Modules" not in shown(samples.DECODER)
    assert "<details open>\n<summary>before, predicted and after</summary>" in render_page(samples.DECODER)


def test_kernels_that_are_not_used_are_marked():
    said = shown(samples.UNUSED)
    reason = "not used: the whole program is faster with torch.compile"
    assert f"a kernel is the fastest in 33 of 35 regions, {reason}" in said
    assert said.count(f"8 warps; {reason}") == 1
    assert f"kernels {reason}" in said
    assert "not used" not in shown(samples.WHOLE_MODEL)


def test_the_page_shows_what_the_budget_went_into():
    assert "71 s of a budget of 60 s: tuning the regions 40 s, checking 31 s" in shown(samples.WHOLE_MODEL)


def test_optimize_shows_every_attempt_the_fastest_first_and_marks_the_winner():
    said = shown(samples.OPTIMIZED)
    ways = [
        "C++, vectors along i0, all threads, non-temporal stores 39.6 ms 1.00x winner",
        "torch.compile 41.0 ms 1.04x -",
        "C++, vectors along i0, all threads 51.2 ms 1.29x accepted",
        "C++, vectors along i0, one thread 73.0 ms 1.84x not verified",
        "torch 101 ms 2.56x -",
        "C++, vectors along r0, all threads - - rejected: CompileError: no such instruction: vexp512",
    ]
    assert " ".join(ways) in said
    assert len(Outline(render_page(samples.OPTIMIZED)).with_class("winner")) == 1
    wrong = "Triton, tiles of 1 x 512, 2 warps 1.10 us 0.38x rejected: 4,100 times the reference's own error"
    assert wrong in shown(samples.DECODER)


def test_optimize_shows_verdict_bench_file_and_what_is_left():
    said = shown(samples.OPTIMIZED)
    for part in (
        "as accurate as the reference",
        "Accuracy",
        "Variants",
        "Comparisons",
        "7 lines of Python",
        "Conditions",
    ):
        assert part in said
    assert "less = 1 < 2 and \"a\" != 'b'" in said
    assert "linear (7 times) not pointwise, a reduction or a view" in shown(samples.DECODER)
    assert "no kernel, already at 1.05x its floor" in shown(samples.DECODER)


def test_optimize_draws_a_region_in_proportion_on_its_own_scale():
    outline = Outline(charts.render_region(samples.OPTIMIZED.regions[0]))
    widths = [float((attrs["width"] or "").rstrip("%")) for attrs in outline.with_class("seg")]
    assert widths == pytest.approx([100, 100 * 38.7 / 101.3, 100 * 39.6 / 101.3], abs=0.01)
    assert float((outline.with_class("mark")[0]["x1"] or "").rstrip("%")) == pytest.approx(100 * 36.9 / 101.3, abs=0.01)
    idle = replace(samples.OPTIMIZED.regions[0], floor_us=0.0, before_us=0.0, predicted_us=0.0, after_us=0.0)
    assert "NaN" not in charts.render_region(idle)


def test_a_long_file_and_many_long_regions_leave_the_page_small():
    source = 'x = "<&>"\n' * 40_000
    region = replace(samples.OPTIMIZED.regions[0], text='  a["<&>"] = b\n' * 5_000)
    many = replace(samples.OPTIMIZED, source=source, regions=(region,) * 200)
    markup = render_page(many)
    assert len(markup.encode()) < 1_000_000
    assert "40,000 lines of Python, 400 KB, too large for this page" in Outline(markup).text
    assert "and 4,900 more lines" in Outline(markup).text
    assert "and 176 more with smaller gains" in Outline(markup).text
    assert "too large for this page" in markup


def test_a_notebook_draws_an_optimization():
    assert "runs 1 kernel (C++) in the only region" in str(samples.OPTIMIZED._repr_html_())
    assert "details" not in {tag for tag, _ in Outline(render_fragment(samples.OPTIMIZED)).tags}


# ---- drawings


def test_bars_are_in_proportion():
    found = Outline(charts.render_time_bars(samples.MEMORY)).with_class("seg")
    width = {attrs["class"]: float((attrs["width"] or "").rstrip("%")) for attrs in found}
    assert width["seg now"] == 100
    assert width["seg written"] == pytest.approx(100 * 92.2 / 101.3, abs=0.01)
    assert width["seg fused"] == pytest.approx(100 * 36.9 / 101.3, abs=0.01)
    assert width["seg faults"] == pytest.approx(100 * 6.2 / 101.3, abs=0.01)


def test_variants_stand_against_floor_and_bound():
    outline = Outline(charts.render_variants(samples.BENCH))
    longest = max(variant.high_us for variant in samples.BENCH.variants)
    floors = {attrs["x1"] for attrs in outline.with_class("mark", "floor")}
    bounds = {attrs["x1"] for attrs in outline.with_class("mark", "bound")}
    assert floors == {f"{round(100 * 36_900 / longest, 3)}%"}
    assert bounds == {f"{round(100 * 23_300 / longest, 3)}%"}


def test_an_interval_inside_the_band_is_drawn_inside_it():
    def ends(low: float, high: float) -> tuple[float, float, float, float]:
        found = replace(samples.BENCH.comparisons[0], verdict="SAME", speedup=1.0, low=low, high=high)
        outline = Outline(charts.render_comparisons(replace(samples.BENCH, comparisons=(found,))))
        band, bar = outline.with_class("band")[0], outline.with_class("SAME")[0]
        start = float((band["x"] or "").rstrip("%"))
        end = start + float((band["width"] or "").rstrip("%"))
        return start, *(float((bar[key] or "").rstrip("%")) for key in ("x1", "x2")), end

    assert list(ends(0.99, 1.01)) == sorted(ends(0.99, 1.01))
    start, low, high, end = ends(0.9, 1.1)
    assert low < start < end < high


def test_every_sample_is_drawn_and_a_far_one_stands_at_the_edge():
    variant = samples.BENCH.variants[0]
    timing = replace(variant.timing, samples_us=(variant.time_us, variant.time_us * 3))
    outline = Outline(charts.render_sample_strips(replace(samples.BENCH, variants=(replace(variant, timing=timing),))))
    assert [attrs["cx"] for attrs in outline.with_class("sample")] == ["50.0%", "100.0%"]
    assert len(outline.with_class("sample", "beyond")) == 1


def wide_drawing(diagnosis: Diagnosis) -> Outline:
    """The first of the two drawings."""
    return Outline(str(render_roofline(diagnosis.machine, diagnosis)).partition("</svg>")[0] + "</svg>")


def dots(diagnosis: Diagnosis, kind: str) -> list[tuple[float, float]]:
    outline = wide_drawing(diagnosis)
    return [(float(a["cx"] or 0), float(a["cy"] or 0)) for a in outline.with_class("dot", kind)]


def test_roofline_has_a_dot_per_operator_and_one_for_the_whole():
    assert len(dots(samples.MEMORY, "operator")) == 4
    assert len(dots(samples.MEMORY, "whole")) == len(dots(samples.MEMORY, "goal")) == 1
    assert len(dots(samples.OVERHEAD, "operator")) + count_unplaced_operators(samples.OVERHEAD) == 64
    assert count_unplaced_operators(samples.OVERHEAD) == 13


def test_a_program_at_a_ceiling_is_drawn_on_its_line():
    flops, count = 4_000_000, 8_000_000
    spent_us = count / (29.1e9) * 1e6
    row = replace(samples.MEMORY.operators[0], flops=flops, bytes=count, time_us=spent_us, share=1.0)
    (x, y), *_ = dots(replace(samples.MEMORY, operators=(row,)), "operator")
    outline = wide_drawing(replace(samples.MEMORY, operators=(row,)))
    line = {key: float(value or 0) for key, value in outline.with_class("slope", "main")[0].items() if key != "class"}
    share = (x - line["x1"]) / (line["x2"] - line["x1"])
    assert 0 < share < 1
    assert y == pytest.approx(line["y1"] + share * (line["y2"] - line["y1"]), abs=0.1)


@pytest.mark.parametrize("name", ["memory", "overhead", "compute", "foreseen"])
def test_nothing_is_drawn_outside_the_axes(name):
    diagnosis = samples.EVERY[name]
    outline = wide_drawing(diagnosis)
    for attrs in outline.with_class("slope") + outline.with_class("roof"):
        if "x1" not in attrs:
            continue
        assert 50 <= float(attrs["x1"] or 0) <= float(attrs["x2"] or 0) <= 746
    for kind in ("operator", "whole", "goal"):
        assert all(50 < x < 746 and 14 < y < 384 for x, y in dots(diagnosis, kind))


def test_a_machine_without_ceilings_has_no_roofline():
    bare = Machine(name="x", device="cpu", provenance="measured", levels=(MemoryLevel(name="DRAM"),), matrix_tflop_s={})
    assert render_roofline(bare) == ""
    assert "no known ceilings" in Outline(render_page(bare)).text


def test_scales():
    scale = LogScale(1, 1000, 0, 300)
    assert [scale.position(value) for value in (0, 1, 10, 1000, 1e9, math.nan)] == [0, 0, 100, 300, 300, 0]
    assert scale.decades() == [1, 10, 100, 1000]
    assert LinearScale(0, 10, 100, 0).position(2.5) == 75
    assert padded_range([]) == (1.0, 10.0)
    assert padded_range([2.0, 0.0, math.inf], decades=1) == pytest.approx((0.2, 20))


def test_a_number_never_parts_from_its_unit():
    assert join_units("at 91 % of 29.1 GB/s, [2.53, 2.59]") == "at 91\u00a0% of 29.1\u00a0GB/s, [2.53,\u00a02.59]"
    assert join_units("4 operators in 3 steps") == "4 operators in 3 steps"


def test_verdict_pages_take_the_colour_of_the_verdict():
    assert '<body class="kw bad">' in render_page(samples.REJECTED)
    assert '<body class="kw good">' in render_page(samples.ACCEPTED)


@pytest.mark.parametrize("verb", ["ladder", "emulation"])
def test_pages_of_climbs_and_emulations_hold_every_line(verb):
    from kernelwright.core.emulation import Emulation, EmulationRecommendation, MemoryAccess
    from kernelwright.core.ladder import LadderRun, RungOutcome
    from kernelwright.machines import machine_from_spec

    rung = RungOutcome(
        number=1,
        name="naive",
        title="A <b> title",
        question="Why?",
        hypothesis="So.",
        next="On.",
        accepted=True,
        num_shapes=49,
    )
    access = MemoryAccess(
        kernel="f", line=3, code="x[i] < 1", kind="global load", operand="x", access_bytes=4, requests=9,
        transactions_per_request=32.0, ideal_transactions_per_request=4.0,
    )  # fmt: skip
    records = {
        "ladder": LadderRun(ladder="gemm", machine=machine_from_spec("h200"), baseline="cuBLAS", rungs=(rung,)),
        "emulation": Emulation(
            problem="p", candidate="k.cu", summary="line 3: costly", accesses=(access,), sanitizer_findings=(), flops=2,
            global_bytes=64, recommendations=(EmulationRecommendation(action="line 3: let neighbours"),),
        ),
    }  # fmt: skip
    text = render_page(records[verb])
    for said in {"ladder": ("1 naive", "A &lt;b&gt; title", "Why?"), "emulation": ("x[i] &lt; 1", "line 3: let")}[verb]:
        assert said in text


# ---- the order of a page


def sections(markup: str) -> list[str]:
    return re.findall(r"<h2>([^<]*?) *(?:<|$)", markup)


@pytest.mark.parametrize("name", ["memory", "overhead", "compute", "undetermined", "foreseen", "emulated"])
@pytest.mark.parametrize("draw", [render_page, render_fragment])
def test_what_to_do_next_comes_first(draw, name):
    found = sections(draw(samples.EVERY[name]))
    assert found[0] == "Next steps"
    assert found.count("Next steps") == 1


@pytest.mark.parametrize("name", sorted(samples.EVERY))
def test_the_steps_of_the_document_stand_first_on_every_page(name):
    markup = render_page(samples.EVERY[name], next=["line 21: fix <it>"])
    assert sections(markup)[0] == "Next steps"
    if not isinstance(samples.EVERY[name], Diagnosis):
        assert "fix &lt;it&gt;" in markup.partition("</ol>")[0]


def test_a_page_without_a_next_step_has_no_section_for_it():
    assert "Next steps" not in render_page(samples.BENCH)
