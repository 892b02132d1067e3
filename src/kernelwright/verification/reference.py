"""The problem's side of a verification: draws input sets, runs the reference on them, and raises where the problem is
at fault."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from kernelwright.core.cache import digest
from kernelwright.core.errors import KernelwrightError, MemoryLimitError, ProblemError
from kernelwright.problems.held_out import held_out_inputs
from kernelwright.problems.problem import Args, Problem, temporary_seed, to_device
from kernelwright.problems.state import replaced_values
from kernelwright.sandbox import TaskError
from kernelwright.sandbox.exceptions import to_task_error
from kernelwright.verification.accuracy import expected
from kernelwright.verification.accuracy.distributions import AS_GIVEN, DISTRIBUTIONS, HELD_OUT, Distribution
from kernelwright.verification.accuracy.expected import Expected
from kernelwright.verification.accuracy.near_limit import InputKind
from kernelwright.verification.accuracy.ranges import all_finite, as_real
from kernelwright.verification.attacks.parameters import perturb, perturbable_state
from kernelwright.verification.execution import CallArguments, ObservedCall, observe
from kernelwright.verification.outcome import ProgramResult, disable_tf32, run_program
from kernelwright.verification.transport.state import State, named_state
from kernelwright.verification.transport.tensor_codec import PLAIN_TYPES, describe_structure, extract_storages

PERTURB_EVERY = 3
HOMOGENEITY_TOLERANCE = 1e-3
NUM_KINDS = math.lcm(len(DISTRIBUTIONS), PERTURB_EVERY)
"""Number of sets after which distributions and parameter changes repeat."""
REDRAW_START_INDEX = 50_000 * NUM_KINDS
"""Index of the first redrawn set of a kind."""
NO_KIND_INDEX = -1
"""Index of sets that are not drawn from a distribution."""
FIX_REFERENCE = "fix the reference or its inputs"


@dataclass(frozen=True)
class InputSet:
    """One set of inputs with its expected values.

    Attributes:
        state: parameters and buffers, if they differ from the previous set's.
        template: what the reference returns, where its structure may differ from that for the problem's own inputs.
        index: index among the sets of its distribution and parameters, for `Reference.redraw_set`.
        seed: of the random number generators in a call with these inputs; secret until the call.
        law_seed: seeds of more calls are derived from it; the candidate never receives it.
    """

    distribution: Distribution
    inputs: Args
    expected: Expected
    state: State | None
    parameters_perturbed: bool
    template: ObservedCall | None = None
    index: int = 0
    seed: int = 0
    law_seed: int = 0

    @property
    def kind(self) -> InputKind:
        return InputKind(self.distribution.name, self.index)

    @property
    def output_sizes_bytes(self) -> list[int]:
        return [t.numel() * t.element_size() for t in self.expected.reference]


class Reference:
    """The reference on a device, with a copy of its module for changed parameters.

    Args:
        seed: secret; the values of every set follow from it.
        perturb_parameters: whether the candidate accepts other parameters.
    Attributes:
        state_names: names of the parameters and persistent buffers, which a candidate from a file has too.
    """

    def __init__(self, problem: Problem, device: str, seed: int, *, perturb_parameters: bool) -> None:
        self._problem, self._device, self._seed = problem, device, seed
        self._program, self._draw_inputs = problem.program_on(device), problem.input_generator(device)
        self._module = self._program if isinstance(self._program, torch.nn.Module) else None
        _reject_lazy(self._module)
        self._perturb_parameters = perturb_parameters and _can_perturb(self._module)
        self.state_names = frozenset(self._module.state_dict() if self._module else ())
        self._was_perturbed = False

    def probe(self) -> ObservedCall:
        """What the reference returns for the problem's own inputs: structure, devices, and whether it is
        reproducible.

        Raises:
            ProblemError: it raises, computes nothing, or returns NaN for finite inputs.
        """
        return self._observe(self.make_inputs(0), twice=True)

    def _observe(self, inputs: Args, *, twice: bool) -> ObservedCall:
        leaves, spec = pytree.tree_flatten(inputs)
        try:
            observed = observe(
                self._program,
                CallArguments(extract_storages(leaves), spec, leaves, self._device, [], self.call_seed(0)),
                twice=twice,
            )
        except TaskError as error:
            raise ProblemError(
                f"the reference raised {error.message}", where=error.where, next=FIX_REFERENCE
            ) from error
        except MemoryLimitError as error:
            raise MemoryLimitError(f"the reference ran out of memory: {error.message}", where=error.where) from error
        changes = observed.mutated_inputs or self.state_names.intersection(observed.changed_state)
        if not changes and not any(isinstance(leaf, (torch.Tensor, int, float)) for leaf in observed.leaves.values()):
            raise ProblemError(f"the reference returns {observed.structure} and changes no input: nothing to verify")
        if all(_is_finite(leaf) for leaf in leaves):
            self._reject_nan([*observed.leaves.values(), *observed.mutated_inputs.values()])
        return observed

    def draw_set(self, index: int) -> InputSet | None:
        """The set of this index; None where the reference cannot take this distribution, which is not an error.

        Raises:
            ProblemError: the reference raises on the problem's own inputs.
        """
        distribution = DISTRIBUTIONS[index % len(DISTRIBUTIONS)]
        inputs = distribution.draw(self.make_inputs(index), self._derive_seed("values", index))
        perturbed = self._perturb_parameters and index % PERTURB_EVERY == PERTURB_EVERY - 1
        parameters = functools.partial(self._perturbed_parameters, index) if perturbed else contextlib.nullcontext
        try:
            values = expected.compute_expected(
                self._program, self._module, inputs, parameters, seed=self.call_seed(index)
            )
        except (Exception, SystemExit) as error:
            problem_error = _as_problem_error(error)
            if distribution.sampler is not None and isinstance(problem_error, ProblemError):
                return None
            raise problem_error from error
        if distribution.sampler is not None and _has_no_number(values):
            return None
        if (distribution.coarse or distribution.range_end) and not all(map(_is_finite, values.reference)):
            return None
        if distribution.range_end and not self._is_homogeneous(parameters, index, values):
            return None
        send_state = self._perturb_parameters and (perturbed or self._was_perturbed)
        self._was_perturbed = perturbed
        with parameters():
            state = self._state() if send_state else None
        return replace(
            self._make_set(inputs, values, self.call_seed(index)),
            distribution=distribution,
            state=state,
            parameters_perturbed=perturbed,
            index=index % NUM_KINDS,
        )

    def redraw_set(self, kind: InputKind, number: int) -> InputSet | None:
        """Another set of a kind, for each number from 1 on; None where `draw_set` returns None."""
        if kind.name == HELD_OUT.name:
            state = self.reset_state()
            drawn = next(itertools.islice(self.held_out_sets(number), kind.set_index, None), None)
            return drawn and replace(drawn, state=state)
        return self.draw_set(REDRAW_START_INDEX + NUM_KINDS * number + kind.set_index)

    def _is_homogeneous(
        self, parameters: Callable[[], AbstractContextManager[None]], index: int, scaled: Expected
    ) -> bool:
        """Whether the program's outputs scale with its inputs, which were scaled towards an end of the range."""
        plain = replace(DISTRIBUTIONS[index % len(DISTRIBUTIONS)], range_end=0)
        inputs = plain.draw(self.make_inputs(index), self._derive_seed("values", index))
        seed = self.call_seed(index)
        unscaled = expected.compute_expected(self._program, self._module, inputs, parameters, seed=seed)
        return is_homogeneous(unscaled, scaled)

    def make_set(self, inputs: Args, seed: int) -> InputSet:
        """The set of these inputs, with the problem's own parameters and the seed of the call."""
        values = expected.compute_expected(self._program, self._module, inputs, seed=seed)
        return self._make_set(inputs, values, seed)

    def _make_set(self, inputs: Args, values: Expected, seed: int) -> InputSet:
        law_seed = self._derive_seed("law", seed)
        return InputSet(AS_GIVEN, inputs, values, None, False, index=NO_KIND_INDEX, seed=seed, law_seed=law_seed)

    def held_out_sets(self, number: int = 0) -> Iterator[InputSet]:
        """Sets of the other shapes that the problem declares, with other values for every number. They use the
        problem's own parameters, so the previous set must too.

        Raises:
            ProblemError: the reference or the generator raises, or the arguments differ from those of the problem's
                own inputs.
        """
        assert not self._was_perturbed
        try:
            with temporary_seed(self._derive_seed("held out", number)):
                declared = held_out_inputs(self._problem)
            own_inputs = self.make_inputs(0) if declared else ([], {})
            for index, inputs in enumerate(declared):
                _require_same_arguments(inputs, own_inputs)
                inputs = to_device(inputs, self._device)
                template = self._observe(inputs, twice=False)
                drawn = self.make_set(inputs, self._derive_seed(f"held-out call {number}", index))
                yield replace(drawn, distribution=HELD_OUT, template=template, index=index)
        except (Exception, SystemExit) as error:
            raise _as_problem_error(error) from error

    def reset_state(self) -> State | None:
        """The problem's own parameters and buffers, if the previous set had others."""
        if not self._was_perturbed:
            return None
        self._was_perturbed = False
        return self._state()

    def _state(self) -> State:
        return {name: value for name, value in named_state(self._module).items() if name in self.state_names}

    def run_values(self, inputs: Args, seed: int = 0) -> list[torch.Tensor] | None:
        """All values that the program returns or changes for these inputs under a call's seed, in native precision;
        None where it raises."""
        result = self.run(inputs, seed)
        return result and result.values

    def run(self, inputs: Args, seed: int = 0) -> ProgramResult | None:
        """As `run_values`, with names."""
        try:
            with disable_tf32():
                return run_program(self._program, self._module, inputs, seed=seed)
        except (Exception, SystemExit):  # inputs of different sets may not fit together
            return None

    def call_seed(self, index: int) -> int:
        """The secret seed of the random number generators in the call with the inputs of this index."""
        return self._derive_seed("call", index)

    def _derive_seed(self, purpose: str, index: int) -> int:
        """A seed that reveals no other seed: a torch generator's seed can be found by search from the values it
        generated."""
        return int(digest(str(self._seed), purpose, str(index))[:15], 16)

    def make_rng(self, purpose: str) -> random.Random:
        """An RNG that depends on the secret seed, as the values do."""
        return random.Random(self._derive_seed(purpose, 0))

    def make_inputs(self, index: int) -> Args:
        """The problem's own inputs of this index.

        Raises:
            ProblemError: the generator raises.
        """
        return self.make_input_series(index, 1)[0]

    def make_input_series(self, index: int, num_calls: int) -> list[Args]:
        """As `make_inputs`, for a series of calls from one seed: seeding takes longer than generating."""
        try:
            with temporary_seed(self._derive_seed("inputs", index)):
                return [to_device(self._draw_inputs(), self._device) for _ in range(num_calls)]
        except (Exception, SystemExit) as error:
            raise _as_problem_error(error) from error

    @contextlib.contextmanager
    def _perturbed_parameters(self, index: int) -> Iterator[None]:
        assert self._module is not None
        with replaced_values(self._module, torch.clone):
            perturb(self._module, self._derive_seed("parameters", index))
            yield

    def _reject_nan(self, values: list[Any]) -> None:
        for value in values:
            if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
                continue
            if not all_finite(value) and (count := int(as_real(value).isnan().sum())):
                message = f"the reference returns NaN for finite inputs: {count:,} of {value.numel():,} elements"
                raise ProblemError(message, where=self._problem.source or self._problem.name, next=FIX_REFERENCE)


