"""Ladders as they were climbed: for a machine without the device, and for `kw ladder --recorded`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import torch

from kernelwright.benchmark.ladder import run_ladder
from kernelwright.core.errors import NotFoundError, UsageError
from kernelwright.core.ladder import LadderRun, RecordedLadderRun
from kernelwright.evidence.rows import DEFAULT_FOLDER, read_rows
from kernelwright.evidence.tables import recorded_ladder_runs
from kernelwright.ladders import find_rung, ladder_device


def run_or_load_ladder(
    name: str, rung_names: Sequence[str] = (), sizes: Sequence[tuple[int, ...]] = (), device: str = ""
) -> LadderRun:
    """A climb where the ladder's device is; without a GPU, or where it is to be `emulated`, a check beside the rows.

    Raises:
        UsageError: there is nothing to emulate. DeviceError: a GPU is asked for that is not here.
    """
    home = ladder_device(name)
    if home == "cuda" and (device in ("cpu", "emulated") or (not device and not torch.cuda.is_available())):
        return check_with_recorded_times(name, rung_names, sizes)
    if device == "emulated":
        raise UsageError(f"{name} is C++ for the CPU: there is nothing to emulate", next=f"kw ladder {name}")
    return run_ladder(name, rung_names=rung_names, sizes=sizes, device=device)


def check_with_recorded_times(
    name: str, rung_names: Sequence[str] = (), sizes: Sequence[tuple[int, ...]] = (), folder: str = DEFAULT_FOLDER
) -> LadderRun:
    """A ladder without its GPU: its rungs checked by emulation here, with the newest recorded times, if any."""
    checked = run_ladder(name, rung_names=rung_names, device="cpu")
    try:
        known = load_recorded_run(name, folder, rung_names, sizes)
    except NotFoundError:
        return checked
    times = {rung.name: rung.times for rung in known.rungs}
    rungs = tuple(msgspec.structs.replace(rung, times=times.get(rung.name, ())) for rung in checked.rungs)
    said = f"checked here by emulation on the CPU; the times were recorded on {known.recorded_date}"
    return msgspec.structs.replace(known, rungs=rungs, notes=(said,))


def load_recorded_run(
    name: str, folder: str = DEFAULT_FOLDER, rung_names: Sequence[str] = (), sizes: Sequence[tuple[int, ...]] = ()
) -> LadderRun:
    """The newest recorded climb; all of it, or some rungs and sizes.

    Raises:
        NotFoundError: there is none, or not of such a rung or size.
    """
    rows = read_rows(folder, "ladder")
    found = [
        one
        for one in recorded_ladder_runs(rows, {row.key: row.to_row_state("current") for row in rows})
        if one.run.ladder == name
    ]
    newest: RecordedLadderRun | None = max(found, key=lambda one: one.date, default=None)
    if newest is None:
        raise NotFoundError(f"no record of {name} in {folder}", next=f"kw ladder {name} --device emulated")
    there = {time.size for rung in newest.run.rungs for time in rung.times}
    if missing := [size for size in sizes if size not in there]:
        known = ", ".join("x".join(map(str, size)) for size in sorted(there))
        raise NotFoundError(f"{'x'.join(map(str, missing[0]))} was not recorded", next=f"these were: {known}")
    chosen = {find_rung(name, one).number for one in rung_names}
    rungs = tuple(
        msgspec.structs.replace(one, times=tuple(time for time in one.times if not sizes or time.size in sizes))
        for one in newest.run.rungs
        if not chosen or one.number in chosen
    )
    return msgspec.structs.replace(newest.run, recorded_date=newest.date, rungs=rungs)
