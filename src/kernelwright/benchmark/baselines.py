"""Baselines in a process that a judge times from outside."""

from __future__ import annotations

from typing import Any

from kernelwright.benchmark.variants import baseline_program
from kernelwright.verification.worker.tasks import held, worker


def load_baseline(payload: dict[str, Any]) -> dict[str, Any]:
    """Takes the reference for the calls to come, as torch runs it; `payload`: `which` of `arms.BASELINES`."""
    here = worker()
    return held(baseline_program(payload["which"], here.problem, here.device)) | {"name": payload["which"], "notes": []}
