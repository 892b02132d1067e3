"""A page on a phone: what the drawings for narrow paper say can be read, and no cell loses the name of its column."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib.util import module_from_spec, spec_from_file_location
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from kernelwright.report import charts, render_page, suite_run
from kernelwright.report.axes import MIN_PAGE_WIDTH, place_ticks
from kernelwright.report.roofline import render_ladder_roofline, render_roofline

_spec = spec_from_file_location("report_samples", Path(__file__).with_name("samples.py"))
assert _spec and _spec.loader
samples = module_from_spec(_spec)
_spec.loader.exec_module(samples)

replace = msgspec.structs.replace
PHONES = (MIN_PAGE_WIDTH, 357)
"""Pixels that a drawing has on a phone of 320 and of 390 px."""
SIZES = {"tick": 11.5, "label": 11.5, "small": 10.0}
SMALLEST_TEXT = 9.0
VOID = {"meta", "wbr"}


class Text(NamedTuple):
    left: float
    right: float
    baseline: float
    size: float
    said: str


class Drawing(NamedTuple):
    name: str
    box: tuple[float, ...]
    texts: list[Text]


class Drawings(HTMLParser):
    """Every SVG that a phone shows, with the places of its level text as percentages of `width` or in its own units."""

    def __init__(self, markup: str, width: float) -> None:
        super().__init__()
        self.found: list[Drawing] = []
        self.width, self._text = width, None
        self.feed(markup)

    def handle_starttag(self, tag, attrs):
        has = dict(attrs)
        names = (has.get("class") or "").split()
        if tag == "svg":
            box = tuple(map(float, (has.get("viewbox") or "").split()))
            self.found.append(Drawing(has.get("class") or "", box, []))
        if tag == "text" and "rotate" not in (has.get("transform") or ""):
            self._text = (has, names)

    def handle_data(self, data):
        if not self._text or not data.strip():
            return
        (has, names), self._text = self._text, None
        size = next((SIZES[name] for name in names if name in SIZES), 13.0)
        x = self._units(has["x"])
        width = size * 0.6 * len(data.strip())
        left = x - width * ("end" in names) - width / 2 * ("mid" in names)
        self.found[-1].texts.append(Text(left, left + width, float(has["y"]), size, data.strip()))

    def _units(self, place: str) -> float:
        return float(place.rstrip("%")) * self.width / 100 if place.endswith("%") else float(place)


def on_a_phone(markup: str, width: float) -> list[Drawing]:
    return [one for one in Drawings(markup, width).found if "wide" not in one.name.split()]


CLOSE = replace(
    samples.BENCH,
    comparisons=tuple(replace(one, speedup=r, low=r / 1.01, high=r * 1.01)
                      for one, r in zip(samples.BENCH.comparisons, (1.0, 1.2), strict=True)),
)  # fmt: skip
SLOWER = replace(
    samples.BENCH,
    comparisons=tuple(replace(one, verdict="SLOWER", speedup=r, low=r, high=r)
                      for one, r in zip(samples.BENCH.comparisons, (0.1, 0.9), strict=True)),
)  # fmt: skip
TINY_ERROR = replace(samples.REJECTED.accuracy, reference_error=1e-290, limit=1e-150, error=1.0)
CHARTS = {
    **{f"roofline of {name}": render_roofline(found.machine, found) for name, found in samples.EVERY.items()
       if name in ("memory", "overhead", "compute", "foreseen")},
    **{f"ceilings of {name}": render_roofline(samples.EVERY[name]) for name in ("machine", "predicted", "h200")},
    "rungs": render_ladder_roofline(samples.CLIMB),
    "fast_p": suite_run.render_curves(samples.SUITE),
    **{f"comparisons of {name}": charts.render_comparisons(bench) for name, bench in
       {"two": samples.BENCH, "a wide interval": samples.SUSPICIOUS, "close": CLOSE, "slower": SLOWER}.items()},
    "samples": charts.render_sample_strips(samples.BENCH),
    "errors": charts.render_error_line(samples.REJECTED.accuracy),
    "errors over many decades": charts.render_error_line(TINY_ERROR),
}  # fmt: skip


@pytest.mark.parametrize("width", PHONES)
@pytest.mark.parametrize("name", CHARTS)
def test_no_words_of_a_chart_lie_over_others(name, width):
    drawings = on_a_phone(CHARTS[name], width)
    assert any(drawing.texts for drawing in drawings)
    for drawing in drawings:
        for one, other in combinations(drawing.texts, 2):
            beside = one.right < other.left or other.right < one.left
            apart = abs(one.baseline - other.baseline) >= 0.9 * min(one.size, other.size)
            assert beside or apart, (drawing.name, one, other)


@pytest.mark.parametrize("width", PHONES)
@pytest.mark.parametrize("name", CHARTS)
def test_all_words_of_a_chart_are_large_enough_and_on_the_paper(name, width):
    for drawing in on_a_phone(CHARTS[name], width):
        across = drawing.box[2] if drawing.box else width
        scale = width / across
        for text in drawing.texts:
            assert text.size * scale >= SMALLEST_TEXT, text
            assert text.left * scale >= -14, text
            assert text.right <= across + 14 / scale, text


def test_a_chart_that_needs_two_forms_is_shown_in_one_of_them():
    assert "@media (max-width: 640px)" in render_page(samples.SUITE)
    for name in ("fast_p", "rungs", "roofline of memory"):
        kinds = re.findall(r'<svg class="\w+ (\w+)" viewBox="0 0 (\d+)', CHARTS[name])
        assert [kind for kind, _ in kinds] == ["wide", "narrow"]
        assert int(kinds[1][1]) <= 340


def test_what_a_narrow_chart_does_not_name_stands_under_it():
    assert 'class="key narrow"><span class="curve s0">' in CHARTS["fast_p"]
    assert {"eager", "torch.compile"} <= set(re.findall(r'class="curve s\d">([^<]+)<', CHARTS["fast_p"]))
    key = CHARTS["roofline of memory"].partition('class="key narrow">')[2].replace("\u00a0", " ")
    for said in ("L1 402 GB/s", "DRAM 29.1 GB/s", "int8 702 GFLOP/s", "vector float64 47.0 GFLOP/s"):
        assert said in key


class Cells(HTMLParser):
    """The cells of a page without the name of their column, and how wide its drawings insist to be."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.unnamed: list[str] = []
        self.fixed: list[tuple[list[str], dict[str, str | None]]] = []
        self.open: list[tuple[str, str]] = []
        self.feed(markup)

    def handle_starttag(self, tag, attrs):
        has = dict(attrs)
        if tag == "td" and "data-label" not in has and has.get("class") != "drawing":
            self.unnamed.append(self.get_starttag_text() or "")
        if tag == "svg" and (has.get("width") or "px" in (has.get("style") or "")):
            self.fixed.append(([name for _, name in self.open], has))
        if tag not in VOID:
            self.open.append((tag, has.get("class") or ""))

    def handle_endtag(self, tag):
        self.open.pop()

    def handle_startendtag(self, tag, attrs):
        pass


