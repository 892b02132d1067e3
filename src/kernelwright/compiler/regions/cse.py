"""Common subexpression elimination, as of a mean and of the mean inside a variance."""

from __future__ import annotations

import msgspec

from kernelwright.compiler.regions.region import Load, Reduction, Region, Scan, Step


def eliminate_common_subexpressions(region: Region) -> Region:
    """Return the same region without duplicate loads and steps, and without casts to the dtype that a value has."""
    first: dict[str, Load | Step | Reduction | Scan] = {}
    names: dict[str, str] = {}
    dtypes = {step.value: step.dtype for step in region.steps}
    for entry in (*region.loads, *region.steps):
        if isinstance(entry, Step):  # an axis is an argument too and is not renamed
            args = tuple(names.get(arg, arg) if isinstance(arg, str) else arg for arg in entry.args)
            entry = msgspec.structs.replace(entry, args=args)
        elif not isinstance(entry, Load):
            entry = msgspec.structs.replace(entry, arg=names[entry.arg])
        if isinstance(entry, Step) and entry.op == "cast" and entry.dtype == dtypes.get(str(entry.args[0])):
            names[entry.value] = str(entry.args[0])
            continue
        key = repr(msgspec.structs.replace(entry, value=""))  # a string, since 0.0 == -0.0 and 1 == True
        names[entry.value] = first.setdefault(key, entry).value
    return msgspec.structs.replace(
        region,
        loads=tuple(entry for entry in first.values() if isinstance(entry, Load)),
        steps=tuple(entry for entry in first.values() if not isinstance(entry, Load)),
        stores=tuple(msgspec.structs.replace(store, value=names[store.value]) for store in region.stores),
    )
