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
from kernelwright.problems.device_inputs import made_on
from kernelwright.problems.held_out import held_out_inputs
from kernelwright.problems.problem import Args, Problem, seeded, to_device
from kernelwright.sandbox import TaskError
from kernelwright.sandbox.exceptions import task_error
from kernelwright.verification.accuracy import expected
from kernelwright.verification.accuracy.distributions import AS_GIVEN, DISTRIBUTIONS, HELD_OUT, Distribution
from kernelwright.verification.accuracy.expected import Right
from kernelwright.verification.accuracy.near_limit import Kind
from kernelwright.verification.accuracy.ranges import all_finite, real_numbers
from kernelwright.verification.attacks.parameters import changeable, perturb
from kernelwright.verification.execution import SEED, Call, Observed, observe
from kernelwright.verification.outcome import Outcome, exact_float32, outputs
from kernelwright.verification.transport.state import State, state_of
from kernelwright.verification.transport.tensor_codec import PLAIN, hold, outline

PERTURBED_EVERY = 3
SCALES_WITHIN = 1e-3
KINDS = math.lcm(len(DISTRIBUTIONS), PERTURBED_EVERY)
"""After so many sets both the distributions and whether parameters are changed begin anew."""
AGAIN_FROM = 50_000 * KINDS
"""The index of the first set that is drawn again of a kind."""
ALONE = -1
"""The index of sets that no draw of a distribution has made."""
MEND = "mend the reference or its inputs"


@dataclass(frozen=True)
class InputSet:
    """One set of inputs with the right answer to it; `state` holds parameters and buffers if not the last set's;
    `model` is what the reference returns, where that may have another structure than for the problem's own inputs;
    `index` is that of its kind, as `Reference.again` takes it."""

    distribution: Distribution
    inputs: Args
    right: Right
    state: State | None
    perturbed: bool
    model: Observed | None = None
    index: int = 0

    @property
    def kind(self) -> Kind:
        return Kind(self.distribution.name, self.index)

    @property
    def sizes_bytes(self) -> list[int]:
        return [t.numel() * t.element_size() for t in self.right.reference]


