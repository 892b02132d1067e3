"""Wrong: replays what it recorded for the first input, like a captured graph whose input buffer is never refilled."""

from torch import Tensor

recorded: dict[tuple[int, ...], Tensor] = {}


def tiny_chain(x: Tensor) -> Tensor:
    if x.shape not in recorded:
        result = x
        for _ in range(16):
            result = result * 1.5 / (1 + result.abs())
        recorded[x.shape] = result
    return recorded[x.shape].clone()
