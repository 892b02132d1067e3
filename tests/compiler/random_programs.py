"""Random torch programs that a person could read, and that are fair to a judge.

`generate(seed)` draws operators one by one and runs each on real tensors as it goes, so that shapes and dtypes fit and
values stay moderate. The finished program is drawn anew when its answer says more about rounding than about the
program: when it is not finite, when inputs moved by a millionth move it, or when its own precision and FP64 disagree.
"""

from __future__ import annotations

import linecache
import math
import random
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))
from random_operators import FAMILIES, FLOATS, MOST_ELEMENTS, Fields, Unfair

MOST_OUTPUTS, MOST_INPUTS = 4, 6
LARGEST_VALUE, LARGEST_GRADIENT = 50.0, 1e4
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 16, 17, 24, 31, 32, 33, 48, 64, 65, 96, 100, 127, 128, 130)
STYLES = ((torch.float32,), (torch.bfloat16,), (torch.float16,), (torch.float64,), FLOATS)
STYLE_WEIGHTS = (55, 12, 10, 8, 15)
# What rounding may do to a value of a few operators: of itself and its output's root mean square together.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
MOVE, MAY_MOVE = 1e-6, 1e-3
GLOBALS = {"torch": torch, "F": F}


@dataclass(frozen=True)
class RandomProgram:
    """A program and what a test needs to know about it.

    Attributes:
        source: the text of `program`.
        wide, single: the same program with every floating dtype in its text float64, or float32.
        inputs: what `program` takes; it does not change them.
        families: a key of FAMILIES for each statement but the last, the return.
        differentiable: floats in and out, and every output and every input has part in a gradient that is finite,
            moderate and steady.
    """

    seed: int
    source: str
    program: Callable[..., Any]
    wide: Callable[..., Any]
    single: Callable[..., Any]
    inputs: tuple[Tensor, ...]
    families: tuple[str, ...]
    differentiable: bool

    def __str__(self) -> str:
        kinds = ", ".join(f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}" for x in self.inputs)
        return f"# generate({self.seed}), inputs {kinds}\n{self.source}"

    @property
    def wide_inputs(self) -> tuple[Tensor, ...]:
        return tuple(_widened(x) for x in self.inputs)


class Spoilt(Unfair):
    """A statement has changed values that it should not have: the draft cannot go on without it."""


def generate(seed: int) -> RandomProgram:
    """The program of a seed: 1 to 12 statements and a return."""
    for attempt in range(1000):
        draft = _Draft(random.Random(f"{seed}/{attempt}"))
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("error")
                draft.write()
            return _judged(seed, draft)
        except Unfair:
            continue
    raise AssertionError(f"no fair program for seed {seed}")


def outputs_of(result: Any) -> list[Tensor]:
    """What a program returned, as a list."""
    return list(result) if isinstance(result, tuple | list) else [result]


