"""Draws core records: terminal text, SVG, one self-contained HTML page."""

from kernelwright.report.page import html_fragment, page
from kernelwright.report.terminal import show, text

__all__ = ["html_fragment", "page", "show", "text"]
