"""Rendering of core records as terminal text, SVG and self-contained HTML pages."""

from kernelwright.core.optimization import Optimization
from kernelwright.core.records import Bench, Diagnosis, Machine, Verdict
from kernelwright.core.renderers import register_renderer
from kernelwright.report.page import render_fragment, render_page
from kernelwright.report.terminal import render_text, show

_RECORD_TYPES = (Bench, Diagnosis, Machine, Verdict, Optimization)
register_renderer("text", _RECORD_TYPES, render_text)
register_renderer("html", _RECORD_TYPES, render_fragment)
__all__ = ["render_fragment", "render_page", "render_text", "show"]