class _Draft:
    """A program while it is drawn, with the value of every name in its own precision and in FP64."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.generator = torch.Generator().manual_seed(rng.getrandbits(62))
        self.style = rng.choices(STYLES, STYLE_WEIGHTS)[0]
        self.narrow: dict[str, Tensor] = {}
        self.wide: dict[str, Tensor] = {}
        self.inputs: list[str] = []
        self.lines: list[str] = []
        self.families: list[str] = []
        self.unused: list[str] = []
        self.finals: list[str] = []

    def write(self) -> None:
        """Draws the statements, and returns what nothing has used."""
        self.new_input(_shape(self.rng))
        wanted = self.rng.randint(1, 12)
        for _ in range(6 * wanted):
            if len(self.lines) < wanted:
                self.attempt()
        results = [*self.unused, *self.finals]
        used = [name for name in self.narrow if name not in {*self.inputs, *results}]
        if used and self.rng.random() < 0.15:
            results.append(self.rng.choice(used))
        if not 1 <= len(results) <= MOST_OUTPUTS or any(self.aliases(name) & {*self.inputs} for name in results):
            raise Unfair
        self.lines.append(f"return {', '.join(results)}")

    def attempt(self) -> None:
        """Adds one statement, or leaves everything as it was."""
        family = self.rng.choices(list(FAMILIES), [weight for weight, _ in FAMILIES.values()])[0]
        template, known = self.rng.choice(FAMILIES[family][1]), len(self.inputs)
        fields = Fields(self, template, own=family == "in place")
        try:
            text = template.format_map(fields)
            self.change(text, fields["x"]) if family == "in place" else self.bind(text, fields, family == "argmax")
        except Spoilt:
            raise
        except (Unfair, RuntimeError, IndexError, TypeError, ValueError, Warning):
            for name in self.inputs[known:]:
                del self.narrow[name], self.wide[name]
            del self.inputs[known:]
            return
        self.families.append(family)

    def bind(self, text: str, fields: Fields, final: bool) -> None:
        """Gives what an expression computes new names."""
        result = eval(text, GLOBALS, self.narrow)
        narrow, wide = outputs_of(result), outputs_of(eval(_widened_text(text), GLOBALS, self.wide))
        if isinstance(result, tuple | list) and not 1 < len(narrow) <= 3:
            raise Unfair
        if not all(_moderate(a, b) for a, b in zip(narrow, wide, strict=True)):
            raise Unfair
        if final and not fields.has_one_largest():
            raise Unfair
        taken = len(self.narrow) - len(self.inputs)
        names = [f"t{taken + place + 1}" for place in range(len(narrow))]
        self.lines.append(f"{', '.join(names)} = {text}")
        self.use(text)
        self.narrow |= dict(zip(names, narrow, strict=True))
        self.wide |= dict(zip(names, wide, strict=True))
        (self.finals if final else self.unused).extend(names)

    def change(self, text: str, target: str) -> None:
        """Runs a statement that changes the value of a name, and of its views."""
        exec(text, GLOBALS, self.narrow)
        exec(_widened_text(text), GLOBALS, self.wide)
        self.use(text)
        self.unused.append(target)
        self.lines.append(text)
        if not all(_moderate(self.narrow[name], self.wide[name]) for name in self.aliases(target)):
            raise Spoilt

    def use(self, text: str) -> None:
        read = set(re.findall(r"\b[a-z]\d*\b", text))
        self.unused = [name for name in self.unused if name not in read]

    def pick(self, fits: Callable[[Tensor], bool], but: str = "") -> str:
        """A name whose value fits; what is unused comes first."""
        names = [name for name, value in self.narrow.items() if name not in {*self.finals, but} and fits(value)]
        if not names:
            raise Unfair
        return self.rng.choices(names, [5 if name in self.unused else 1 for name in names])[0]

    def aliases(self, name: str) -> set[str]:
        """The names that share memory with this one, in either precision."""
        return {
            other
            for values in (self.narrow, self.wide)
            for other, value in values.items()
            if value.untyped_storage().data_ptr() == values[name].untyped_storage().data_ptr()
        }

    def new_input(self, shape: Sequence[int], dtype: torch.dtype | None = None, centre: float = 0.0) -> str:
        """A new argument: normal values, narrow ones around a centre that is not 0, mostly true ones for bool."""
        if len(self.inputs) >= MOST_INPUTS:
            raise Unfair
        name = "abcdegh"[len(self.inputs)]
        values = torch.randn(tuple(shape), generator=self.generator) * (0.1 if centre else 1.0) + centre
        value = values > -0.5 if dtype == torch.bool else values.to(dtype or self.rng.choice(self.style))
        self.narrow[name], self.wide[name] = value, _widened(value)
        self.inputs.append(name)
        return name


def _shape(rng: random.Random) -> list[int]:
    if rng.random() < 0.08:
        return rng.choice(([5000], [2, 5000], [7, 5000], [3, 1, 5000]))
    shape = [rng.choice(SIZES) for _ in range(rng.choices((1, 2, 3, 4), (10, 45, 30, 15))[0])]
    while math.prod(shape) > MOST_ELEMENTS:
        shape[shape.index(max(shape))] = rng.choice(SIZES[:12])
    return shape


def _widened(value: Tensor) -> Tensor:
    return value.detach().to(torch.float64 if value.is_floating_point() else value.dtype, copy=True)


def _with_dtype(text: str, dtype: torch.dtype) -> str:
    return re.sub(r"torch\.(float32|bfloat16|float16|float64)\b", str(dtype), text)


def _widened_text(text: str) -> str:
    return _with_dtype(text, torch.float64)


def _moderate(narrow: Tensor, wide: Tensor) -> bool:
    small = 1 <= narrow.numel() <= MOST_ELEMENTS and narrow.shape == wide.shape
    if not small or not narrow.is_floating_point():
        return small
    return all(bool((value.abs() <= LARGEST_VALUE).all()) for value in (narrow, wide))


def _judged(seed: int, draft: _Draft) -> RandomProgram:
    """The finished program; Unfair where its outputs are not what a judge can hold another program against."""
    head = f"def program({', '.join(draft.inputs)}):\n"
    source = head + "".join(f"    {line}\n" for line in draft.lines)
    program, wide = _compiled(source, f"<random program {seed}>"), _compiled(_widened_text(source), "<in FP64>")
    single = _compiled(_with_dtype(source, torch.float32), "<in FP32>")
    inputs = tuple(draft.narrow[name] for name in draft.inputs)
    used = {word for line in draft.lines for word in re.findall(r"\b[a-z]\d*\b", line)}
    coarsest = max(
        (value.dtype for value in draft.narrow.values() if value.is_floating_point()), key=TOLERANCE.__getitem__
    )
    tolerance = TOLERANCE[coarsest]
    made = RandomProgram(seed, source, program, wide, single, inputs, tuple(draft.families), False)
    with torch.no_grad():
        got, right = (outputs_of(call(*args)) for call, args in ((program, inputs), (wide, made.wide_inputs)))
        moved = [outputs_of(wide(*_moved(made.wide_inputs, place))) for place in (1, 2)]
    if not used >= set(draft.inputs) or not _close(got, right, tolerance):
        raise Unfair
    if not all(_close(one, right, MAY_MOVE) for one in moved):
        raise Unfair
    differentiable = all(x.is_floating_point() for x in (*inputs, *got)) and _steady_gradients(made, tolerance)
    return RandomProgram(seed, source, program, wide, single, inputs, made.families, differentiable)


def _compiled(source: str, name: str) -> Callable[..., Any]:
    """The function of a source that tracebacks and `inspect` find by its name."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = dict(GLOBALS)
    exec(compile(source, name, "exec"), space)
    return space["program"]


