"""The part of a product's epilogue that `kernelwright.kernels.gemm` computes.

It is matched from the first step on: activation(alpha * product + bias + beta * residual).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import msgspec

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.contraction import ContractionRegion
from kernelwright.compiler.regions.region import Load, Operand, Reduction, Region, Scan, Step, Store

OUT_DTYPES = ("float32", "float16", "bfloat16")
MIN_NORMAL, MAX_FINITE = 2.0**-126, (2 - 2.0**-23) * 2.0**127
"""Of FP32; a product of factors beyond them overflows or vanishes where the steps, one after the other, do not."""
_COMMUTATIVE = ("add", "mul")
_X = "x"


def _expression(op: str, *args: object) -> tuple[object, ...]:
    """A step with numbers as floats, and the arguments of a sum or product in one order."""
    known = [float(arg) if isinstance(arg, int | float) else arg for arg in args]
    return op, *(sorted(known, key=repr) if op in _COMMUTATIVE else known)


_CUBE = _expression("mul", _expression("mul", _X, _X), _X)
_TANH = _expression(
    "tanh",
    _expression("mul", _expression("add", _X, _expression("mul", _CUBE, 0.044715)), 0.7978845608028654),
)
_HALF = _expression("mul", _X, 0.5)
ACTIVATIONS = {
    _expression("relu", _X): "relu",
    _expression("mul", _X, _expression("sigmoid", _X)): "silu",
    _expression(
        "mul", _HALF, _expression("add", _expression("erf", _expression("mul", _X, 0.7071067811865476)), 1)
    ): "gelu",
    _expression("mul", _HALF, _expression("add", _TANH, 1)): "gelu_tanh",
}
"""Activations of `gemm` by the steps to which torch decomposes them."""


@dataclass(frozen=True)
class View:
    """A tensor of the program with other sizes and strides.

    Attributes:
        shape: to which it is reshaped then.
    """

    buffer: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ProductEpilogue:
    """The first steps of an epilogue.

    Attributes:
        value: of the epilogue, which `gemm` computes with them.
        biases: vectors with their factors; `shift` is a number that is added too.
        residual: a tensor of the result's shape, and its factor.
        steps: that are left, without those that compute a residual.
    """

    value: str
    steps: tuple[Step | Reduction | Scan, ...]
    alpha: float = 1.0
    biases: tuple[tuple[View, float], ...] = ()
    shift: float = 0.0
    residual: tuple[View, float] | None = None
    activation: str = "none"

    def result_dtype(self, region: ContractionRegion) -> str:
        """In which the product is written for what is left: FP32 if steps are done that half precision would round."""
        one = region.contraction
        plain = replace(self, alpha=1.0, shift=0.0, residual=None, activation="none")
        return one.dtype if self == plain and len(self.biases) == bool(one.bias) else "float32"

    def scaled(self, factor: float) -> ProductEpilogue:
        """The sum times a number."""
        return replace(
            self,
            alpha=self.alpha * factor,
            biases=tuple((view, factor * before) for view, before in self.biases),
            shift=self.shift * factor if self.shift else 0.0,
            residual=self.residual and (self.residual[0], factor * self.residual[1]),
        )

    def find_store(self, region: ContractionRegion) -> Store | None:
        """The store of the result, where there is nothing else to do: a contiguous tensor in the product's order."""
        stores = [*region.epilogue.stores]
        if self.steps or len(stores) > 1 or stores[0].value != self.value:
            return None
        store, expected = stores[0], 1
        for size, stride in zip(reversed(store.shape), reversed(store.shape_strides), strict=True):
            if size != 1 and stride != expected:
                return None
            expected *= size
        places = _result_strides(region)
        in_order = all(store.strides.get(axis, 0) == stride for axis, stride in places.items())
        return store if in_order and not store.offset and store.dtype in OUT_DTYPES else None


def empty_epilogue(region: ContractionRegion) -> ProductEpilogue:
    """An epilogue of which `gemm` computes nothing, not the bias either.

    Raises:
        Unsupported: as for `match_epilogue`.
    """
    _ = region.indices
    return ProductEpilogue(_product_load(region).value, region.epilogue.steps)


def match_epilogue(region: ContractionRegion) -> ProductEpilogue:
    """Match as many steps as `gemm` can compute.

    Raises:
        Unsupported: the epilogue is not elementwise on the product, or loads it more than once.
    """
    one = region.contraction
    bias = ((View(one.bias[0], (one.n,), (1,), 0, (one.n,)), 1.0),) if one.bias else ()
    found = replace(empty_epilogue(region), biases=bias)
    while (more := _absorb_step(found, region)) is not None and _is_exact(more, region):
        found = more
    return found


