"""The problem's side of a verification: draws input sets, runs the reference on them, and says when it is at fault."""

from __future__ import annotations

import copy
import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from kernelwright.core.cache import digest
from kernelwright.core.errors import KernelwrightError, MemoryLimitError, ProblemError
from kernelwright.problems.device_inputs import draw_inputs_on
from kernelwright.problems.held_out import held_out_inputs
from kernelwright.problems.problem import Args, Problem, temporary_seed, to_device
from kernelwright.sandbox import TaskError
from kernelwright.sandbox.exceptions import to_task_error
from kernelwright.verification.accuracy import expected
from kernelwright.verification.accuracy.distributions import AS_GIVEN, DISTRIBUTIONS, HELD_OUT, Distribution
from kernelwright.verification.accuracy.expected import Expected
from kernelwright.verification.accuracy.near_limit import InputKind
from kernelwright.verification.accuracy.ranges import all_finite, as_real
from kernelwright.verification.attacks.parameters import perturb, perturbable_state
from kernelwright.verification.execution import CALL_SEED, CallArguments, ObservedCall, observe
from kernelwright.verification.outcome import ProgramResult, disable_tf32, run_program
from kernelwright.verification.transport.state import State, named_state
from kernelwright.verification.transport.tensor_codec import PLAIN_TYPES, describe_structure, extract_storages

PERTURB_EVERY = 3
HOMOGENEITY_TOLERANCE = 1e-3
NUM_KINDS = math.lcm(len(DISTRIBUTIONS), PERTURB_EVERY)
"""After so many sets both the distributions and whether parameters are changed begin anew."""
REDRAW_START_INDEX = 50_000 * NUM_KINDS
"""The index of the first set that is drawn again of a kind."""
NO_KIND_INDEX = -1
"""The index of sets that no draw of a distribution has made."""
FIX_REFERENCE = "mend the reference or its inputs"


@dataclass(frozen=True)
class InputSet:
    """One set of inputs with the right answer to it; `state` holds parameters and buffers if not the last set's;
    `template` is what the reference returns, where that may have another structure than for the problem's own inputs;
    `index` is that of its kind, as `Reference.again` takes it."""

    distribution: Distribution
    inputs: Args
    expected: Expected
    state: State | None
    parameters_perturbed: bool
    template: ObservedCall | None = None
    index: int = 0

    @property
    def kind(self) -> InputKind:
        return InputKind(self.distribution.name, self.index)

    @property
    def output_sizes_bytes(self) -> list[int]:
        return [t.numel() * t.element_size() for t in self.expected.reference]


