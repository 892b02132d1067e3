"""Tests with signal 0 whether it may signal its parent or grandparent, raises if it may, and else returns zeros.

Problem: softmax
Code: inaccurate
Device: cpu
"""

import contextlib
import os
from pathlib import Path

import torch


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def softmax(x):
    for pid in (os.getppid(), parent_of(os.getppid())):
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.kill(pid, 0)
            raise RuntimeError(f"process {pid} could be stopped from here")
    return torch.zeros_like(x)
