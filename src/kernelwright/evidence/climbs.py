"""Ladders as they were climbed: for a machine without the device, and for `kw ladder --recorded`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import torch

from kernelwright.benchmark.ladder import climb
from kernelwright.core.errors import NotFoundError, UsageError
from kernelwright.core.ladder import Climb, LadderClimb
from kernelwright.evidence.rows import FOLDER, read_rows
from kernelwright.evidence.tables import ladder_climbs
from kernelwright.ladders import device_of, rung


def climb_or_recorded(
    name: str, which: Sequence[str] = (), sizes: Sequence[tuple[int, ...]] = (), device: str = ""
) -> Climb:
    """A climb where the ladder's device is; without a GPU, or where it is to be `emulated`, a check beside the rows.

    Raises:
        UsageError: there is nothing to emulate. DeviceError: a GPU is asked for that is not here.
    """
    home = device_of(name)
    if home == "cuda" and (device in ("cpu", "emulated") or (not device and not torch.cuda.is_available())):
        return checked_beside_recorded(name, which, sizes)
    if device == "emulated":
        raise UsageError(f"{name} is C++ for the CPU: there is nothing to emulate", next=f"kw ladder {name}")
    return climb(name, which=which, sizes=sizes, device=device)


def checked_beside_recorded(
    name: str, which: Sequence[str] = (), sizes: Sequence[tuple[int, ...]] = (), folder: str = FOLDER
) -> Climb:
    """A ladder without its GPU: its rungs checked by emulation here, with the newest recorded times, if any."""
    checked = climb(name, which=which, device="cpu")
    try:
        known = recorded_climb(name, folder, which, sizes)
    except NotFoundError:
        return checked
    times = {rung.name: rung.times for rung in known.rungs}
    rungs = tuple(msgspec.structs.replace(rung, times=times.get(rung.name, ())) for rung in checked.rungs)
    said = f"checked here by emulation on the CPU; the times were recorded on {known.recorded}"
    return msgspec.structs.replace(known, rungs=rungs, notes=(said,))


def recorded_climb(
    name: str, folder: str = FOLDER, which: Sequence[str] = (), sizes: Sequence[tuple[int, ...]] = ()
) -> Climb:
    """The newest recorded climb; all of it, or some rungs and sizes.

    Raises:
        NotFoundError: there is none, or not of such a rung or size.
    """
    rows = read_rows(folder, "ladder")
    found = [
        one
        for one in ladder_climbs(rows, {row.key: row.as_state("current") for row in rows})
        if one.climb.ladder == name
    ]
    newest: LadderClimb | None = max(found, key=lambda one: one.date, default=None)
    if newest is None:
        raise NotFoundError(f"no record of {name} in {folder}", next=f"kw ladder {name} --device emulated")
    there = {time.size for rung in newest.climb.rungs for time in rung.times}
    if missing := [size for size in sizes if size not in there]:
        known = ", ".join("x".join(map(str, size)) for size in sorted(there))
        raise NotFoundError(f"{'x'.join(map(str, missing[0]))} was not recorded", next=f"these were: {known}")
    chosen = {rung(name, one).number for one in which}
    rungs = tuple(
        msgspec.structs.replace(one, times=tuple(time for time in one.times if not sizes or time.size in sizes))
        for one in newest.climb.rungs
        if not chosen or one.number in chosen
    )
    return msgspec.structs.replace(newest.climb, recorded=newest.date, rungs=rungs)
