"""Inputs on which a kernel goes wrong where it saves what torch does not: rows of equal and of nearly equal numbers,
values near the ends of FP32, minus infinity and numbers below the normal range."""

import torch

KINDS = ("equal", "nearly equal", "large mean", "large", "small", "minus infinity", "subnormal")
LEVELS = (0.1, 3.3, 1000.1, 12345.678, 100000.1)


def hard(inputs, kind, seed):
    """The same inputs, with the floating ones of two elements and more redrawn; an integer input stays."""
    generator = torch.Generator().manual_seed(seed)
    return [_redrawn(x, kind, generator) if x.is_floating_point() and x.numel() > 1 else x for x in inputs]


def _redrawn(x, kind, generator):
    chosen = torch.rand(x.shape, generator=generator) < 0.2
    if kind in ("equal", "nearly equal", "large mean"):
        return _level(x, kind, generator)
    if kind in ("large", "small"):
        half = torch.finfo(x.dtype).max ** 0.5 if kind == "large" else torch.finfo(x.dtype).tiny ** 0.5
        return x * half
    if kind == "minus infinity":
        return x.masked_fill(chosen, float("-inf"))
    return torch.where(chosen, x * torch.finfo(x.dtype).tiny, x)


def _level(x, kind, generator):
    rows = (*x.shape[:-1], 1)
    level = torch.tensor(LEVELS)[torch.randint(len(LEVELS), rows, generator=generator)].to(x.dtype)
    if kind == "equal":
        return level.expand(x.shape).clone()
    if kind == "nearly equal":
        moved = torch.rand(x.shape, generator=generator) < 0.3
        return torch.where(moved, level * (1 + torch.finfo(x.dtype).eps), level)
    return level + x * level * 2.0**-10


def wrong(got, eager, right):
    """What is wrong with a result, given eager's and FP64's: it is not finite where eager's is, or farther off."""
    if (got.dtype, got.shape) != (eager.dtype, eager.shape):
        return f"{got.dtype} {tuple(got.shape)} where eager gives {eager.dtype} {tuple(eager.shape)}"
    if not got.is_floating_point():
        return ""  # a comparison may be decided by the last digit
    inside = right.abs() < torch.finfo(got.dtype).max / 4
    if lost := int((eager.isfinite() & inside & ~got.isfinite()).sum()):
        return f"{lost} are not finite where eager's are"
    if made := int((~eager.isfinite() & ~right.isfinite() & got.isfinite()).sum()):
        return f"{made} are finite where nothing is"
    fine = got.isfinite() & eager.isfinite() & right.isfinite()
    if not fine.any():
        return ""
    right, own = right.double()[fine], (eager.double() - right.double())[fine].abs().max().item()
    error = (got.double()[fine] - right).abs().max().item()
    eps = 2.0**-40 if got.dtype == torch.float64 else torch.finfo(got.dtype).eps  # FP64 has no finer judge
    excused = 8 * own + 8 * eps * (right.abs().max().item() or 1.0)
    return "" if error <= excused else f"off by {error:.2g}, eager by {own:.2g}, of {right.abs().max().item():.2g}"
