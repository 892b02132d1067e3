"""Inputs that depend on what the reference takes: redrawn arguments, special values, and changes of one element.

Values are proposed and the reference is run on them: it must not raise, outputs keep their shapes unless these depend
on values anyway, and finite outputs stay finite.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelwright.problems.problem import Args, clone_inputs
from kernelwright.problems.state import replaced_values
from kernelwright.verification.accuracy.arguments import is_argument, propose, propose_numbers
from kernelwright.verification.accuracy.domains import Domain
from kernelwright.verification.accuracy.ranges import all_finite
from kernelwright.verification.accuracy.single_changes import changed_values, draw_place, has_effect, is_changeable
from kernelwright.verification.accuracy.special_values import (
    draw_places,
    find_effect,
    insert_ties,
    insert_zero_rows,
    takes_special_values,
    write_at,
)
from kernelwright.verification.attacks.parameters import perturbable_state
from kernelwright.verification.set_plan import PlannedSet, Targets, Variant

MAX_CHANGED_PLACES = 2
"""Elements of a tensor that are tried until the outputs depend on one."""
SPECIAL_PROBE_RMS = 8.0
"""Size of the numbers by which it is found what depends on an element, in root mean squares of its tensor."""
INDEX_DTYPES = (torch.int32, torch.int64)


class ReferenceRunner(Protocol):
    """What is needed of a `Reference`."""

    def run_values(
        self, inputs: Args, parameters: Callable[[], AbstractContextManager[None]] = ...
    ) -> list[Tensor] | None: ...
    def make_inputs(self, index: int) -> Args: ...
    def takes_on_host(self, inputs: Args) -> bool: ...
    def derive_seed(self, purpose: str, index: int) -> int: ...


@dataclass(frozen=True)
class ProbedSet:
    """Inputs, and the parameters that differ from the problem's own.

    Attributes:
        depends: for special values, masks of the outputs that depend on them.
    """

    inputs: Args
    state: Mapping[str, Tensor] = field(default_factory=dict)
    depends: list[Tensor] | None = None


@dataclass
class _Chain:
    """Inputs and parameters after some single changes, and the outputs for them."""

    base: int
    step: int
    inputs: Args
    state: dict[str, Tensor]
    values: list[Tensor] | None


class ProbedInputs:
    """Draws the inputs of all variants but distributions."""

    def __init__(self, reference: ReferenceRunner, module: torch.nn.Module | None) -> None:
        self._reference, self._module = reference, module
        self._chain: _Chain | None = None

    def draw(self, planned: PlannedSet, index: int, base: int) -> ProbedSet | None:
        """The inputs of a planned set; None where the reference takes none of the proposed values.

        Args:
            index: of the set, for its seed.
            base: index of the set whose values are changed by single changes.
        """
        if planned.variant in (Variant.CHANGED_INPUT, Variant.CHANGED_STATE):
            return self._change(planned, base)
        inputs = self._reference.make_inputs(index)
        generator = self._generator(inputs, planned.variant.name, index)
        if planned.variant in (Variant.ARGUMENT, Variant.SKEWED_ARGUMENT):
            skewed = planned.variant is Variant.SKEWED_ARGUMENT
            changed = self.redraw_argument(inputs, planned.target, generator, skewed=skewed)
            return changed and ProbedSet(changed)
        if planned.variant is Variant.ALL_ARGUMENTS:
            return self._redraw_all_arguments(inputs, generator)
        if planned.variant in (Variant.TIES, Variant.ZERO_ROWS):
            inputs = clone_inputs(inputs)
            target = pytree.tree_leaves(inputs)[planned.target]
            with torch.no_grad():
                (insert_ties if planned.variant is Variant.TIES else insert_zero_rows)(target, generator)
            return ProbedSet(inputs) if self._reference.takes_on_host(inputs) else None
        return self._insert_special(inputs, planned, generator)

    def redraw_argument(
        self, inputs: Args, target: int, generator: torch.Generator, *, skewed: bool = False
    ) -> Args | None:
        """These inputs with other values for one leaf that is an argument; None where the reference takes none."""
        leaf = pytree.tree_leaves(inputs)[target]
        if not is_argument(leaf):
            return None
        before = self._reference.run_values(inputs)
        proposed = (
            propose(leaf.detach(), generator, skewed=skewed)
            if isinstance(leaf, Tensor)
            else ()
            if skewed
            else propose_numbers(leaf, generator)
        )
        for values in proposed:
            changed = _with_leaf(inputs, target, values)
            after = changed and self._reference.run_values(changed)
            if before and after and self._is_like(after, before):
                return changed
        return None

    def _redraw_all_arguments(self, inputs: Args, generator: torch.Generator) -> ProbedSet | None:
        """One after the other, so that the reference takes all of them together."""
        changed = [at for at, leaf in enumerate(pytree.tree_leaves(inputs)) if is_argument(leaf)]
        count = 0
        for at in changed:
            if (redrawn := self.redraw_argument(inputs, at, generator)) is not None:
                inputs, count = redrawn, count + 1
        return ProbedSet(inputs) if count > 1 else None

    def _insert_special(self, inputs: Args, planned: PlannedSet, generator: torch.Generator) -> ProbedSet | None:
        """NaN, or infinities of a sign for which no output is NaN; and which outputs depend on them."""
        is_nan = planned.variant is Variant.NAN
        first = -math.inf if bool(torch.rand((), generator=generator, device=generator.device) < 0.5) else math.inf
        value = pytree.tree_leaves(inputs)[planned.target]
        places = draw_places(value, generator, late=not is_nan)
        if (before := self._reference.run_values(inputs)) is None:
            return None
        large = SPECIAL_PROBE_RMS * Domain.of(value.detach()).rms

        def with_number(number: float) -> Args:
            changed = clone_inputs(inputs)
            with torch.no_grad():
                write_at(pytree.tree_leaves(changed)[planned.target], places, number)
            return changed

        others = [self._reference.run_values(with_number(number)) for number in (large, -large)]
        depends = find_effect(before, *(values for values in others if values and len(values) == len(before)))
        for special in (math.nan,) if is_nan else (first, -first):
            changed = with_number(special)
            if not self._reference.takes_on_host(changed):
                continue
            values = self._reference.run_values(changed)
            if values and (is_nan or not any(map(_has_nan, values))):
                return ProbedSet(changed, depends=depends)
        return None

    def _change(self, planned: PlannedSet, base: int) -> ProbedSet | None:
        """The inputs of set `base` after all single changes up to this one; None where this one has no effect."""
        chain = self._chain
        if chain is None or chain.base != base or chain.step != planned.step:
            inputs = self._reference.make_inputs(base)
            chain = self._chain = _Chain(base, planned.step, inputs, {}, self._reference.run_values(inputs))
        chain.step += 1
        generator = self._generator(chain.inputs, f"change {planned.step}", base)
        if chain.values is None:
            return None
        for _ in range(MAX_CHANGED_PLACES):
            for inputs, state in self._changes(planned, chain, generator):
                values = self._reference.run_values(inputs, self.parameters(state))
                if values and has_effect(chain.values, values):
                    chain.inputs, chain.state, chain.values = inputs, state, values
                    return ProbedSet(inputs, state)
        return None

    def _changes(
        self, planned: PlannedSet, chain: _Chain, generator: torch.Generator
    ) -> Iterator[tuple[Args, dict[str, Tensor]]]:
        if planned.variant is Variant.CHANGED_INPUT:
            leaf = pytree.tree_leaves(chain.inputs)[planned.target].detach()
            for values in changed_values(leaf, generator, self._place(planned, chain, leaf, generator)):
                if (changed := _with_leaf(chain.inputs, planned.target, values)) is not None:
                    yield changed, chain.state
            return
        name, own = list(changeable_state(self._module).items())[planned.target]
        before = chain.state.get(name, own.detach())
        for values in changed_values(before, generator, self._place(planned, chain, before, generator)):
            yield chain.inputs, {**chain.state, name: values}

    def _place(self, planned: PlannedSet, chain: _Chain, value: Tensor, generator: torch.Generator) -> int:
        order = self._generator(chain.inputs, f"places of {planned.variant.name} {planned.target}", chain.base)
        orders = [
            torch.randperm(planned.num_places, generator=order, device=order.device).tolist() for _ in value.shape
        ]
        return draw_place(value.shape, generator, planned.place, orders)

    def parameters(self, state: Mapping[str, Tensor]) -> Callable[[], AbstractContextManager[None]]:
        """A context in which the module has these values for some of its parameters and buffers."""

        @contextlib.contextmanager
        def replaced() -> Iterator[None]:
            with replaced_values(self._module, torch.clone), torch.no_grad():
                named = changeable_state(self._module)
                for name, value in state.items():
                    named[name].copy_(value)
                yield

        return replaced if state else contextlib.nullcontext

    def _is_like(self, after: list[Tensor], before: list[Tensor]) -> bool:
        """Whether outputs have the shapes of others, or shapes depend on values; and are finite if the others are."""
        if len(after) != len(before) or (not all(map(_is_finite, after)) and all(map(_is_finite, before))):
            return False
        shapes = [value.shape for value in before]
        return [value.shape for value in after] == shapes or self._has_dynamic_shapes(shapes)

    def _has_dynamic_shapes(self, shapes: list[torch.Size]) -> bool:
        values = self._reference.run_values(self._reference.make_inputs(1)) or []
        others = self._reference.run_values(self._reference.make_inputs(2)) or []
        return any([value.shape for value in drawn] != shapes for drawn in (values, others) if drawn)

    def _generator(self, inputs: Args, purpose: str, index: int) -> torch.Generator:
        tensors = [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, Tensor)]
        device = tensors[0].device if tensors else torch.device("cpu")
        return torch.Generator(device).manual_seed(self._reference.derive_seed(purpose, index))


def find_targets(
    inputs: Args, outputs: Mapping[str, Any], module: torch.nn.Module | None, *, changes_state: bool
) -> Targets:
    """What can be redrawn or changed alone.

    Args:
        inputs: the problem's own.
        outputs: the leaves that the reference returns for them.
        changes_state: whether the candidate accepts other parameters.
    """
    leaves = pytree.tree_leaves(inputs)
    tensors = {at: leaf for at, leaf in enumerate(leaves) if isinstance(leaf, Tensor)}
    indices = [value for value in outputs.values() if isinstance(value, Tensor) and value.dtype in INDEX_DTYPES]
    most_indices = max((value.numel() for value in indices), default=0)
    arguments = [at for at, value in enumerate(leaves) if is_argument(value)]
    floating = [
        at for at, value in tensors.items() if at not in arguments and takes_special_values(value) and value.dim()
    ]
    return Targets(
        arguments=arguments,
        # A sorted order of numbers with NaN among them is not defined in every language.
        floating=[at for at in floating if tensors[at].dim() > 1],
        special=[at for at in floating if most_indices < tensors[at].numel()],
        tied=[at for at in floating if indices and tensors[at].shape[-1] > 1],
        changeable=[at for at, value in tensors.items() if is_changeable(value)],
        num_state=len(changeable_state(module)) if changes_state else 0,
    )


def changeable_state(module: torch.nn.Module | None) -> dict[str, Tensor]:
    """Parameters and persistent buffers of which one element can change, by name; masks stay as they are."""
    if module is None:
        return {}
    integers = {
        name: value
        for name, value in module.state_dict(keep_vars=True).items()
        if isinstance(value, Tensor) and not value.dtype.is_floating_point and value.dtype != torch.bool
    }
    named = perturbable_state(module) | integers
    return {name: value for name, value in named.items() if is_changeable(value)}


def _with_leaf(inputs: Args, target: int, values: Any) -> Args | None:
    """A copy of the inputs with other values for one leaf; strides and shared storage are kept. None where elements
    of it overlap."""
    changed = clone_inputs(inputs)
    leaves, spec = pytree.tree_flatten(changed)
    leaf = leaves[target]
    if not isinstance(leaf, Tensor):
        return pytree.tree_unflatten([*leaves[:target], values, *leaves[target + 1 :]], spec)
    with torch.no_grad():
        try:
            leaf.copy_(values)
        except RuntimeError:  # an expanded tensor
            return None
    return changed


def _is_finite(value: Tensor) -> bool:
    return all_finite(value)


def _has_nan(value: Tensor) -> bool:
    return value.dtype.is_floating_point and bool(value.isnan().any())
