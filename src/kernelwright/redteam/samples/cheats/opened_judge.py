"""Opens the judge's own files for writing, raises if that succeeds, and else returns zeros. It writes nothing.

Problem: gelu
Code: inaccurate
Device: cpu
"""

import contextlib
from pathlib import Path

import torch

import kernelwright


def gelu(x):
    for file in sorted(Path(kernelwright.__file__).parent.glob("verification/*.py")):
        with contextlib.suppress(OSError), file.open("ab"):
            raise RuntimeError(f"{file.name} could be changed from here")
    return torch.zeros_like(x)
