"""Softmax without subnormal intermediates, each of which may cost hundreds of cycles: exponentials are scaled by 2^40,
and the division by their sum removes the scale."""

from __future__ import annotations

import msgspec

from kernelwright.compiler.regions.exponentials import find_exponential_sums
from kernelwright.compiler.regions.region import Region, Step


def scale_exponentials(region: Region) -> Region:
    """The region with scaled exponentials where only their own sum and the divisions by it use them."""
    new_ops: dict[str, str] = {}
    for match in find_exponential_sums(region):
        power, total = match.exp_step.value, match.total.value
        users = [step for step in region.steps if {power, total} & {*step.values} and step.value != total]
        only_divided = all(
            isinstance(step, Step) and step.op == "div" and step.args == (power, total) for step in users
        )
        is_stored = {power, total} & {store.value for store in region.stores}
        if only_divided and not is_stored and (match.exp_step.op, match.exp_step.dtype) == ("exp", "float32"):
            new_ops |= {power: "exp_scaled", **dict.fromkeys((step.value for step in users), "scaled_div")}
    steps = tuple(
        msgspec.structs.replace(step, op=new_ops[step.value]) if step.value in new_ops else step
        for step in region.steps
    )
    return msgspec.structs.replace(region, steps=steps) if new_ops else region
