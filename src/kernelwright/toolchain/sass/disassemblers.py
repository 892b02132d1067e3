"""Where NVIDIA's disassemblers are on this machine."""

from __future__ import annotations

import os
import shutil
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from kernelwright.core.errors import MissingDependency, UsageError

TOOLS = ("nvdisasm", "cuobjdump")


def find_tool(name: str) -> Path:
    """A disassembler: named by NVDISASM or CUOBJDUMP, on PATH, CUDA's own, a wheel's, or Triton's; the first there is.

    Args:
        name: nvdisasm or cuobjdump.
    Raises:
        UsageError: the variable names no program.
        MissingDependency: it is nowhere.
    """
    if told := os.environ.get(name.upper()):
        if found := shutil.which(told):
            return Path(found)
        raise UsageError(f"{name.upper()}={told} is no program that can be run", next=f"unset {name.upper()}")
    for found in _candidate_paths(name, os.environ.get("PATH", "")):
        if os.access(found, os.X_OK) and found.is_file():
            return found
    raise MissingDependency(f"{name} is nowhere on this machine", next=f"pip install nvidia-cuda-{name}")


@cache
def _candidate_paths(name: str, path: str) -> tuple[Path, ...]:
    """In the order of preference; not all of them are there."""
    found = [Path(on_path)] if (on_path := shutil.which(name, path=path)) else []
    found.append(Path("/usr/local/cuda/bin") / name)
    for folder in _packages("nvidia"):  # a namespace: nvidia/cu13/bin, nvidia/cuda_nvdisasm/bin
        found += sorted(folder.glob(f"*/bin/{name}"), reverse=True)
    found += [folder / "backends" / "nvidia" / "bin" / name for folder in _packages("triton")]
    return tuple(found)


def _packages(name: str) -> list[Path]:
    """The folders of a package, without importing it."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return []
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
