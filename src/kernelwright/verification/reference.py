"""The problem's side of a verification: draws input sets, runs the reference on them, and raises where the problem is
at fault."""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from kernelwright.core.cache import digest
from kernelwright.core.errors import KernelwrightError, MemoryLimitError, ProblemError
from kernelwright.measure.clock import wall_s
from kernelwright.problems.held_out import held_out_inputs
from kernelwright.problems.problem import Args, Problem, temporary_seed, to_device
from kernelwright.problems.state import replaced_values
from kernelwright.sandbox import TaskError
from kernelwright.sandbox.exceptions import ChangedArgumentError, to_task_error
from kernelwright.verification.accuracy import expected
from kernelwright.verification.accuracy.distributions import AS_GIVEN, HELD_OUT, MIXED, Distribution
from kernelwright.verification.accuracy.expected import Expected
from kernelwright.verification.accuracy.homogeneity import is_homogeneous
from kernelwright.verification.accuracy.near_limit import InputKind
from kernelwright.verification.accuracy.ranges import all_finite, as_real
from kernelwright.verification.accuracy.special_values import is_defined
from kernelwright.verification.accuracy.stable_order import find_stable_outputs
from kernelwright.verification.attacks.parameters import perturb, perturbable_state
from kernelwright.verification.execution import CallArguments, ObservedCall, observe
from kernelwright.verification.input_set import InputSet
from kernelwright.verification.mixed_inputs import MixedInputs
from kernelwright.verification.outcome import ProgramResult, disable_tf32, run_program
from kernelwright.verification.probed_inputs import ProbedInputs, changeable_state, find_targets
from kernelwright.verification.set_plan import PlannedSet, Variant, plan_sets, shorten
from kernelwright.verification.transport.control_block import MAX_EXTENTS
from kernelwright.verification.transport.state import State, named_state
from kernelwright.verification.transport.tensor_codec import PLAIN_TYPES, describe_structure, extract_storages

REDRAW_START_INDEX, IDLE_START_INDEX = 2_000_000, 3_000_000
"""Redrawn sets of a kind have indices from here on."""
NUM_TIMED_RUNS = 3
NO_KIND_INDEX = -1
"""Index of sets that are not drawn from a distribution."""
FIX_REFERENCE = "fix the reference or its inputs"