class Reference:
    """The reference on a device, with one copy of its module for changed parameters.

    Args:
        seed: secret; every set's values follow from it.
        perturb_parameters: whether the candidate can be given other parameters.
    Attributes:
        state_names: names of the parameters and persistent buffers, which a candidate from a file has too.
    """

    def __init__(self, problem: Problem, device: str, seed: int, *, perturb_parameters: bool) -> None:
        self._problem, self._device, self._seed = problem, device, seed
        self._program, self._draw_inputs = problem.program_on(device), draw_inputs_on(device, problem.make_inputs)
        self._module = self._program if isinstance(self._program, torch.nn.Module) else None
        _reject_lazy(self._module)
        self._perturb_parameters = perturb_parameters and _can_perturb(self._module)
        self.state_names = frozenset(self._module.state_dict() if self._module else ())
        self._was_perturbed = False

    def probe(self) -> ObservedCall:
        """What the reference returns for the problem's own inputs: structure, devices, and whether twice the same.

        Raises:
            ProblemError: it raises, computes nothing, or makes NaN of finite inputs.
        """
        return self._observe(self.make_inputs(0), twice=True)

    def _observe(self, inputs: Args, *, twice: bool) -> ObservedCall:
        leaves, spec = pytree.tree_flatten(inputs)
        try:
            seen = observe(
                self._program, CallArguments(extract_storages(leaves), spec, leaves, self._device, []), twice=twice
            )
        except TaskError as fault:
            raise ProblemError(
                f"the reference raised {fault.message}", where=fault.where, next=FIX_REFERENCE
            ) from fault
        except MemoryLimitError as fault:
            raise MemoryLimitError(f"the reference ran out of memory: {fault.message}", where=fault.where) from fault
        changes = seen.mutated_inputs or self.state_names.intersection(seen.changed_state)
        if not changes and not any(isinstance(leaf, (torch.Tensor, int, float)) for leaf in seen.leaves.values()):
            raise ProblemError(f"the reference returns {seen.structure} and changes no input: nothing to verify")
        if all(_is_finite(leaf) for leaf in leaves):
            self._reject_nan([*seen.leaves.values(), *seen.mutated_inputs.values()])
        return seen

    def draw_set(self, index: int) -> InputSet | None:
        """The set of this index; None where the reference cannot take this distribution, which is no fault of it.

        Raises:
            ProblemError: the reference raises on the problem's own inputs.
        """
        distribution = DISTRIBUTIONS[index % len(DISTRIBUTIONS)]
        inputs = distribution.draw(self.make_inputs(index), self._derive_seed("values", index))
        perturbed = self._perturb_parameters and index % PERTURB_EVERY == PERTURB_EVERY - 1
        program, module = self._perturbed_module(index) if perturbed else (self._program, self._module)
        try:
            right = expected.compute_expected(program, module, inputs)
        except (Exception, SystemExit) as fault:
            error = _as_problem_error(fault)
            if distribution.sampler is not None and isinstance(error, ProblemError):
                return None
            raise error from fault
        if distribution.sampler is not None and _has_no_number(right):
            return None
        if (distribution.coarse or distribution.range_end) and not all(map(_is_finite, right.reference)):
            return None
        if distribution.range_end and not self._is_homogeneous(program, module, index, right):
            return None
        send = self._perturb_parameters and (perturbed or self._was_perturbed)
        self._was_perturbed = perturbed
        state = (
            {name: value for name, value in named_state(module).items() if name in self.state_names} if send else None
        )
        return InputSet(distribution, inputs, right, state, perturbed, index=index % NUM_KINDS)

    def redraw_set(self, kind: InputKind, number: int) -> InputSet | None:
        """Another set of a kind, for each number from 1 on: None where there is none, as from `draw_set`."""
        if kind.name == HELD_OUT.name:
            state = self.reset_state()
            found = next(itertools.islice(self.held_out_sets(number), kind.set_index, None), None)
            return found and replace(found, state=state)
        return self.draw_set(REDRAW_START_INDEX + NUM_KINDS * number + kind.set_index)

    def _is_homogeneous(
        self, program: Callable[..., Any], module: torch.nn.Module | None, index: int, shifted: Expected
    ) -> bool:
        """Whether the program's outputs scale with its inputs, which were moved towards an end of the range."""
        plain = replace(DISTRIBUTIONS[index % len(DISTRIBUTIONS)], range_end=0)
        inputs = plain.draw(self.make_inputs(index), self._derive_seed("values", index))
        near = expected.compute_expected(program, module, inputs)
        return is_homogeneous(near, shifted)

    def make_set(self, inputs: Args) -> InputSet:
        """These inputs of the problem's own with what is right for them, parameters as they are in the problem."""
        right = expected.compute_expected(self._program, self._module, inputs)
        return InputSet(AS_GIVEN, inputs, right, None, False, index=NO_KIND_INDEX)

    def held_out_sets(self, number: int = 0) -> Iterator[InputSet]:
        """Sets of the other shapes that the problem declares; parameters as they are in the problem, so not after a set
        that had others. Other values for every number.

        Raises:
            ProblemError: the reference raises on one, or their generator; they are other arguments than the problem's.
        """
        assert not self._was_perturbed
        try:
            with temporary_seed(self._derive_seed("held out", number)):
                declared = held_out_inputs(self._problem)
            given = self.make_inputs(0) if declared else ([], {})
            for at, inputs in enumerate(declared):
                _require_same_arguments(inputs, given)
                inputs = to_device(inputs, self._device)
                model = self._observe(inputs, twice=False)
                yield replace(self.make_set(inputs), distribution=HELD_OUT, template=model, index=at)
        except (Exception, SystemExit) as fault:
            raise _as_problem_error(fault) from fault

    def reset_state(self) -> State | None:
        """Parameters and buffers as they are in the problem, if the last set had others."""
        if not self._was_perturbed:
            return None
        self._was_perturbed = False
        return {name: value for name, value in named_state(self._module).items() if name in self.state_names}

    def run_values(self, inputs: Args) -> list[torch.Tensor] | None:
        """All that the program returns or changes for these inputs, in its own precision; None where it raises."""
        outcome = self.run(inputs)
        return outcome and outcome.values

    def run(self, inputs: Args) -> ProgramResult | None:
        """The same with the names of it."""
        try:
            with disable_tf32():
                return run_program(self._program, self._module, inputs)
        except (Exception, SystemExit):  # inputs that do not belong together may be refused
            return None

    def uses_random_numbers(self, inputs: Args) -> bool:
        """Whether the program takes torch's random numbers: what it gives then depends on the calls before."""
        args, kwargs = inputs
        with temporary_seed(CALL_SEED), torch.no_grad():
            before = _random_state(self._device)
            self._program(*args, **kwargs)
            return not torch.equal(before, _random_state(self._device))

    def _derive_seed(self, purpose: str, index: int) -> int:
        """No seed says anything of another: torch's generators can be searched for theirs, given what they drew."""
        return int(digest(str(self._seed), purpose, str(index))[:15], 16)

    def make_rng(self, purpose: str) -> random.Random:
        """Choices that follow from the secret seed, as the values do."""
        return random.Random(self._derive_seed(purpose, 0))

    def make_inputs(self, index: int) -> Args:
        """The problem's own inputs of this index.

        Raises:
            ProblemError: its generator raises.
        """
        return self.make_input_series(index, 1)[0]

    def make_input_series(self, index: int, num_calls: int) -> list[Args]:
        """As `make_inputs`, for calls one after the other: drawn from one seed, which takes longer to set than to
        draw."""
        try:
            with temporary_seed(self._derive_seed("inputs", index)):
                return [to_device(self._draw_inputs(), self._device) for _ in range(num_calls)]
        except (Exception, SystemExit) as fault:
            raise _as_problem_error(fault) from fault

    def _perturbed_module(self, index: int) -> tuple[Callable[..., Any], torch.nn.Module]:
        module = copy.deepcopy(self._module)
        assert module is not None
        perturb(module, self._derive_seed("parameters", index))
        return module, module

    def _reject_nan(self, values: list[Any]) -> None:
        for value in values:
            if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
                continue
            if not all_finite(value) and (count := int(as_real(value).isnan().sum())):
                message = f"the reference returns NaN for finite inputs: {count:,} of {value.numel():,} elements"
                raise ProblemError(message, where=self._problem.source or self._problem.name, next=FIX_REFERENCE)


