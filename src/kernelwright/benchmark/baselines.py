"""Loads a baseline in a worker process that is timed externally."""

from __future__ import annotations

from typing import Any

from kernelwright.benchmark.variants import make_baseline
from kernelwright.verification.worker.tasks import current_worker, install_program


def load_baseline(payload: dict[str, Any]) -> dict[str, Any]:
    """Install a baseline as the program of the current worker.

    Args:
        payload: `which`, one of `variants.BASELINES`.
    """
    worker = current_worker()
    return install_program(make_baseline(payload["which"], worker.problem, worker.device)) | {
        "name": payload["which"],
        "notes": [],
    }
