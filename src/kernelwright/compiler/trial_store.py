"""Tuning attempts kept on disk: each costs seconds, and an interrupted run must not lose them."""

from __future__ import annotations

import msgspec

from kernelwright.compiler.library.products import kernel_digest
from kernelwright.compiler.regions.contraction import AnyRegion, ContractionRegion
from kernelwright.core.cache import cache_dir, digest, write_atomic
from kernelwright.core.machine import Machine
from kernelwright.core.optimization import Attempt


class TrialStore:
    """Attempts at one region on one machine, one file each in the cache folder."""

    def __init__(self, region: AnyRegion, machine: Machine) -> None:
        software = [f"{name} {version}" for name, version in sorted(machine.software.items())]
        library = [kernel_digest()] if isinstance(region, ContractionRegion) else []
        self._key = (str(region), machine.name, str(machine.threads), *software, *library)

    def get(self, source: str) -> Attempt | None:
        """Return the attempt with this source text; None if there is none or its file is damaged."""
        try:
            return msgspec.json.decode(self._path(source).read_bytes(), type=Attempt)
        except (OSError, msgspec.DecodeError):
            return None

    def put(self, source: str, attempt: Attempt) -> None:
        """Store the attempt with this source text."""
        write_atomic(self._path(source), msgspec.json.encode(attempt))

    def _path(self, source: str):
        return cache_dir("trials") / f"{digest(*self._key, source)}.json"