class Reference:
    """The reference on a device, with one copy of its module for changed parameters.

    Args:
        seed: secret; every set's values follow from it.
        change_parameters: whether the candidate can be given other parameters.
    Attributes:
        keeps: names of the parameters and persistent buffers, which a candidate from a file has too.
    """

    def __init__(self, problem: Problem, device: str, seed: int, *, change_parameters: bool) -> None:
        self._problem, self._device, self._seed = problem, device, seed
        self._program, self._make = problem.on(device), made_on(device, problem.make_inputs)
        self._module = self._program if isinstance(self._program, torch.nn.Module) else None
        _refuse_lazy(self._module)
        self._change = change_parameters and _can_be_changed(self._module)
        self.keeps = frozenset(self._module.state_dict() if self._module else ())
        self._was_perturbed = False

    def probe(self) -> Observed:
        """What the reference returns for the problem's own inputs: structure, devices, and whether twice the same.

        Raises:
            ProblemError: it raises, computes nothing, or makes NaN of finite inputs.
        """
        return self._probed(self.inputs(0), twice=True)

    def _probed(self, inputs: Args, *, twice: bool) -> Observed:
        leaves, spec = pytree.tree_flatten(inputs)
        try:
            seen = observe(self._program, Call(hold(leaves), spec, leaves, self._device, []), twice=twice)
        except TaskError as fault:
            raise ProblemError(f"the reference raised {fault.message}", where=fault.where, next=MEND) from fault
        except MemoryLimitError as fault:
            raise MemoryLimitError(f"the reference ran out of memory: {fault.message}", where=fault.where) from fault
        changes = seen.mutated or self.keeps.intersection(seen.state)
        if not changes and not any(isinstance(leaf, (torch.Tensor, int, float)) for leaf in seen.leaves.values()):
            raise ProblemError(f"the reference returns {seen.outline} and changes no input: nothing to verify")
        if all(_is_finite(leaf) for leaf in leaves):
            self._refuse_nan([*seen.leaves.values(), *seen.mutated.values()])
        return seen

    def draw(self, index: int) -> InputSet | None:
        """The set of this index; None where the reference cannot take this distribution, which is no fault of it.

        Raises:
            ProblemError: the reference raises on the problem's own inputs.
        """
        distribution = DISTRIBUTIONS[index % len(DISTRIBUTIONS)]
        inputs = distribution.draw(self.inputs(index), self._seed_of("values", index))
        perturbed = self._change and index % PERTURBED_EVERY == PERTURBED_EVERY - 1
        program, module = self._changed(index) if perturbed else (self._program, self._module)
        try:
            right = expected.right(program, module, inputs)
        except (Exception, SystemExit) as fault:
            error = _as_problem_error(fault)
            if distribution.values is not None and isinstance(error, ProblemError):
                return None
            raise error from fault
        if distribution.values is not None and _says_nothing(right):
            return None
        if (distribution.coarse or distribution.end) and not all(map(_is_finite, right.reference)):
            return None
        if distribution.end and not self._scales(program, module, index, right):
            return None
        send = self._change and (perturbed or self._was_perturbed)
        self._was_perturbed = perturbed
        state = {name: value for name, value in state_of(module).items() if name in self.keeps} if send else None
        return InputSet(distribution, inputs, right, state, perturbed, index=index % KINDS)

    def again(self, kind: Kind, number: int) -> InputSet | None:
        """Another set of a kind, for each number from 1 on: None where there is none, as from `draw`."""
        if kind.name == HELD_OUT.name:
            state = self.own_state()
            found = next(itertools.islice(self.held_out(number), kind.number, None), None)
            return found and replace(found, state=state)
        return self.draw(AGAIN_FROM + KINDS * number + kind.number)

    def _scales(self, program: Callable[..., Any], module: torch.nn.Module | None, index: int, moved: Right) -> bool:
        """Whether the program's outputs scale with its inputs, which were moved towards an end of the range."""
        plain = replace(DISTRIBUTIONS[index % len(DISTRIBUTIONS)], end=0)
        inputs = plain.draw(self.inputs(index), self._seed_of("values", index))
        near = expected.right(program, module, inputs)
        return scales(near, moved)

    def set_of(self, inputs: Args) -> InputSet:
        """These inputs of the problem's own with what is right for them, parameters as they are in the problem."""
        right = expected.right(self._program, self._module, inputs)
        return InputSet(AS_GIVEN, inputs, right, None, False, index=ALONE)

    def held_out(self, number: int = 0) -> Iterator[InputSet]:
        """Sets of the other shapes that the problem declares; parameters as they are in the problem, so not after a set
        that had others. Other values for every number.

        Raises:
            ProblemError: the reference raises on one, or their generator; they are other arguments than the problem's.
        """
        assert not self._was_perturbed
        try:
            with seeded(self._seed_of("held out", number)):
                declared = held_out_inputs(self._problem)
            given = self.inputs(0) if declared else ([], {})
            for at, inputs in enumerate(declared):
                _refuse_other_arguments(inputs, given)
                inputs = to_device(inputs, self._device)
                model = self._probed(inputs, twice=False)
                yield replace(self.set_of(inputs), distribution=HELD_OUT, model=model, index=at)
        except (Exception, SystemExit) as fault:
            raise _as_problem_error(fault) from fault

    def own_state(self) -> State | None:
        """Parameters and buffers as they are in the problem, if the last set had others."""
        if not self._was_perturbed:
            return None
        self._was_perturbed = False
        return {name: value for name, value in state_of(self._module).items() if name in self.keeps}

    def values(self, inputs: Args) -> list[torch.Tensor] | None:
        """All that the program returns or changes for these inputs, in its own precision; None where it raises."""
        outcome = self.outcome(inputs)
        return outcome and outcome.values

    def outcome(self, inputs: Args) -> Outcome | None:
        """The same with the names of it."""
        try:
            with exact_float32():
                return outputs(self._program, self._module, inputs)
        except (Exception, SystemExit):  # inputs that do not belong together may be refused
            return None

    def draws(self, inputs: Args) -> bool:
        """Whether the program takes torch's random numbers: what it gives then depends on the calls before."""
        args, kwargs = inputs
        with seeded(SEED), torch.no_grad():
            before = _random_state(self._device)
            self._program(*args, **kwargs)
            return not torch.equal(before, _random_state(self._device))

    def _seed_of(self, what: str, index: int) -> int:
        """No seed says anything of another: torch's generators can be searched for theirs, given what they drew."""
        return int(digest(str(self._seed), what, str(index))[:15], 16)

    def chance(self, what: str) -> random.Random:
        """Choices that follow from the secret seed, as the values do."""
        return random.Random(self._seed_of(what, 0))

    def inputs(self, index: int) -> Args:
        """The problem's own inputs of this index.

        Raises:
            ProblemError: its generator raises.
        """
        return self.series(index, 1)[0]

    def series(self, index: int, calls: int) -> list[Args]:
        """As `inputs`, for calls one after the other: drawn from one seed, which takes longer to set than to draw."""
        try:
            with seeded(self._seed_of("inputs", index)):
                return [to_device(self._make(), self._device) for _ in range(calls)]
        except (Exception, SystemExit) as fault:
            raise _as_problem_error(fault) from fault

    def _changed(self, index: int) -> tuple[Callable[..., Any], torch.nn.Module]:
        module = copy.deepcopy(self._module)
        assert module is not None
        perturb(module, self._seed_of("parameters", index))
        return module, module

    def _refuse_nan(self, values: list[Any]) -> None:
        for value in values:
            if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
                continue
            if not all_finite(value) and (count := int(real_numbers(value).isnan().sum())):
                message = f"the reference returns NaN for finite inputs: {count:,} of {value.numel():,} elements"
                raise ProblemError(message, where=self._problem.source or self._problem.name, next=MEND)