class _OwnResults(NamedTuple):
    """Facts on the reference's results for the problem's own inputs."""

    golden_method: str
    draws_random: bool


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
        self._probed, self._mixed = ProbedInputs(self, self._module), MixedInputs(self)
        self._template: ObservedCall | None = None
        self._stable_outputs: frozenset[str] = frozenset()

    def probe(self) -> ObservedCall:
        """What the reference returns for the problem's own inputs: structure, devices, and whether it is
        reproducible.

        Raises:
            ProblemError: it raises, computes nothing, or returns NaN for finite inputs.
        """
        inputs = self.make_inputs(0)
        self._template = self._observe(inputs, twice=True)
        self._stable_outputs = find_stable_outputs(lambda: self.run(inputs), self._template.leaves)
        return self._template

    @functools.cached_property
    def plan(self) -> list[PlannedSet]:
        """All input sets in the order in which they are run; from the problem and the seed alone."""
        leaves = (self._template or self.probe()).leaves
        targets = find_targets(self.make_inputs(0), leaves, self._module, changes_state=self._perturb_parameters)
        if self._own_results.draws_random:  # what is drawn for NaN or a constant row has no law to compare
            targets = replace(targets, floating=(), special=())
        return plan_sets(self.make_rng("plan"), targets, perturb=self._perturb_parameters)

    def planned_sets(self, limit: int | None = None) -> list[PlannedSet]:
        """The plan, its most important sets, or, beyond its length, more sets of the same kinds; `draw_set` takes their
        `index`."""
        if limit is None or limit <= len(self.plan):
            return self.plan if limit is None else shorten(self.plan, limit)
        repeated = (replace(self.plan[at % len(self.plan)], index=at) for at in range(len(self.plan), limit))
        return [*self.plan, *repeated]

    def _observe(self, inputs: Args, *, twice: bool) -> ObservedCall:
        leaves, spec = pytree.tree_flatten(inputs)
        try:
            observed = observe(
                self._program,
                CallArguments(extract_storages(leaves), spec, leaves, self._device, [], self.call_seed(0)),
                twice=twice,
            )
        except ChangedArgumentError as error:
            raise ProblemError(f"the reference {error.message}", next="return the value, or write to memory") from error
        except TaskError as error:
            raise _as_problem_error(error) from error
        except MemoryLimitError as error:
            raise MemoryLimitError(f"the reference ran out of memory: {error.message}", where=error.where) from error
        changes = observed.mutated_inputs or self.state_names.intersection(observed.changed_state)
        if not changes and not any(isinstance(leaf, (torch.Tensor, int, float)) for leaf in observed.leaves.values()):
            raise ProblemError(f"the reference returns {observed.structure} and changes no input: nothing to verify")
        if len(observed.tensors) > MAX_EXTENTS:
            raise ProblemError(f"the reference returns {len(observed.tensors):,} tensors; {MAX_EXTENTS:,} can be read")
        if all(_is_finite(leaf) for leaf in leaves):
            self._reject_nan([*observed.leaves.values(), *observed.mutated_inputs.values()])
        return observed

    def draw_set(self, index: int) -> InputSet | None:
        """The set of this index; None where the reference cannot take these values, which is not an error.

        Raises:
            ProblemError: the reference raises on the problem's own inputs.
        """
        planned = self.plan[index % len(self.plan)]
        if planned.variant is Variant.DISTRIBUTION:
            return self._draw_distribution(planned, index)
        return self._draw_probed(planned, index)

    def _draw_distribution(self, planned: PlannedSet, index: int) -> InputSet | None:
        distribution = planned.distribution
        own_inputs = self.make_inputs(index)
        inputs = distribution.draw(own_inputs, self.derive_seed("values", index))
        inputs, groups = self._mixed.mix_rows(distribution, inputs, own_inputs, index - planned.index)
        parameters: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
        values: Expected | None = None
        for signs in (True, False) if planned.signs else (False,):
            if planned.perturbed:
                parameters = functools.partial(self._perturbed_parameters, index, signs=signs)
            try:
                values = self._compute_expected(inputs, self.call_seed(index), parameters)
            except (Exception, SystemExit) as error:
                problem_error = _as_problem_error(error)
                if distribution.sampler is not None and isinstance(problem_error, ProblemError):
                    return None
                raise problem_error from error
            if all(map(_is_finite, values.reference)):
                break
        assert values is not None
        if distribution.sampler is not None and (_has_no_number(values) or not self._has_golden(values)):
            return None
        if (distribution.coarse or distribution.range_end) and not all(map(_is_finite, values.reference)):
            return None
        if distribution.range_end and not self._is_homogeneous(distribution, parameters, index, values):
            return None
        drawn = self._finish_set(planned, index, inputs, values, parameters if planned.perturbed else None)
        return replace(drawn, groups=groups)

    def _has_golden(self, values: Expected) -> bool:
        """Whether these values have an FP64 golden, or the problem's own do not: for some inputs the reference itself
        loses all digits, and a program that loses none differs from it."""
        return values.golden_method == expected.FP64 or self._own_results.golden_method != expected.FP64

    @functools.cached_property
    def _own_results(self) -> _OwnResults:
        values = self._compute_expected(self.make_inputs(0), self.call_seed(0))
        return _OwnResults(values.golden_method, values.draws_random)

    def takes_on_host(self, inputs: Args) -> bool:
        """Whether the reference takes these inputs on the host, where an error is an exception: on a device, a failed
        assertion would end this process's use of it."""
        if self._device == "cpu":
            return True
        try:
            host_inputs = to_device(inputs, "cpu")
            module = self._module and copy.deepcopy(self._module).to("cpu")
            run_program(module or self._program, module, host_inputs, seed=0)
        except (Exception, SystemExit):
            return False
        return True

    def _draw_probed(self, planned: PlannedSet, index: int) -> InputSet | None:
        """A set whose values the reference was run on before."""
        own = next(one.index for one in self.plan if one.distribution is AS_GIVEN)
        drawn = self._probed.draw(planned, index, base=index - planned.index + own)
        if drawn is None:
            return None
        parameters = self._probed.parameters(drawn.state)
        try:
            values = self._compute_expected(drawn.inputs, self.call_seed(index), parameters)
        except (Exception, SystemExit) as error:
            if isinstance(_as_problem_error(error), ProblemError):
                return None
            raise
        if planned.variant in (Variant.NAN, Variant.INFINITY) and not is_defined(values):
            return None
        if planned.variant is Variant.ZERO_ROWS and not all(map(_is_finite, values.reference)):
            return None
        input_set = self._finish_set(planned, index, drawn.inputs, values, parameters if drawn.state else None)
        return replace(input_set, special_effect=drawn.depends, keeps_numbers=planned.variant is Variant.NAN)

    def _finish_set(
        self,
        planned: PlannedSet,
        index: int,
        inputs: Args,
        values: Expected,
        parameters: Callable[[], AbstractContextManager[None]] | None,
    ) -> InputSet:
        """The set, with the state to be sent: other parameters, or the problem's own ones after others."""
        send_state = self._perturb_parameters and (parameters is not None or self._was_perturbed)
        self._was_perturbed = parameters is not None
        with parameters() if parameters else contextlib.nullcontext():
            state = self._state() if send_state else None
        return replace(
            self._make_set(inputs, values, self.call_seed(index)),
            distribution=planned.distribution,
            state=state,
            parameters_perturbed=self._was_perturbed,
            index=planned.index,
            repeat_call=planned.repeat_call,
            same_address=planned.same_address,
        )

    def _compute_expected(
        self,
        inputs: Args,
        seed: int,
        parameters: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> Expected:
        sampling_seed = self.derive_seed("sampling", seed)
        values = expected.compute_expected(
            self._program, self._module, inputs, parameters, seed=seed, sampling_seed=sampling_seed
        )
        values.stable_outputs = frozenset("output" + path for path in self._stable_outputs)
        return values

    def redraw_set(self, kind: InputKind, number: int) -> InputSet | None:
        """Another set of a kind, for each number from 1 on; None where `draw_set` returns None."""
        if kind.name == HELD_OUT.name:
            state = self.reset_state()
            drawn = next(itertools.islice(self.held_out_sets(number), kind.set_index, None), None)
            return drawn and replace(drawn, state=state)
        start = REDRAW_START_INDEX // len(self.plan) + number
        return self.draw_set(start * len(self.plan) + kind.set_index)

    def redraw_argument(self, inputs: Args, leaf_index: int, number: int) -> Args | None:
        """These inputs with other values for one leaf that selects, counts, masks or is constant; None where it does
        not, or the reference takes no others."""
        tensors = [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
        generator = torch.Generator(tensors[0].device).manual_seed(self.derive_seed("argument", number))
        return self._probed.redraw_argument(inputs, leaf_index, generator)

    def _is_homogeneous(
        self,
        distribution: Distribution,
        parameters: Callable[[], AbstractContextManager[None]],
        index: int,
        scaled: Expected,
    ) -> bool:
        """Whether the program's outputs scale with its inputs, which were scaled towards an end of the range."""
        plain = replace(distribution, range_end=0)
        inputs = plain.draw(self.make_inputs(index), self.derive_seed("values", index))
        seed = self.call_seed(index)
        unscaled = expected.compute_expected(self._program, self._module, inputs, parameters, seed=seed)
        return is_homogeneous(unscaled, scaled)

    def make_set(self, inputs: Args, seed: int) -> InputSet:
        """The set of these inputs, with the problem's own parameters and the seed of the call."""
        return self._make_set(inputs, self._compute_expected(inputs, seed), seed)

    def _make_set(self, inputs: Args, values: Expected, seed: int) -> InputSet:
        law_seed = self.derive_seed("law", seed)
        return InputSet(AS_GIVEN, inputs, values, None, False, index=NO_KIND_INDEX, seed=seed, law_seed=law_seed)

    def make_timed_set(self, inputs: Args, seed: int) -> InputSet:
        """The set of inputs of a timed call with this seed."""
        return replace(self.make_set(inputs, seed), distribution=MIXED if self._mixed.block_domains else AS_GIVEN)

    def make_timed_inputs(self, index: int, num_calls: int = 1) -> list[Args]:
        """Inputs of consecutive timed calls: the problem's own, with some rows of other distributions where the
        reference takes these. They are not those of any set.

        Raises:
            ProblemError: the generator raises.
        """
        series = self.make_input_series(index, num_calls, purpose="timed inputs")
        return [self._mixed.mix_blocks(one, self.derive_seed("blocks", index) + at) for at, one in enumerate(series)]

    def held_out_sets(self, number: int = 0) -> Iterator[InputSet]:
        """Sets of the other shapes that the problem declares, with other values for every number and the problem's
        own parameters.

        Raises:
            ProblemError: the reference or the generator raises, or the arguments differ from those of the problem's
                own inputs.
        """
        try:
            with temporary_seed(self.derive_seed("held out", number)):
                declared = held_out_inputs(self._problem)
            own_inputs = self.make_inputs(0) if declared else ([], {})
            for index, inputs in enumerate(declared):
                _require_same_arguments(inputs, own_inputs)
                inputs = to_device(inputs, self._device)
                template = self._observe(inputs, twice=False)
                drawn = self.make_set(inputs, self.derive_seed(f"held-out call {number}", index))
                state = self.reset_state()
                yield replace(drawn, distribution=HELD_OUT, template=template, index=index, state=state)
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

    def run_values(
        self,
        inputs: Args,
        parameters: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
        seed: int = 0,
    ) -> list[torch.Tensor] | None:
        """All values that the program returns or changes for these inputs under a call's seed, in native precision;
        None where it raises.

        Args:
            parameters: within it the module has the parameters to run with.
        """
        with parameters():
            result = self.run(inputs, seed)
        return result and result.values

    def run(self, inputs: Args, seed: int = 0) -> ProgramResult | None:
        """As `run_values`, with names."""
        try:
            with disable_tf32():
                return run_program(self._program, self._module, inputs, seed=seed)
        except (Exception, SystemExit):  # inputs of different sets may not fit together
            return None

    def time_us(self) -> float:
        """Shortest time of a few runs on the problem's own inputs."""
        inputs, times_us = self.make_inputs(0), []
        for _ in range(NUM_TIMED_RUNS):
            start_s = wall_s()
            self.run_values(inputs)
            times_us.append((wall_s() - start_s) * 1e6)
        return min(times_us)

    def call_seed(self, index: int) -> int:
        """The secret seed of the random number generators in the call with the inputs of this index."""
        return self.derive_seed("call", index)

    def derive_seed(self, purpose: str, index: int) -> int:
        """A seed that reveals no other seed: a torch generator's seed can be found by search from the values it
        generated."""
        return int(digest(str(self._seed), purpose, str(index))[:15], 16)

    def make_rng(self, purpose: str) -> random.Random:
        """An RNG that depends on the secret seed, as the values do."""
        return random.Random(self.derive_seed(purpose, 0))

    def make_inputs(self, index: int) -> Args:
        """The problem's own inputs of this index.

        Raises:
            ProblemError: the generator raises.
        """
        return self.make_input_series(index, 1)[0]

    def make_input_series(self, index: int, num_calls: int, purpose: str = "inputs") -> list[Args]:
        """As `make_inputs`, for a series of calls from one seed: seeding takes longer than generating."""
        try:
            with temporary_seed(self.derive_seed(purpose, index)):
                return [to_device(self._draw_inputs(), self._device) for _ in range(num_calls)]
        except (Exception, SystemExit) as error:
            raise _as_problem_error(error) from error

    @contextlib.contextmanager
    def _perturbed_parameters(self, index: int, *, signs: bool) -> Iterator[None]:
        assert self._module is not None
        with replaced_values(self._module, torch.clone):
            perturb(self._module, self.derive_seed("parameters", index), signs=signs)
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
    return module is not None and bool(perturbable_state(module) or changeable_state(module))


def _as_problem_error(error: BaseException) -> KernelwrightError:
    if isinstance(error, KernelwrightError) and not isinstance(error, TaskError):
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
