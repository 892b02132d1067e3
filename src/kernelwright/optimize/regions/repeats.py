"""What a program computes twice, a mean and then a variance with its own mean, is computed once."""

from __future__ import annotations

import msgspec

from kernelwright.optimize.regions.region import Region, Step


def without_repeats(region: Region) -> Region:
    """The same region; of entries that say the same of the same values the first stays."""
    first: dict[str, str] = {}
    names: dict[str, str] = {}
    loads = tuple(load for load in region.loads if names.setdefault(load.value, _first(load, first)) == load.value)
    steps = []
    for step in region.steps:
        if isinstance(step, Step):
            args = tuple(names.get(arg, arg) if isinstance(arg, str) else arg for arg in step.args)
            step = msgspec.structs.replace(step, args=args)
        else:
            step = msgspec.structs.replace(step, arg=names[step.arg])
        if names.setdefault(step.value, _first(step, first)) == step.value:
            steps.append(step)
    stores = tuple(msgspec.structs.replace(store, value=names[store.value]) for store in region.stores)
    return msgspec.structs.replace(region, loads=loads, steps=tuple(steps), stores=stores)


def _first(entry: msgspec.Struct, first: dict[str, str]) -> str:
    """The value of the first entry that says the same; as text, since 0.0 is -0.0 and 1 is True."""
    value = entry.value  # type: ignore[attr-defined]
    return first.setdefault(repr(msgspec.structs.replace(entry, value="")), value)