def remaining_region(region: ContractionRegion, matched: ProductEpilogue, product: str, dtype: str) -> Region:
    """The elementwise region that computes what is left from the product, a tensor of that name and dtype."""
    epilogue, read = region.epilogue, _read_values(matched, region)
    first = _product_load(region)
    loads = [msgspec.structs.replace(first, value=matched.value, buffer=product, dtype=dtype)]
    loads += [load for load in epilogue.loads if load.value in read and load != first]
    return msgspec.structs.replace(epilogue, loads=tuple(loads), steps=matched.steps)


def _product_load(region: ContractionRegion) -> Load:
    """The only load of the product.

    Raises:
        Unsupported: there are several.
    """
    loads = [load for load in region.epilogue.loads if load.buffer == region.contraction.value]
    if len(loads) > 1:
        raise Unsupported("an epilogue that loads the product more than once")
    return loads[0]


# ---- one step


def _absorb_step(found: ProductEpilogue, region: ContractionRegion) -> ProductEpilogue | None:
    """The epilogue with one more step, or one more activation; None if that is not possible."""
    if found.value in {store.value for store in region.epilogue.stores}:
        return None
    readers = [step for step in found.steps if found.value in step.values]
    only = readers[0] if len(readers) == 1 and isinstance(readers[0], Step) else None
    if found.activation == "relu" and only and (_factor_of(only, found.value) or 0) > 0:  # relu(x) * 2 is relu(x * 2)
        return _absorb_affine(found, only, region)
    if found.activation != "none":
        return None
    return (only and _absorb_affine(found, only, region)) or _absorb_activation(found, region)


def _factor_of(step: Step, value: str) -> float | None:
    """The number that a step multiplies a value by; None if it does something else."""
    numbers = [float(arg) for arg in step.args if not isinstance(arg, str)]
    if step.op not in ("mul", "div") or len(numbers) != 1 or len(step.args) != 2 or not numbers[0]:
        return None
    if step.op == "div":
        return 1 / numbers[0] if step.args[0] == value else None
    return numbers[0]


def _absorb_affine(found: ProductEpilogue, step: Step, region: ContractionRegion) -> ProductEpilogue | None:
    """A multiplication by a number, or the addition of a number or a tensor."""
    if len(step.args) != 2 or step.args.count(found.value) != 1 or step.op not in ("add", "sub", "mul", "div"):
        return None
    is_left = step.args[0] == found.value
    other = step.args[1] if is_left else step.args[0]
    rest = tuple(one for one in found.steps if one is not step)
    after = replace(found, value=step.value, steps=rest)
    if step.op in ("mul", "div"):
        scale = _factor_of(step, found.value)
        return None if scale is None else after.scaled(scale)
    factor = -1.0 if step.op == "sub" and is_left else 1.0
    after = after.scaled(-1.0) if step.op == "sub" and not is_left else after
    if not isinstance(other, str):
        return replace(after, shift=after.shift + factor * float(other))
    return _add_tensor(after, other, factor, region)


def _add_tensor(after: ProductEpilogue, value: str, factor: float, region: ContractionRegion) -> ProductEpilogue | None:
    """Add a tensor of the program, or one times a number: a vector along the columns, or a residual."""
    scaled = next((step for step in after.steps if step.value == value), None)
    if scaled is not None:
        number = _factor_of(scaled, scaled.values[0]) if isinstance(scaled, Step) and scaled.values else None
        after = replace(after, steps=tuple(step for step in after.steps if step is not scaled))
        if number is None or scaled.value in _read_values(after, region):
            return None
        value, factor = scaled.values[0], factor * number
    load = next((load for load in region.epilogue.loads if load.value == value), None)
    if (
        load is None
        or load.dtype != region.contraction.dtype
        or load.windows
        or min(load.strides.values(), default=0) < 0
    ):
        return None
    if (vector := _as_bias(load, region)) is not None:
        return replace(after, biases=(*after.biases, (vector, factor)))
    return None if after.residual else replace(after, residual=(_as_residual(load, region), factor))


