"""Replay of recorded calls for other numbers of rows.

No compiled kernel depends on the number of rows: it is an argument that Triton does not specialize, and it sets the
grid. A recorded call can therefore be launched for any number of rows for which every decision that depends on it is
the same. Tensors may then differ only in these leading sizes. Which dimensions of a shape they are is found by
comparing sizes; since two sizes may be equal by coincidence, a replay is compiled only after recordings with two
different numbers of rows have produced the same source.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor

MAX_ELEMENTS = 2**31
"""From here on Triton passes the number of elements as 64 bits, to another compiled kernel."""
MAX_RECORDINGS = 32
"""Recordings per group of calls; after that its launches do not follow from the number of rows."""
CONTIGUOUS, UNIFORM = "contiguous", "uniform"


class LeadingDims(NamedTuple):
    """The leading dimensions of the tensor whose rows a call computes.

    Attributes:
        tensor_index: index of the tensor among the call's tensors.
        sizes: all sizes but the last.
        columns: the last size.
    """

    tensor_index: int
    sizes: tuple[int, ...]
    columns: int

    @property
    def rows(self) -> int:
        """Product of the leading sizes."""
        return math.prod(self.sizes)

    def split_shape(self, shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """The sizes before and after the leading ones in `shape`; None if it does not contain them."""
        shape, num_dims = tuple(shape), len(self.sizes)
        for first in range(len(shape) - num_dims + 1):
            if shape[first : first + num_dims] == self.sizes:
                return shape[:first], shape[first + num_dims :]
        return None

    def stride_pattern(self, tensor: Tensor) -> Any:
        """Strides in a form that is independent of the leading sizes.

        All strides if they do not depend on these, else CONTIGUOUS, or UNIFORM with the strides of rows and columns;
        None for any other layout.
        """
        prefix, suffix = self.split_shape(tensor.shape) or ((), ())
        if len(self.sizes) == 1 and not prefix:
            return tensor.stride()
        if tensor.is_contiguous():
            return CONTIGUOUS
        if prefix or len(suffix) != 1 or not _has_uniform_row_stride(tensor):
            return None
        return UNIFORM, tensor.stride()[-2:]


def _has_uniform_row_stride(tensor: Tensor) -> bool:
    """Whether all rows start at multiples of one stride."""
    strides, shape = tensor.stride(), tensor.shape
    return all(strides[i] == shape[i + 1] * strides[i + 1] for i in range(tensor.dim() - 2))


def find_leading_dims(tensors: Sequence[Tensor], x: Any) -> LeadingDims | None:
    """The leading dimensions of x, one of the tensors; None if it has at most one row, or too many elements."""
    if not isinstance(x, Tensor) or x.dim() < 2 or not x.numel():
        return None
    *sizes, columns = x.shape
    leading = LeadingDims(next(i for i, one in enumerate(tensors) if one is x), tuple(sizes), columns)
    return leading if leading.rows > 1 and x.numel() < MAX_ELEMENTS else None


def row_key(leading: LeadingDims, tensors: Sequence[Tensor]) -> tuple[Any, ...] | None:
    """Shapes and strides of tensors without the leading sizes; None if these do not determine them."""
    key: list[Any] = [leading.tensor_index]
    for tensor in tensors:
        split = leading.split_shape(tensor.shape)
        if split is None:
            if len(leading.sizes) > 1 and tensor.dim() > 1:  # it may have some of the leading sizes
                return None
            key.append((tuple(tensor.shape), tensor.stride()))
            continue
        if (strides := leading.stride_pattern(tensor)) is None:
            return None
        key.append((*split, strides))
    return tuple(key)


class TensorGuard(NamedTuple):
    """Sizes and strides for torch's TensorGuards, None for any value, and additional conditions.

    Attributes:
        conditions: expressions of `{a}`, the tensor, and `{x}`, the tensor with the leading dimensions.
    """

    sizes: list[int | None]
    strides: list[int | None]
    conditions: list[str]


def make_tensor_guard(tensor: Tensor, leading: LeadingDims | None, *, is_leader: bool) -> TensorGuard:
    """The guard of a tensor: all sizes and strides but those that follow from the leading dimensions.

    Args:
        is_leader: the tensor defines the leading dimensions.
    """
    if leading is None or (split := leading.split_shape(tensor.shape)) is None:
        return TensorGuard(list(tensor.shape), list(tensor.stride()), [])
    prefix, suffix = split
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
        same_sizes = f"{{a}}.shape[{first}:{last}] == {{x}}.shape[:-1]"
        conditions.append(f"{{a}}.size({first}) == {{x}}.size(0)" if len(free) == 1 else same_sizes)
    return TensorGuard(sizes, strides, conditions)


class Replay(NamedTuple):
    """A compiled replay.

    Attributes:
        call: takes the tensors and the seed alone.
        guarded_call: takes the original arguments and checks that they match those of the recording; None without
            guards.
    """

    call: Callable[..., Any]
    guarded_call: Callable[[tuple[Any, ...], dict[str, Any]], Any] | None


class RowCountGroup:
    """Calls that differ only in their number of rows: replays for any number of rows, and the recordings they are
    derived from."""

    def __init__(self) -> None:
        self.replays: list[Replay] = []
        self.was_called = False
        self._recorded: list[tuple[int, Any]] = []
        self._recordings_left = MAX_RECORDINGS

    def should_record(self) -> bool:
        """Whether to record this call: not the first, since a group of one call gains nothing."""
        was_called, self.was_called = self.was_called, True
        return was_called and self._recordings_left > 0

    def confirm(self, rows: int, source: Any) -> bool:
        """Add a recording; returns whether a recording with another number of rows has the same source. None stops
        recording."""
        self._recordings_left = self._recordings_left - 1 if source else 0
        if not source:
            return False
        if any(other != rows and source.equals(one) for other, one in self._recorded):
            self._recorded = [(other, one) for other, one in self._recorded if not source.equals(one)]
            return True
        self._recorded.append((rows, source))
        return False
