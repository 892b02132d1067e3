"""Puts the library's kernels into an existing model."""

from kernelwright.models.patching.model import patch, patched, unpatch
from kernelwright.models.patching.report import PARTS, Patched, PatchError, PatchWarning

__all__ = ["PARTS", "PatchError", "PatchWarning", "Patched", "patch", "patched", "unpatch"]