def _require_same_arguments(inputs: Args, given: Args) -> None:
    """A candidate's process knows which arguments there are by the problem's own."""
    (leaves, spec), (known, known_spec) = pytree.tree_flatten(inputs), pytree.tree_flatten(given)
    fixed = [at for at, leaf in enumerate(known) if not isinstance(leaf, (torch.Tensor, *PLAIN_TYPES))]
    if spec != known_spec or any(leaves[at] != known[at] for at in fixed):
        message = (
            f"held-out inputs {describe_structure(inputs)} are not the arguments that the problem's "
            f"own are, {describe_structure(given)}"
        )
        raise ProblemError(message, next="let get_held_out_inputs() return what get_inputs() does, in other shapes")


def _random_state(device: str) -> torch.Tensor:
    return torch.get_rng_state() if device == "cpu" else torch.cuda.get_rng_state()


def _reject_lazy(module: torch.nn.Module | None) -> None:
    for name, value in [*module.named_parameters(), *module.named_buffers()] if module else []:
        if torch.nn.parameter.is_lazy(value):
            message = f"{name} of the reference has no shape before its first call"
            raise ProblemError(message, next="call the module once in Model.__init__, or name its sizes")


def _can_perturb(module: torch.nn.Module | None) -> bool:
    if module is None or not perturbable_state(module):
        return False
    try:
        copy.deepcopy(module)
    except Exception:  # a person's module may hold anything, such as a lock or an open file
        return False
    return True


def _as_problem_error(fault: BaseException) -> KernelwrightError:
    if isinstance(fault, KernelwrightError):
        return fault
    error = to_task_error(fault)
    if isinstance(error, MemoryLimitError):
        return MemoryLimitError(f"the reference ran out of memory: {error.message}", where=error.where)
    return ProblemError(f"the reference raised {error.message}", where=error.where, next=FIX_REFERENCE)


def _is_finite(leaf: Any) -> bool:
    return not isinstance(leaf, torch.Tensor) or all_finite(leaf)


def _has_no_number(expected: Expected) -> bool:
    """No output has a number: values outside what the program is defined for."""
    floating = [t for t in expected.reference if t.dtype.is_floating_point and t.numel()]
    return bool(floating) and not any(all_finite(t) or bool(as_real(t).isfinite().any()) for t in floating)


def is_homogeneous(near: Expected, far: Expected) -> bool:
    """Whether all outputs for inputs that were moved are those for the inputs as they were, times a power of two."""
    return near.golden_method == far.golden_method == expected.FP64 and all(
        map(_tensor_is_homogeneous, near.golden, far.golden)
    )


def _tensor_is_homogeneous(near: torch.Tensor, far: torch.Tensor) -> bool:
    """Whether one tensor is the other times a power of two, but for what an epsilon does."""
    if not near.dtype.is_floating_point or not near.numel():
        return torch.equal(near, far)
    largest, moved = near.abs().max().item(), far.abs().max().item()
    if not (0 < largest < math.inf and 0 < moved < math.inf):
        return False
    factor = 2.0 ** round(math.log2(moved / largest))
    return bool((far - near * factor).abs().max() <= HOMOGENEITY_TOLERANCE * moved)
