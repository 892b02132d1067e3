"""Baselines in a process that a judge times from outside."""

from __future__ import annotations

from typing import Any

from kernelwright.benchmark.variants import make_baseline
from kernelwright.verification.worker.tasks import current_worker, install_program


def load_baseline(payload: dict[str, Any]) -> dict[str, Any]:
    """Takes the reference for the calls to come, as torch runs it; `payload`: `which` of `arms.BASELINES`."""
    here = current_worker()
    return install_program(make_baseline(payload["which"], here.problem, here.device)) | {
        "name": payload["which"],
        "notes": [],
    }
