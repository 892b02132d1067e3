"""Calls that differ in nothing but how many rows their tensors have.

No compiled kernel depends on that number: it is an argument that Triton does not specialize, and sets the grid. So what
was recorded of a call can be launched for any number of rows, as far as every choice that depends on it comes out the
same. The tensors whose leading dimensions those are may differ in these sizes alone; which dimensions they are in a
shape is found by comparing sizes, and since two sizes may be equal by chance, a replay is compiled only when recordings
of two calls with different numbers of rows have come to the same source.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor

MAX_ELEMENTS = 2**31
"""From here on Triton passes their number as 64 bits, to another compiled kernel."""
MAX_RECORDINGS = 32
"""Of one group of calls, then no more are made: its launches follow from no number of rows."""
CONTIGUOUS, UNIFORM = "contiguous", "uniform"


class LeadingDims(NamedTuple):
    """The leading dimensions of the tensor whose rows a call computes.

    Attributes:
        tensor_index: which of the call's tensors it is.
        sizes: all but the last.
        columns: the last.
    """

    tensor_index: int
    sizes: tuple[int, ...]
    columns: int

    @property
    def rows(self) -> int:
        return math.prod(self.sizes)

    def split_shape(self, shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """The sizes before and after the leading ones in a shape; None where it does not contain them."""
        shape, many = tuple(shape), len(self.sizes)
        for first in range(len(shape) - many + 1):
            if shape[first : first + many] == self.sizes:
                return shape[:first], shape[first + many :]
        return None

    def stride_pattern(self, tensor: Tensor) -> Any:
        """What says where elements lie, whatever the leading sizes are: all strides where they do not depend on those,
        else CONTIGUOUS, or UNIFORM with the strides of rows and columns; None where nothing does."""
        prefix, suffix = self.split_shape(tensor.shape) or ((), ())
        if len(self.sizes) == 1 and not prefix:
            return tensor.stride()
        if tensor.is_contiguous():
            return CONTIGUOUS
        if prefix or len(suffix) != 1 or not _has_uniform_row_stride(tensor):
            return None
        return UNIFORM, tensor.stride()[-2:]


def _has_uniform_row_stride(tensor: Tensor) -> bool:
    """Whether all rows begin at multiples of one stride."""
    strides, shape = tensor.stride(), tensor.shape
    return all(strides[i] == shape[i + 1] * strides[i + 1] for i in range(tensor.dim() - 2))


def find_leading_dims(tensors: Sequence[Tensor], x: Any) -> LeadingDims | None:
    """The leading dimensions of x, one of the tensors; None where it has no more than one row or too many."""
    if not isinstance(x, Tensor) or x.dim() < 2 or not x.numel():
        return None
    *sizes, columns = x.shape
    found = LeadingDims(next(at for at, one in enumerate(tensors) if one is x), tuple(sizes), columns)
    return found if found.rows > 1 and x.numel() < MAX_ELEMENTS else None


def row_key(leading: LeadingDims, tensors: Sequence[Tensor]) -> tuple[Any, ...] | None:
    """Shapes and strides of tensors without the leading sizes; None where these do not follow."""
    parts: list[Any] = [leading.tensor_index]
    for one in tensors:
        around = leading.split_shape(one.shape)
        if around is None:
            if len(leading.sizes) > 1 and one.dim() > 1:  # it may have some of the leading sizes
                return None
            parts.append((tuple(one.shape), one.stride()))
            continue
        if (strides := leading.stride_pattern(one)) is None:
            return None
        parts.append((*around, strides))
    return tuple(parts)


class TensorGuard(NamedTuple):
    """What torch's guards check of a tensor, None for any size or stride, and what else has to hold.

    Attributes:
        conditions: expressions of `{a}`, the tensor, and `{x}`, the one that has the leading dimensions.
    """

    sizes: list[int | None]
    strides: list[int | None]
    conditions: list[str]


def make_tensor_guard(tensor: Tensor, leading: LeadingDims | None, *, is_leader: bool) -> TensorGuard:
    """
    Args:
        is_leader: it is the tensor that has the leading dimensions.
    """
    if leading is None or (around := leading.split_shape(tensor.shape)) is None:
        return TensorGuard(list(tensor.shape), list(tensor.stride()), [])
    prefix, suffix = around
    free: list[int | None] = [None] * len(leading.sizes)
    sizes, conditions = [*prefix, *free, *suffix], []
    strides: list[int | None] = [None] * tensor.dim()
    first, last = len(prefix), len(prefix) + len(free)
    match leading.stride_pattern(tensor):
        case "contiguous":
            conditions.append("{a}.is_contiguous()")
        case ("uniform", (row, column)):
            strides[-2:] = row, column
            conditions += [
                f"{{a}}.stride({i}) == {{a}}.size({i + 1}) * {{a}}.stride({i + 1})" for i in range(tensor.dim() - 2)
            ]
        case literal:
            strides = list(literal)
    if not is_leader:
        whole = f"{{a}}.shape[{first}:{last}] == {{x}}.shape[:-1]"
        conditions.append(f"{{a}}.size({first}) == {{x}}.size(0)" if len(free) == 1 else whole)
    return TensorGuard(sizes, strides, conditions)


class Replay(NamedTuple):
    """
    Attributes:
        call: the call, of tensors and the seed alone.
        guarded_call: the call, of arguments as they are given, where they are like those it was recorded of.
    """

    call: Callable[..., Any]
    guarded_call: Callable[[tuple[Any, ...], dict[str, Any]], Any] | None


class RowCountGroup:
    """Calls that differ in their number of rows: the replays written for any such number, and the recordings that they
    are deduced from."""

    def __init__(self) -> None:
        self.replays: list[Replay] = []
        self.was_called = False
        self._recorded: list[tuple[int, Any]] = []
        self._recordings_left = MAX_RECORDINGS

    def should_record(self) -> bool:
        """Whether another call is worth recording: not the first, since a group of one call gains nothing."""
        called, self.was_called = self.was_called, True
        return called and self._recordings_left > 0

    def confirm(self, rows: int, source: Any) -> bool:
        """Notes a recording; whether one of another number of rows has the same source. None ends all recording."""
        self._recordings_left = self._recordings_left - 1 if source else 0
        if not source:
            return False
        if any(other != rows and source.equals(one) for other, one in self._recorded):
            self._recorded = [(other, one) for other, one in self._recorded if not source.equals(one)]
            return True
        self._recorded.append((rows, source))
        return False