def _require_same_arguments(inputs: Args, own_inputs: Args) -> None:
    """Check that held-out inputs have the arguments of the problem's own inputs: the candidate's process takes the
    structure from those."""
    (leaves, spec), (own_leaves, own_spec) = pytree.tree_flatten(inputs), pytree.tree_flatten(own_inputs)
    fixed = [at for at, leaf in enumerate(own_leaves) if not isinstance(leaf, (torch.Tensor, *PLAIN_TYPES))]
    if spec != own_spec or any(leaves[at] != own_leaves[at] for at in fixed):
        message = (
            f"held-out inputs {describe_structure(inputs)} are not the arguments of the problem's "
            f"own inputs, {describe_structure(own_inputs)}"
        )
        raise ProblemError(
            message, next="return the same arguments from get_held_out_inputs() as from get_inputs(), with other shapes"
        )


def _reject_lazy(module: torch.nn.Module | None) -> None:
    for name, value in [*module.named_parameters(), *module.named_buffers()] if module else []:
        if torch.nn.parameter.is_lazy(value):
            message = f"{name} of the reference has no shape before the first call"
            raise ProblemError(
                message, next="call the module once in Model.__init__, or use a module with explicit sizes"
            )


def _can_perturb(module: torch.nn.Module | None) -> bool:
    return module is not None and bool(perturbable_state(module))


