"""Recorded ladder runs: for a machine without the device, and for `kw ladder --recorded`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import torch

from kernelwright.benchmark.ladder import run_ladder
from kernelwright.core.errors import NotFoundError, UsageError
from kernelwright.core.ladder import LadderRun, RecordedLadderRun
from kernelwright.evidence.rows import DEFAULT_FOLDER, read_rows
from kernelwright.evidence.tables import recorded_ladder_runs
from kernelwright.ladders import find_rung, ladder_device, needs_tma, read_rungs
from kernelwright.problems.gpu_requirement import find_gpu_requirement


def run_or_load_ladder(
    name: str, rung_names: Sequence[str] = (), sizes: Sequence[tuple[int, ...]] = (), device: str = ""
) -> LadderRun:
    """Run a ladder; without a GPU for it, or with device `emulated`, verify it and load the recorded times.

    Raises:
        UsageError: there is nothing to emulate.
        DeviceError: a GPU is requested and none is available, or not one that the ladder needs.
    """
    is_cuda = ladder_device(name) == "cuda"
    if is_cuda and (device in ("cpu", "emulated") or (not device and not _can_run(name))):
        return check_with_recorded_times(name, rung_names, sizes)
    if device == "emulated":
        raise UsageError(f"{name} is C++ for the CPU: there is nothing to emulate", next=f"kw ladder {name}")
    return run_ladder(name, rung_names=rung_names, sizes=sizes, device=device)


def check_with_recorded_times(
    name: str, rung_names: Sequence[str] = (), sizes: Sequence[tuple[int, ...]] = (), folder: str = DEFAULT_FOLDER
) -> LadderRun:
    """Verify the rungs of a CUDA ladder by emulation and add the newest recorded times, if any."""
    checked = run_ladder(name, rung_names=rung_names, device="cpu")
    try:
        recorded = load_recorded_run(name, folder, rung_names, sizes)
    except NotFoundError:
        return checked
    times = {rung.name: rung.times for rung in recorded.rungs}
    rungs = tuple(msgspec.structs.replace(rung, times=times.get(rung.name, ())) for rung in checked.rungs)
    note = f"verified on this machine by CPU emulation; the times were recorded on {recorded.recorded_date}"
    return msgspec.structs.replace(recorded, rungs=rungs, notes=(note,))


def _can_run(name: str) -> bool:
    """Whether there is a GPU for the ladder."""
    if not needs_tma(name):
        return torch.cuda.is_available()
    return find_gpu_requirement(rung.path for rung in read_rungs(name)).is_met()


def load_recorded_run(
    name: str, folder: str = DEFAULT_FOLDER, rung_names: Sequence[str] = (), sizes: Sequence[tuple[int, ...]] = ()
) -> LadderRun:
    """The newest recorded run of a ladder, restricted to the given rungs and sizes if any.

    Raises:
        NotFoundError: none is recorded, or not for such a rung or size.
    """
    rows = read_rows(folder, "ladder")
    runs = [
        one
        for one in recorded_ladder_runs(rows, {row.key: row.to_row_state("current") for row in rows})
        if one.run.ladder == name
    ]
    newest: RecordedLadderRun | None = max(runs, key=lambda one: one.date, default=None)
    if newest is None:
        raise NotFoundError(f"no record of {name} in {folder}", next=f"kw ladder {name} --device emulated")
    recorded_sizes = {time.size for rung in newest.run.rungs for time in rung.times}
    if missing := [size for size in sizes if size not in recorded_sizes]:
        known = ", ".join("x".join(map(str, size)) for size in sorted(recorded_sizes))
        raise NotFoundError(f"{'x'.join(map(str, missing[0]))} was not recorded", next=f"recorded sizes: {known}")
    numbers = {find_rung(name, one).number for one in rung_names}
    rungs = tuple(
        msgspec.structs.replace(one, times=tuple(time for time in one.times if not sizes or time.size in sizes))
        for one in newest.run.rungs
        if not numbers or one.number in numbers
    )
    return msgspec.structs.replace(newest.run, recorded_date=newest.date, rungs=rungs)
