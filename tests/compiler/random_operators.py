"""The operators of random programs: a table of templates, and how each field of a template is filled.

Every template is well-conditioned by itself: logarithms, roots and quotients stay away from zero, exponentials are of
bounded values, sums are scaled down.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

MOST_ELEMENTS = 40_000
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

# The fields: {x} a floating value, {y} another or a number, {t} another, {z} another of the same shape and dtype,
# {s} a number, {m} a truth, {i} whole numbers, {d} one or several dimensions, {dk} those with keepdim or not, {d1} one
# dimension, {n} and {r} the last two sizes, {k} a position in the last dimension, {small} what keeps a sum moderate.
FAMILIES: dict[str, tuple[float, tuple[str, ...]]] = {
    "pointwise": (5, (
        "torch.exp(-{x}.abs())", "torch.exp({x}.clamp(-3, 3))", "torch.log({x}.abs() + 0.1)", "torch.sigmoid({x})",
        "torch.log1p({x}.abs())", "torch.sqrt({x}.abs() + 0.1)", "torch.rsqrt({x} * {x} + 0.1)", "torch.tanh({x})",
        "1 / ({x}.abs() + 0.5)", "torch.relu({x})", "F.gelu({x})", 'F.gelu({x}, approximate="tanh")', "F.silu({x})",
        "F.softplus({x})", "F.elu({x})", "F.leaky_relu({x}, 0.1)", "F.hardswish({x})", "F.mish({x})", "{x}.abs()",
        "torch.sin({x})", "torch.cos({x})", "torch.erf({x})", "-{x}", "{x} ** 2", "{x} ** 3", "{x}.square()", "2 * {x}",
        "torch.atan({x})", "{x}.clamp(-0.5, 0.5)", "{x}.clamp(min=0.1)", "torch.expm1({x}.clamp(max=1))", "1 - {x}",
        "{x} * 0.7 + 0.1", "{x} / 3", "{x}.abs() ** 1.7", "torch.exp2(-{x}.abs())", "torch.log2({x}.abs() + 0.5)",
        "{x} * torch.sigmoid(1.702 * {x})", "torch.reciprocal({x}.square() + 1)", "F.relu6({x})", "F.logsigmoid({x})",
    )),
    "arithmetic": (5, (
        "{x} + {y}", "{x} - {y}", "{x} * {y}", "{y} - {x}", "{y} * {x} + 0.5", "{x} + 0.5 * {y}", "({x} - {y}) ** 2",
        "{x} + {y} * {x}", "torch.relu({x} + {y})", "{x} * 0.3 + {y} * 0.7", "{x} / ({t}.abs() + 0.5)",
        "torch.maximum({x}, {t})", "torch.minimum({x}, {t})", "{x} * torch.sigmoid({t})", "F.silu({t}) * {x}",
        "torch.sqrt({x} * {x} + {t} * {t} + 0.1)", "torch.lerp({x}, {t}, 0.3)", "torch.add({x}, {t}, alpha=2)",
        "torch.addcmul({x}, {x}, {t}, value=0.5)",
    )),
    "reduction": (4, (
        "{x}.sum({dk}){small}", "{x}.mean({dk})", "{x}.amax({dk})", "{x}.amin({dk})", "{x}.var({dk})", "{x}.std({dk})",
        "{x}.var({dk}, unbiased=False)", "torch.logsumexp({x}, {dk})", "torch.linalg.vector_norm({x}, {dk}){small}",
        "{x}.abs().mean({dk})", "({x} * {x}).sum({dk}){small}", "{x}.pow(2).mean({dk}).sqrt()", "{x}.norm({dk}){small}",
        "{x}.max({d1}).values",
    )),
    "reduction of all": (0.6, (
        "{x}.sum() * 0.01", "{x}.mean()", "{x}.amax()", "{x}.min()", "{x}.var()", "{x}.norm() / 9",
    )),
    "normalisation": (2, (
        "torch.softmax({x}, {d1})", "torch.log_softmax({x}, {d1})", "F.softmax({x} * 0.5, {d1}, dtype=torch.float32)",
        "torch.exp({x} - {x}.amax({d}, keepdim=True))", "{x} - torch.logsumexp({x}, {d}, keepdim=True)",
        "{x}.abs() / ({x}.abs().sum({d}, keepdim=True) + 0.1)", "{x} - {x}.mean({d}, keepdim=True)",
        "({x} - {x}.mean({d}, keepdim=True)) / torch.sqrt({x}.var({d}, keepdim=True, unbiased=False) + 0.1)",
        "{x} * torch.rsqrt({x}.pow(2).mean({d}, keepdim=True) + 0.01)", "F.normalize({x}, {d1}, eps=0.1)",
    )),
    "parameters": (1, (
        "F.layer_norm({x}, ({n},), {weight}, {bias})", "F.rms_norm({x}, ({n},), {weight}, eps=1e-2)",
        "F.layer_norm({x}, ({n},))", "{x} * {weight} + {bias}", "F.layer_norm({x}, ({n},), {weight})",
    )),
    "scan": (0.6, ("{x}.cumsum({d1}){small}", "torch.cumsum({x}.abs(), {d1}) / {n}")),
    "view": (5, (
        "{x}.transpose(0, 1)", "{x}.transpose(-1, -2)", "{x}.t()", "{x}.permute({order})", "{x}.flatten()",
        "{x}.flatten(0, 1)", "{x}.flatten(1)", "{x}.reshape({shape})", "{x}.reshape({shape})", "{x}.view({shape})",
        "{x}.unsqueeze({place})", "{x}[:, None]", "{x}.squeeze()", "{x}[:, 1:]", "{x}[..., ::2]", "{x}[1:-1]", "{x}[0]",
        "{x}[..., -1]", "{x}[:, :-1]", "{x}[:, {k} // 2]", "{x}.narrow(-1, 0, {k})", "{x}.unsqueeze(0).expand({more})",
        "{x}.t().contiguous()", "{x}.flip(-1)",
    )),
    "joining": (0.9, (
        "torch.cat(({x}, {x} * 0.5), {d1})", "torch.cat(({x}, {z}), {d1})", "torch.stack(({x}, {z}), {d1})",
        "torch.stack(({x}, 1 - {x}, {z}), {d1})", "torch.cat((-{x}[..., 1:], {x}[..., :1]), dim=-1)",
    )),
    "splitting": (2, ("{x}.chunk(2, {d1})", "{x}.split({k}, dim=-1)", "{x}.unbind({d1})")),
    "choice": (1.6, (
        "torch.where({x} > {s}, {x}, {s})", "torch.where({x} > {y}, {x} * 0.5, {y})", "{x}.masked_fill({x} < {s}, 0.0)",
        "torch.where({m}, {x}, 0.0)", "torch.where({m}, {x}, {y})", "{x}.masked_fill(~{m}, -1.0)", "{x} * {m}",
        "({x} > {s}).to({x}.dtype) * {x}", "torch.where(({x} > {s}) & ({x} < 1), {x}, -{x})",
    )),
    "truth": (0.6, (
        "{x} > {s}", "{x} <= {y}", "({x} > {s}) | ({y} < 0.1)", "{x}.abs() < 1", "~{m}", "({x} > {s}) & {m}",
        "({x} > 2).any({d1})", "({x} < 2).all({d1})", "{x} != {s}",
    )),
    "whole numbers": (1, (
        "({x} > {s}).sum({dk})", "({x} > {s}).to(torch.int64)", "({x} < {s}).to(torch.int64) * 3 - 1", "{i} * 2 + 1",
        "{i} % 3", "{i}.to(torch.float32) / 7", "{x} + 0.1 * {i}", "{i}.amax({d1})", "{m}.sum()", "{i}.sum({d1})",
    )),
    "positions": (0.6, (
        "torch.where(torch.arange({n}, device={x}.device) < {k}, {x}, 0.0)",
        "{x} + 0.01 * torch.arange({n}, device={x}.device)",
        "torch.where(torch.arange({n}, device={x}.device) <= torch.arange({r}, device={x}.device)[:, None], {x}, -1.0)",
    )),
    "conversion": (1, tuple(f"{{x}}.to({dtype})" for dtype in FLOATS)),
    "loss": (0.6, (
        "F.mse_loss({x}, {z})", "F.huber_loss({x}, {z})", "F.l1_loss({x}, {z})", "F.cosine_similarity({x}, {z}, {d1})",
        'F.kl_div(torch.log_softmax({x}, -1), torch.softmax({z}, -1), reduction="mean")',
        "F.binary_cross_entropy_with_logits({x}, torch.sigmoid({z}))", 'F.mse_loss({x}, {z}, reduction="none")',
    )),
    "in place": (1.3, (
        "{x}.mul_(0.5)", "{x} += {y}", "{x} *= {y}", "{x}.clamp_(min=-1.0)", "{x}.add_({t}, alpha=0.5)", "{x}.relu_()",
        "{x}[..., 0] = 0.5", "{x}[..., 1:] += 0.25", "{x} -= {x}.mean()", "{x}.copy_({t})",
    )),
    "argmax": (0.5, ("{x}.argmax({d1})",)),
}  # fmt: skip


class Unfair(Exception):
    """What was drawn cannot become a program to be judged by."""


class Draft(Protocol):
    """A program while it is drawn: the values of its names, and how to choose one or make a new argument."""

    rng: random.Random
    narrow: dict[str, Tensor]
    inputs: list[str]

    def pick(self, fits: Callable[[Tensor], bool], but: str = "") -> str: ...
    def aliases(self, name: str) -> set[str]: ...
    def new_input(self, shape: Sequence[int], dtype: torch.dtype | None = None, centre: float = 0.0) -> str: ...


class Fields(dict[str, Any]):
    """The words of a template, each drawn when the template first asks for it."""

    def __init__(self, draft: Draft, template: str, own: bool) -> None:
        super().__init__()
        self.draft, self.rng, self.own = draft, draft.rng, own
        self.has_x = "{x}" in template
        self.count = 1

    def __missing__(self, word: str) -> str:
        self[word] = str(getattr(self, f"draw_{word}")())
        return self[word]

    @property
    def value(self) -> Tensor:
        return self.draft.narrow[self["x"]]

    def draw_x(self) -> str:
        name = self.draft.pick(lambda value: value.is_floating_point())
        if self.own and any(self.draft.aliases(other) & {name} for other in self.draft.inputs):
            raise Unfair
        return name

    def draw_s(self) -> float:
        return self.rng.choice((-0.5, 0.1, 0.3, 0.7, 1.5))

    def draw_y(self) -> str:
        return str(self.draw_s()) if self.rng.random() < 0.2 else self.draw_t()

    def draw_t(self) -> str:
        """A value that meets {x} by broadcasting: one that is there, or a new argument."""
        if self.rng.random() < 0.5:
            try:
                return self.draft.pick(lambda value: value.is_floating_point() and self.meets(value), but=self["x"])
            except Unfair:
                pass
        return self.partner(None)

    def partner(self, dtype: torch.dtype | None) -> str:
        """A new argument of a shape that broadcasts with {x}, written as people write it."""
        shape, rank = list(self.value.shape), self.value.dim()
        form = self.rng.choice(("same", "same", "last", "last", "ones", "ones", "column", "scalar", "expand", "more"))
        if form == "column" and rank == 2:
            return f"{self.draft.new_input(shape[:1], dtype)}[:, None]"
        if form == "expand" and rank == 2:
            return f"{self.draft.new_input(shape[1:], dtype)}.expand({', '.join(map(str, shape))})"
        if form == "more" and not self.own:
            return self.draft.new_input([self.rng.choice((2, 3)), *[1] * (rank - 1), *shape[-1:]], dtype)
        if form == "scalar":
            return self.draft.new_input((), dtype)
        if form == "last":
            return self.draft.new_input(shape[self.rng.randint(0, rank) :], dtype)
        if form == "ones":
            return self.draft.new_input([size if self.rng.random() < 0.5 else 1 for size in shape], dtype)
        return self.draft.new_input(shape, dtype)

    def meets(self, value: Tensor) -> bool:
        try:
            shape = torch.broadcast_shapes(value.shape, self.value.shape)
        except RuntimeError:
            return False
        return math.prod(shape) <= MOST_ELEMENTS

    def draw_z(self) -> str:
        shape, dtype = self.value.shape, self.value.dtype
        try:
            return self.draft.pick(lambda value: value.shape == shape and value.dtype == dtype, but=self["x"])
        except Unfair:
            return self.draft.new_input(shape, dtype)

    def draw_m(self) -> str:
        def fits(value: Tensor) -> bool:
            return value.dtype == torch.bool and (not self.has_x or self.meets(value))

        try:
            return self.draft.pick(fits)
        except Unfair:
            if self.has_x:
                return self.partner(torch.bool)
            raise

    def draw_i(self) -> str:
        return self.draft.pick(lambda value: value.dtype == torch.int64 and (not self.has_x or self.meets(value)))

    def draw_weight(self) -> str:
        return self.draft.new_input(self.value.shape[-1:], self.value.dtype, centre=1.0)

    def draw_bias(self) -> str:
        return self.draft.new_input(self.value.shape[-1:], self.value.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of what is reduced: {x}, or the whole numbers of a template without it; one dimension at least."""
        shape = tuple(self.draft.narrow[self["x" if self.has_x else "i"]].shape)
        if not shape:
            raise Unfair
        return shape

    def dims(self, several: bool) -> tuple[int, ...]:
        rank = len(self.shape)
        chosen = [(-1,), (-1,), (0,), *([(1,)] if rank > 2 else [])]
        if several and rank > 1:
            chosen += [(0, rank - 1), tuple(range(1, rank)), tuple(range(rank))]
        dims = self.rng.choice(chosen)
        self.count = math.prod(self.shape[dim] for dim in dims)
        return dims

    def draw_d1(self) -> str:
        return f"dim={self.dims(several=False)[0]}"

    def draw_d(self) -> str:
        dims = self.dims(several=True)
        return f"dim={dims[0] if len(dims) == 1 else dims}"

    def draw_dk(self) -> str:
        return self.draw_d() + self.rng.choice(("", ", keepdim=True"))

    def draw_small(self) -> str:
        return f" * {1 / math.sqrt(self.count):.2g}" if self.count > 8 else ""

    def draw_n(self) -> int:
        return self.shape[-1]

    def draw_r(self) -> int:
        return self.shape[-2]

    def draw_k(self) -> int:
        return self.rng.randint(1, self.shape[-1])

    def draw_place(self) -> int:
        return self.rng.choice((0, 1, -1))

    def draw_order(self) -> str:
        return ", ".join(map(str, self.rng.sample(range(len(self.shape)), len(self.shape))))

    def draw_more(self) -> str:
        return ", ".join(map(str, (3, *self.shape)))

    def draw_shape(self) -> str:
        """One dimension split in two, or two neighbours made one."""
        shape = list(self.shape)
        place = self.rng.randrange(len(shape))
        factors = [one for one in range(2, shape[place]) if shape[place] % one == 0]
        if factors and self.rng.random() < 0.6:
            factor = self.rng.choice(factors)
            shape[place : place + 1] = [factor, shape[place] // factor]
        else:
            shape[place : place + 2] = [math.prod(shape[place : place + 2])]
        return ", ".join(map(str, shape))

    def has_one_largest(self) -> bool:
        dim = int(self["d1"].removeprefix("dim="))
        return bool(((self.value == self.value.amax(dim, keepdim=True)).sum(dim) == 1).all())
