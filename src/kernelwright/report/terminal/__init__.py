"""Rendering of core records in a terminal."""

from kernelwright.report.terminal.show import render_text, show

__all__ = ["render_text", "show"]
