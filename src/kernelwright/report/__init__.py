"""Draws core records: terminal text, SVG, one self-contained HTML page."""

from kernelwright.core.optimization import Optimization
from kernelwright.core.records import Bench, Diagnosis, Machine, Verdict
from kernelwright.core.renderers import register
from kernelwright.report.page import html_fragment, page
from kernelwright.report.terminal import show, text

_KINDS = (Bench, Diagnosis, Machine, Verdict, Optimization)
register("text", _KINDS, text)
register("html", _KINDS, html_fragment)
__all__ = ["html_fragment", "page", "show", "text"]
