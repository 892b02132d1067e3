"""Rows of `torch.compile(model, backend="kernelwright")` on the example models: the time of a call of eager torch, of
inductor and of our backend, and the seconds of the first call of both compilers.

The first call of each compiler runs in a process of its own with empty caches: in one process the second would find
what the first has imported and compiled. The process of our backend then compiles with inductor, compares the results
and times all three, alternating.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from kernelwright.core.backend_run import BackendRun
from kernelwright.core.errors import NotFoundError
from kernelwright.core.machine import Machine
from kernelwright.core.median_times import OURS, TORCH_COMPILE
from kernelwright.evidence.backend_process import BATCH_FACTORS, FormRun
from kernelwright.evidence.command_process import CommandProcess
from kernelwright.evidence.fresh_processes import DeviceShare, failure_of, first_line, run_jobs
from kernelwright.evidence.kinds import MeasureRequest
from kernelwright.evidence.process_rows import FinishedRun, ProcessRows, choose_files
from kernelwright.machines.floor import last_cache_bytes

MODELS = "examples/models"
COMMAND = (sys.executable, "-W", "ignore", "-m", "kernelwright.evidence.backend_process")
CLOCKS = {"cuda": ("event clock",), "cpu": ("host clock",)}
FORMS = (TORCH_COMPILE, OURS)
"""The compilers, each with a process of its own."""
PROCESS_LIMIT_S, MIN_LEFT_S = 300.0, 60.0
"""A process takes 5 to 60 s on two cores, most of it for the first call."""


class BackendRows(ProcessRows[BackendRun]):
    """The rows of kind `backend`."""

    name = "backend"
    result_type = BackendRun
    noun = "model"
    entry_module = "kernelwright.compiler.dynamo_backend"
    instruments = ("first call", "paired comparison", "verification")
    clocks = CLOCKS

    def select_files(self, request: MeasureRequest) -> dict[str, Path]:
        """The file of each model at each batch size, or of the requested ones: `mlp` or `mlp/large`.

        Raises:
            NotFoundError: no example models, or none with such a name.
        """
        folder = request.root / MODELS
        files = {f"{path.stem}/{size}": path for path in sorted(folder.glob("*.py")) for size in BATCH_FACTORS}
        if not files:
            raise NotFoundError(f"no models in {folder}", next="use an evidence folder next to examples/")
        return choose_files(files, request.names, "/", f"in {MODELS}")

    def run(
        self, files: Mapping[str, Path], machine: Machine, shares: list[DeviceShare], end_s: float
    ) -> Iterator[FinishedRun[BackendRun]]:
        """Yield the result of each model whose processes end before `end_s`."""

        def make_command(job: tuple[str, str], folder: Path) -> tuple[str, ...]:
            name, form = job
            size, cache_bytes = name.rpartition("/")[2], last_cache_bytes(machine)
            return *COMMAND, str(files[name].resolve()), size, machine.device, form, str(cache_bytes)

        jobs = [(name, form) for name in files for form in FORMS]
        ended: dict[str, dict[str, _FormResult]] = {}
        for (name, form), process in run_jobs(
            jobs, make_command, shares, end_s, min_left_s=MIN_LEFT_S, limit_s=PROCESS_LIMIT_S
        ):
            ended.setdefault(name, {})[form] = _read_result(form, process)
            if len(ended[name]) == len(FORMS):
                yield _join_results(name, ended.pop(name))


KIND = BackendRows()


class _FormResult(NamedTuple):
    wall_s: float
    run: FormRun | None
    reason: str = ""
    detail: str = ""


def _read_result(form: str, process: CommandProcess) -> _FormResult:
    lines = process.output.splitlines() if process.exit_code == 0 else []
    try:
        run = msgspec.json.decode(lines[-1], type=FormRun)
    except (IndexError, msgspec.DecodeError):
        code, detail = failure_of(process, PROCESS_LIMIT_S)
        return _FormResult(process.wall_s, None, code, f"{form}: {detail}")
    if run.mismatch:
        return _FormResult(process.wall_s, run, "inaccurate", first_line(run.mismatch))
    return _FormResult(process.wall_s, run)


def _join_results(name: str, results: Mapping[str, _FormResult]) -> FinishedRun[BackendRun]:
    failed = next((results[form] for form in FORMS if results[form].reason), None)
    run = BackendRun(
        name=name,
        reason=failed.reason if failed else "",
        detail=failed.detail if failed else "",
        first_call_s={form: round(one.run.first_call_s, 2) for form, one in results.items() if one.run},
        times=(one.times if not failed and (one := results[OURS].run) else {}),
    )
    return FinishedRun(run, sum(one.wall_s for one in results.values()))