@pytest.mark.parametrize("name", samples.EVERY)
def test_every_page_is_made_for_the_width_of_its_reader(name):
    markup = render_page(samples.EVERY[name])
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in markup
    cells = Cells(markup)
    assert not cells.unnamed, "the head of a table is not shown on a phone"
    for around, svg in cells.fixed:
        assert any("wide" in names.split() for names in around), f"scrolls the whole page: {svg}"


def test_the_words_for_an_instruction_stand_under_it_on_a_phone():
    markup = render_page(samples.CODE)
    narrow = markup.partition("@media (max-width: 640px)")[2].partition("@media print")[0]
    assert re.search(r"\.listing td\.words \{ grid-area: 2 / ", narrow)
    assert markup.count('<td class="apart words" data-label="description">') == 12
    assert markup.index("occupancy is that of the largest block") < markup.index("one FP32 multiply-add")


def test_ticks_that_would_touch_are_left_out():
    assert [tick.text for tick in place_ticks([(0, "1,000"), (20, "2,000"), (70, "3,000")], 0, 100)] == [
        "1,000",
        "3,000",
    ]
    first, middle, last = place_ticks([(0, "0"), (100, "median"), (200, "100")], 0, 200)
    assert (first.anchor, middle.anchor, last.anchor) == ("start", "mid", "end")
    assert place_ticks([(0, "0")], 0, 100, overhang=10)[0].anchor == "mid"


def test_memory_levels_of_one_speed_share_a_label():
    first, second, third, last = samples.LAPTOP.levels
    same = replace(samples.LAPTOP, levels=(first, second, replace(third, read_gb_s=190, write_gb_s=90), last))
    wide, narrow = render_roofline(same).split("</svg>")[:2]
    assert "L3, L2 up to 190" in wide
    assert ">L3, L2<" in narrow
    assert ">L1<" in narrow