def _moved(inputs: Sequence[Tensor], seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    noise = [torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in inputs]
    return [x * (1 + MOVE * e) if x.is_floating_point() else x for x, e in zip(inputs, noise, strict=True)]


def _close(got: Sequence[Tensor], right: Sequence[Tensor], tolerance: float) -> bool:
    """Whether every element is right: whole numbers equal, others finite and near."""
    for one, other in zip(got, right, strict=True):
        if not one.is_floating_point():
            if not torch.equal(one, other):
                return False
            continue
        size = other.abs() + other.square().mean().sqrt() + 1e-6
        if not bool(((one.double() - other).abs() <= tolerance * size).all()):
            return False
    return True


def _steady_gradients(made: RandomProgram, tolerance: float) -> bool:
    try:
        right = _gradients(made.wide, made.wide_inputs)
        moved = _gradients(made.wide, _moved(made.wide_inputs, 3))
        got = _gradients(made.program, made.inputs)
    except RuntimeError:  # an output or an input without a gradient, or a value that was changed after its use
        return False
    if not all(bool((gradient.abs() <= LARGEST_GRADIENT).all()) for gradient in right):
        return False
    return _close(moved, right, MAY_MOVE) and _close(got, right, 3 * tolerance)


def _gradients(program: Callable[..., Any], inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    outputs = outputs_of(program(*leaves))
    generator = torch.Generator().manual_seed(0)
    seeds = [torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.dtype) for x in outputs]
    return torch.autograd.grad(outputs, leaves, seeds)
