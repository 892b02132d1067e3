"""Replace modules of an existing model by the library's kernels."""

from kernelwright.models.patching.model import count_patched, patch, unpatch
from kernelwright.models.patching.report import PARTS, PatchCounts, PatchError, PatchWarning

__all__ = ["PARTS", "PatchCounts", "PatchError", "PatchWarning", "count_patched", "patch", "unpatch"]