def _absorb_activation(found: ProductEpilogue, region: ContractionRegion) -> ProductEpilogue | None:
    """The steps of an activation, or of a multiple such as x + x / 2, whose intermediate values nothing else reads."""
    known: dict[str, object] = {found.value: _X}
    multiples = {found.value: 1.0}
    for step in found.steps:
        if not isinstance(step, Step) or not step.values or step.op == "index" or not known.keys() >= {*step.values}:
            continue
        known[step.value] = _expression(step.op, *(known[arg] if isinstance(arg, str) else arg for arg in step.args))
        if (multiple := _multiple_of(step, multiples)) is not None:
            multiples[step.value] = multiple
        name = ACTIVATIONS.get(known[step.value])  # type: ignore[arg-type]
        if (name or multiple) and (after := _without_steps_of(step, found, region)):
            return replace(after, activation=name) if name else after.scaled(multiple or 1.0)
    return None


def _multiple_of(step: Step, known: Mapping[str, float]) -> float | None:
    """The factor of the product that a step computes from others; None if it computes something else."""
    if not known.keys() >= {*step.values}:
        return None
    if step.op in ("add", "sub") and len(step.values) == len(step.args) == 2:
        left, right = (known[value] for value in step.values)
        return (left + right if step.op == "add" else left - right) or None  # x - x is NaN for infinities
    factor = _factor_of(step, step.values[0])
    return None if factor is None else factor * known[step.values[0]]


def _without_steps_of(last: Step, found: ProductEpilogue, region: ContractionRegion) -> ProductEpilogue | None:
    """The epilogue after a step, without those that it is computed with; None where others read what they compute."""
    inside = _computed_for(last, found.steps)
    after = replace(found, value=last.value, steps=tuple(one for one in found.steps if one not in inside))
    hidden = {found.value, *(one.value for one in inside)} - {last.value}
    return None if hidden & _read_values(after, region) else after


def _computed_for(last: Step, steps: Sequence[Step | Reduction | Scan]) -> list[Step | Reduction | Scan]:
    """The steps that a value is computed with."""
    needed, inside = {last.value}, []
    for step in reversed(steps):
        if step.value in needed:
            needed |= {*step.values}
            inside.append(step)
    return inside


def _read_values(found: ProductEpilogue, region: ContractionRegion) -> set[Operand]:
    """The values that the steps that are left, and the stores, read."""
    read = chain.from_iterable(step.values for step in found.steps)
    return {*read, *(store.value for store in region.epilogue.stores)}


def _is_exact(found: ProductEpilogue, region: ContractionRegion) -> bool:
    """Whether folded numbers are those of the steps, and what is added is exact in its dtype: in half precision, sums
    of biases and factors of them are not."""
    factors = [factor for _, factor in found.biases]
    numbers = [found.alpha, found.shift, *factors, *([found.residual[1]] if found.residual else [])]
    if not all(number == 0 or MIN_NORMAL <= abs(number) <= MAX_FINITE for number in numbers):
        return False
    is_plain = len(factors) <= 1 and not found.shift and all(factor == 1 for factor in factors)
    return is_plain or region.contraction.dtype == "float32"


# ---- tensors


def _result_strides(region: ContractionRegion) -> dict[str, int]:
    """By axis, the stride in the contiguous product, the largest first."""
    strides = {axis.name: _product_load(region).strides.get(axis.name, 0) for axis in region.epilogue.outer}
    return dict(sorted(strides.items(), key=lambda item: (-item[1], -_sizes(region)[item[0]])))


def _sizes(region: ContractionRegion) -> dict[str, int]:
    return {axis.name: axis.size for axis in region.epilogue.outer}


def _as_bias(load: Load, region: ContractionRegion) -> View | None:
    """A vector along the columns, or one number for all; None if a load is neither."""
    sizes, n = _sizes(region), region.contraction.n
    if not any(load.strides.values()):
        return View(load.buffer, (n,), (0,), load.offset, (n,))
    columns = {axis: stride for axis, stride in _result_strides(region).items() if stride * sizes[axis] <= n}
    covered = 1
    for axis in columns:
        covered *= sizes[axis]
    if covered != n or any(stride and axis not in columns for axis, stride in load.strides.items()):
        return None
    return _view(load, list(columns), sizes, (n,))


def _as_residual(load: Load, region: ContractionRegion) -> View:
    one, places = region.contraction, list(_result_strides(region))
    return _view(load, places, _sizes(region), (one.batch, one.m, one.n))


def _view(load: Load, axes: list[str], sizes: dict[str, int], shape: tuple[int, ...]) -> View:
    """The elements of a load in the order of some axes."""
    kept = [axis for axis in axes if sizes[axis] != 1]
    return View(
        load.buffer, tuple(sizes[axis] for axis in kept), tuple(load.strides.get(axis, 0) for axis in kept),
        load.offset, shape,
    )  # fmt: skip
