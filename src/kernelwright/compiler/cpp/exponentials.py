"""Softmax without numbers below the normal range on the way, for each of which a processor may take hundreds of cycles:
exponentials are kept 2^40 times as large, and their shares of the sum are brought down at the end."""

from __future__ import annotations

import msgspec

from kernelwright.compiler.regions.exponentials import find_exponential_sums
from kernelwright.compiler.regions.region import Region, Step


def scale_exponentials(region: Region) -> Region:
    """The same region; exponentials that only their own sum and its shares use are scaled."""
    named: dict[str, str] = {}
    for one in find_exponential_sums(region):
        power, total = one.exp_step.value, one.total.value
        users = [step for step in region.steps if {power, total} & {*step.values} and step.value != total]
        shared = all(isinstance(step, Step) and step.op == "div" and step.args == (power, total) for step in users)
        stored = {power, total} & {store.value for store in region.stores}
        if shared and not stored and (one.exp_step.op, one.exp_step.dtype) == ("exp", "float32"):
            named |= {power: "exp_scaled", **dict.fromkeys((step.value for step in users), "share")}
    steps = tuple(
        msgspec.structs.replace(step, op=named[step.value]) if step.value in named else step for step in region.steps
    )
    return msgspec.structs.replace(region, steps=steps) if named else region
