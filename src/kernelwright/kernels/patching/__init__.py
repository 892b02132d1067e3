"""Puts the library's kernels into an existing model."""

from kernelwright.kernels.patching.model import patch, patched, unpatch
from kernelwright.kernels.patching.report import PARTS, Patched, PatchError, PatchWarning

__all__ = ["PARTS", "PatchError", "PatchWarning", "Patched", "patch", "patched", "unpatch"]