def _refuse_other_arguments(inputs: Args, given: Args) -> None:
    """A candidate's process knows which arguments there are by the problem's own."""
    (leaves, spec), (known, known_spec) = pytree.tree_flatten(inputs), pytree.tree_flatten(given)
    fixed = [at for at, leaf in enumerate(known) if not isinstance(leaf, (torch.Tensor, *PLAIN))]
    if spec != known_spec or any(leaves[at] != known[at] for at in fixed):
        message = (
            f"held-out inputs {outline(inputs)} are not the arguments that the problem's own are, {outline(given)}"
        )
        raise ProblemError(message, next="let get_held_out_inputs() return what get_inputs() does, in other shapes")


def _random_state(device: str) -> torch.Tensor:
    return torch.get_rng_state() if device == "cpu" else torch.cuda.get_rng_state()


def _refuse_lazy(module: torch.nn.Module | None) -> None:
    for name, value in [*module.named_parameters(), *module.named_buffers()] if module else []:
        if torch.nn.parameter.is_lazy(value):
            message = f"{name} of the reference has no shape before its first call"
            raise ProblemError(message, next="call the module once in Model.__init__, or name its sizes")


def _can_be_changed(module: torch.nn.Module | None) -> bool:
    if module is None or not changeable(module):
        return False
    try:
        copy.deepcopy(module)
    except Exception:  # a person's module may hold anything, such as a lock or an open file
        return False
    return True


def _as_problem_error(fault: BaseException) -> KernelwrightError:
    if isinstance(fault, KernelwrightError):
        return fault
    error = task_error(fault)
    if isinstance(error, MemoryLimitError):
        return MemoryLimitError(f"the reference ran out of memory: {error.message}", where=error.where)
    return ProblemError(f"the reference raised {error.message}", where=error.where, next=MEND)


def _is_finite(leaf: Any) -> bool:
    return not isinstance(leaf, torch.Tensor) or all_finite(leaf)


def _says_nothing(right: Right) -> bool:
    """No output has a number: values outside what the program is defined for."""
    floating = [t for t in right.reference if t.dtype.is_floating_point and t.numel()]
    return bool(floating) and not any(all_finite(t) or bool(real_numbers(t).isfinite().any()) for t in floating)


def scales(near: Right, far: Right) -> bool:
    """Whether all outputs for inputs that were moved are those for the inputs as they were, times a power of two."""
    return near.how == far.how == expected.FP64 and all(map(_scales, near.golden, far.golden))


def _scales(near: torch.Tensor, far: torch.Tensor) -> bool:
    """Whether one tensor is the other times a power of two, but for what an epsilon does."""
    if not near.dtype.is_floating_point or not near.numel():
        return torch.equal(near, far)
    largest, moved = near.abs().max().item(), far.abs().max().item()
    if not (0 < largest < math.inf and 0 < moved < math.inf):
        return False
    factor = 2.0 ** round(math.log2(moved / largest))
    return bool((far - near * factor).abs().max() <= SCALES_WITHIN * moved)
