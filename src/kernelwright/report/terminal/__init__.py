"""Core records as people read them in a terminal."""

from kernelwright.report.terminal.show import show, text

__all__ = ["show", "text"]
