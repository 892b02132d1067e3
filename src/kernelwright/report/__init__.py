"""Rendering of core records as terminal text, SVG and self-contained HTML pages."""

from kernelwright.core.bench import Bench
from kernelwright.core.diagnosis import Diagnosis
from kernelwright.core.machine import Machine
from kernelwright.core.optimization import Optimization
from kernelwright.core.renderers import register_renderer
from kernelwright.core.verdict import Verdict
from kernelwright.report.page import render_fragment, render_page
from kernelwright.report.terminal import render_text, show

_RECORD_TYPES = (Bench, Diagnosis, Machine, Verdict, Optimization)
register_renderer("text", _RECORD_TYPES, render_text)
register_renderer("html", _RECORD_TYPES, render_fragment)
__all__ = ["render_fragment", "render_page", "render_text", "show"]
