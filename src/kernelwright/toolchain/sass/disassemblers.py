"""Search for NVIDIA's disassemblers on this machine."""

from __future__ import annotations

import os
import shutil
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from kernelwright.core.errors import MissingDependency, UsageError

TOOLS = ("nvdisasm", "cuobjdump")


def find_tool(name: str) -> Path:
    """Find a disassembler: NVDISASM or CUOBJDUMP, else PATH, the CUDA toolkit, a wheel, Triton, in this order.

    Args:
        name: nvdisasm or cuobjdump.
    Raises:
        UsageError: the environment variable is not an executable.
        MissingDependency: it was not found.
    """
    if override := os.environ.get(name.upper()):
        if path := shutil.which(override):
            return Path(path)
        raise UsageError(f"{name.upper()}={override} is not an executable", next=f"unset {name.upper()}")
    for path in _candidate_paths(name, os.environ.get("PATH", "")):
        if os.access(path, os.X_OK) and path.is_file():
            return path
    raise MissingDependency(f"{name} not found", next=f"pip install nvidia-cuda-{name}")


@cache
def _candidate_paths(name: str, path: str) -> tuple[Path, ...]:
    """Possible paths in order of preference; they need not exist."""
    paths = [Path(on_path)] if (on_path := shutil.which(name, path=path)) else []
    paths.append(Path("/usr/local/cuda/bin") / name)
    for folder in _packages("nvidia"):  # a namespace package: nvidia/cu13/bin, nvidia/cuda_nvdisasm/bin
        paths += sorted(folder.glob(f"*/bin/{name}"), reverse=True)
    paths += [folder / "backends" / "nvidia" / "bin" / name for folder in _packages("triton")]
    return tuple(paths)


def _packages(name: str) -> list[Path]:
    """Folders of a package, without importing it."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return []
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