def _as_problem_error(error: BaseException) -> KernelwrightError:
    if isinstance(error, KernelwrightError):
        return error
    task_error = to_task_error(error)
    if isinstance(task_error, MemoryLimitError):
        return MemoryLimitError(f"the reference ran out of memory: {task_error.message}", where=task_error.where)
    return ProblemError(f"the reference raised {task_error.message}", where=task_error.where, next=FIX_REFERENCE)


def _is_finite(leaf: Any) -> bool:
    return not isinstance(leaf, torch.Tensor) or all_finite(leaf)


def _has_no_number(expected: Expected) -> bool:
    """Whether no output contains a finite number: the values are outside the program's domain."""
    floating = [t for t in expected.reference if t.dtype.is_floating_point and t.numel()]
    return bool(floating) and not any(all_finite(t) or bool(as_real(t).isfinite().any()) for t in floating)


def is_homogeneous(unscaled: Expected, scaled: Expected) -> bool:
    """Whether all outputs for scaled inputs are those for unscaled inputs times a power of two."""
    return unscaled.golden_method == scaled.golden_method == expected.FP64 and all(
        map(_tensor_is_homogeneous, unscaled.golden, scaled.golden)
    )


def _tensor_is_homogeneous(unscaled: torch.Tensor, scaled: torch.Tensor) -> bool:
    """Whether one tensor is the other times a power of two, up to the effect of an epsilon."""
    if unscaled.shape != scaled.shape:  # it depends on values
        return False
    if not unscaled.dtype.is_floating_point or not unscaled.numel():
        return torch.equal(unscaled, scaled)
    unscaled_max, scaled_max = unscaled.abs().max().item(), scaled.abs().max().item()
    if not (0 < unscaled_max < math.inf and 0 < scaled_max < math.inf):
        return False
    factor = 2.0 ** round(math.log2(scaled_max / unscaled_max))
    return bool((scaled - unscaled * factor).abs().max() <= HOMOGENEITY_TOLERANCE * scaled_max)
