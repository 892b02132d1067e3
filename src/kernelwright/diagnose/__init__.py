"""What is a program waiting on, how far is it from the floor, and what should be done next."""

from kernelwright.diagnose.watch import watch
from kernelwright.diagnose.why import why

__all__ = ["watch", "why"]
