"""Programs of arithmetic in 8 and 16 bits, which wraps around: all operators on integers, reductions, scans."""

import torch

DIVISORS = (7, -7, 1, -1, 100)


def elements(dtype, rows=4, columns=150, seed=0):
    """Random integers of a dtype, with its extremes in each row."""
    limits, generator = torch.iinfo(dtype), torch.Generator().manual_seed(seed)
    x = torch.randint(limits.min, limits.max + 1, (rows, columns), generator=generator)
    edges = [limits.min, limits.min + 1, limits.max // 2, limits.max, 0, 1, 2, 3]
    x[:, : len(edges)] = torch.tensor(edges).roll(seed)
    return x.to(dtype)


def arithmetic(a, b):
    return (
        a + b, a - b, a * b, -a, a.abs(), a.square(), 3 - a, a + 3, a * 100, a - 100, torch.rsub(a, b),
        torch.add(a, b, alpha=3), torch.sub(a, b, alpha=5), a**2, a**3, a**4, (a * 3 - b).to(torch.int32) * 2,
        ~a, a & b, a | b, a ^ b, a & -8, a.sign(), a.sgn(), a.relu(), a.floor(), a.ceil(), a.round(), a.trunc(),
    )  # fmt: skip


def choices(a, b):
    return (
        torch.minimum(a, b), torch.maximum(a, b), torch.fmin(a, b), torch.fmax(a, b), a.clamp(3, 90),
        a.clamp(min=90), a.clamp(max=3), torch.where(a > b, a, b) + 1, a < b, a <= b, a > b, a >= b, a == b, a != b,
        a < 3, torch.logical_and(a, b), torch.logical_or(a, b), torch.logical_xor(a, b), torch.logical_not(a),
        a.isnan(), a.isinf(), a / b, a / 3, (a + b).float().sqrt(), (a * b).to(torch.int64) + 1,
    )  # fmt: skip


def divisions(a):
    found = [f(a, by) for f in (torch.remainder, torch.fmod, torch.floor_divide) for by in DIVISORS]
    return (*found, *(torch.div(a, by, rounding_mode=mode) for by in DIVISORS for mode in ("floor", "trunc")))


def powers(a, b):
    return a**b, a**5


def folds(a):
    """Those that keep the dtype, after arithmetic in it and with some in it to come."""
    return (
        (a + a).sum(-1), (a + a).sum(-1, dtype=a.dtype) + a[:, 0], (a | 1).prod(-1, dtype=a.dtype), (a + 1).amax(-1),
        (a + 1).amin(-1), *(a + 1).max(-1), (a * a).argmax(-1), (a + a).any(-1), a.all(-1),
    )  # fmt: skip


def folds_of_columns(a):
    return (a + a).sum(0, dtype=a.dtype) * 3, (a | 1).prod(0, dtype=a.dtype), a.sum(0)


def scans(a):
    return (a + 1).cumsum(-1, dtype=a.dtype) * 2, (a | 1).cumprod(-1, dtype=a.dtype), a.cumsum(-1)


def scans_back(a):
    return (a.flip(-1).cumsum(-1, dtype=a.dtype).flip(-1),)


OF_TWO, OF_ONE = (arithmetic, choices, powers), (divisions, folds, folds_of_columns, scans, scans_back)
PROGRAMS = {
    f"{str(dtype).removeprefix('torch.')}_{program.__name__}": (program, *arguments)
    for dtype in (torch.uint8, torch.int8, torch.int16)
    for group, arguments in ((OF_TWO, (elements(dtype), elements(dtype, seed=1))), (OF_ONE, (elements(dtype),)))
    for program in group
}
