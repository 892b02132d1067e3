"""Count the work of a program per call, below autograd, from metadata only: no tensor values, device work or timing."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.core.pytree import tensor_leaves
from kernelwright.core.work import Operator, ProgramWork, Work
from kernelwright.work.calls import OperatorCall, get_schema, tensors_in
from kernelwright.work.formulas import FORMULAS, Formula, formula_of
from kernelwright.work.modules import ModulePathTracker
from kernelwright.work.regions import ByteRangeSet
from kernelwright.work.storages import StorageTracker, TrackedStorage, tensor_byte_range
from kernelwright.work.traffic import MemoryAccess, find_reads, find_writes, input_passes, narrow_to_indexed

Span = tuple[int, int, int, int]
OutputRanges = dict[int, tuple[TrackedStorage, ByteRangeSet]]
VIEW_FORMULA = Formula("view", lambda call: 0)


def count_work(
    program: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> ProgramWork:
    """The work of one run of a program: forward, backward, optimizer; on any device, including fake tensors.

    Outputs are the result and everything left behind: gradients, optimizer state, a filled cache.

    Args:
        program: runs once, is not timed, and its result is discarded.
    """
    mode = CountingMode()
    mode.set_arguments((args, kwargs))
    with _force_eager(), mode:
        result = program(*args, **(kwargs or {}))
    outputs = mode._find_outputs(result)
    del result  # frees what only its autograd graph kept alive; allocations that remain have another owner
    if any(storage.storage_id not in outputs for storage in mode._storages.live_allocations()):
        gc.collect()
    return mode._finish(outputs, include_live=True)


def _force_eager() -> contextlib.AbstractContextManager[object]:
    """Run compiled parts eagerly: torch does not compile under a mode, and raises where a full graph is required. The
    compiler takes seconds to import; if it is not loaded, no part is compiled."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else contextlib.nullcontext()


class CountingMode(TorchDispatchMode):
    """Counts every call inside `with`; each call is passed on exactly once, to the next mode or to torch.

    Attributes:
        operators: the calls so far, in order.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[Operator] = []
        self._storages = StorageTracker()
        self._modules = ModulePathTracker()
        self._untraced: dict[int, ByteRangeSet] = {}
        self._arguments: tuple[int, ...] = ()
        self._depth = 0

    def set_arguments(self, arguments: Any) -> None:
        """Declare the program's arguments before it runs."""
        storages = [self._storages.find(tensor, is_allocated=False)[0] for tensor in tensor_leaves(arguments)]
        self._arguments = tuple(dict.fromkeys(storage.storage_id for storage in storages))

    def __enter__(self) -> CountingMode:
        if self._depth == 0:
            self._modules.attach()
        self._depth += 1
        super().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self._depth -= 1
        if self._depth == 0:
            self._modules.detach()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if self._should_decompose(func):
            with self:
                return func.decompose(*args, **kwargs)
        call = OperatorCall.bind(func, args, kwargs)
        reads = find_reads(call, self._storages)
        result = func(*args, **kwargs)
        call.outputs = tensors_in(result)
        self.operators.append(self._record_operator(call, reads))
        return result

    def _should_decompose(self, func: Any) -> bool:
        """Whether it is a composite that autograd would decompose; in inference mode it arrives undecomposed."""
        signature = get_schema(func)
        return signature.is_composite and (signature.namespace == "aten" or signature.key not in FORMULAS)

    def _record_operator(self, call: OperatorCall, reads: list[MemoryAccess]) -> Operator:
        """Record a call that has just run."""
        writes, allocated_bytes = find_writes(call, self._storages)
        formula = formula_of(call)
        if _is_metadata_only(call, formula, writes):
            reads, writes, formula = [], [], VIEW_FORMULA
        known = formula is not None and (
            formula is VIEW_FORMULA or not any(map(_is_opaque, (*call.inputs, *call.outputs)))
        )
        reads = [narrow_to_indexed(call, access) for access in reads]
        writes = [narrow_to_indexed(call, access) for access in writes]
        self._record_accesses(reads, writes)
        read_spans, write_spans = _merge_spans(reads), _merge_spans(writes)
        flops = _evaluate_flops(formula, call) if formula is not None and known else {}
        return Operator(
            index=len(self.operators),
            name=call.schema.name,
            kind=formula.kind if formula is not None else "other",
            flops_known=known and flops is not None,
            work=Work(
                flops=flops or {},
                bytes_read=input_passes(call) * _touched_bytes(read_spans),
                bytes_written=_touched_bytes(write_spans),
            ),
            shapes=call.describe_shapes(),
            module=self._modules.current,
            reads=tuple(dict.fromkeys(access.storage.storage_id for access in reads)),
            writes=tuple(dict.fromkeys(access.storage.storage_id for access in writes)),
            read_spans=read_spans,
            write_spans=write_spans,
            allocated_bytes=allocated_bytes,
        )

    def _record_accesses(self, reads: list[MemoryAccess], writes: list[MemoryAccess]) -> None:
        written_ids = {access.storage.storage_id for access in writes}
        for access in reads:
            storage = access.storage
            storage.record_read(access.byte_range)
            if storage.is_allocated and storage.is_unwritten and storage.storage_id not in written_ids:
                self._untraced.setdefault(storage.storage_id, ByteRangeSet()).add(access.byte_range)
        for access in writes:
            access.storage.written.add(access.byte_range)

    def _untraced_bytes(self, outputs: OutputRanges) -> int:
        """Bytes that the program read or returned and that were written by code outside torch.

        Data from NumPy or a list counts only if it is returned; if it is only read, it may be a constant.
        """
        returned = {number: visible for number, (storage, visible) in outputs.items() if storage.is_unwritten}
        return sum(regions.touched_bytes for regions in (self._untraced | returned).values())

    def finish(self, outputs: Any = None) -> ProgramWork:
        """The work of all calls so far.

        Args:
            outputs: what the program returns, a tensor or a tree of them. Without it, every allocation of the program
                that is still alive counts as output, as for code that is still running.
        """
        return self._finish(self._find_outputs(outputs), include_live=outputs is None)

    def _find_outputs(self, tree: Any) -> OutputRanges:
        ranges: OutputRanges = {}
        for tensor in filter(lambda leaf: isinstance(leaf, torch.Tensor), pytree.tree_leaves(tree)):
            storage, _ = self._storages.find(tensor, is_allocated=False)
            ranges.setdefault(storage.storage_id, (storage, ByteRangeSet()))[1].add(tensor_byte_range(tensor, storage))
        return ranges

    def _finish(self, outputs: OutputRanges, include_live: bool) -> ProgramWork:
        before = self._storages.input_traffic()
        allocated = {number: pair for number, pair in outputs.items() if pair[0].is_allocated}
        written = sum(min(s.written.touched_bytes, visible.touched_bytes) for s, visible in allocated.values())
        live = [s for s in self._storages.live_allocations() if s.storage_id not in allocated] if include_live else []
        written += sum(storage.written.touched_bytes for storage in live)
        as_written = _sum_work(self.operators)
        return ProgramWork(
            operators=tuple(self.operators),
            as_written=as_written,
            fused=Work(
                flops=as_written.flops,
                bytes_read=before.bytes_read,
                bytes_written=before.bytes_written + written,
            ),
            coverage=_coverage(self.operators, self._untraced_bytes(outputs)),
            output_bytes=sum(storage.bytes for storage, _ in allocated.values()),
            inputs=tuple(self._storages.inputs),
            arguments=self._arguments,
            outputs=tuple(sorted({*outputs, *(s.storage_id for s in live), *before.mutated})),
        )


def _is_metadata_only(call: OperatorCall, formula: Formula | None, writes: list[MemoryAccess]) -> bool:
    """Whether a call moves no data: it allocates, inspects, or returns its input, as a view or no-op `contiguous`."""
    if (formula is not None and formula.kind == "view") or call.schema.namespace in ("profiler", "prim"):
        return True
    return bool(call.outputs) and not writes


def _evaluate_flops(formula: Formula, call: OperatorCall) -> dict[str, int] | None:
    """FLOPs of a call; None if the formula does not fit it. Counting must not break a program that runs."""
    try:
        return formula.flops(call)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None


def _is_opaque(tensor: torch.Tensor) -> bool:
    """Whether a tensor's shape does not determine the number of stored elements: sparse, nested, quantised."""
    return tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized


def _merge_spans(accesses: list[MemoryAccess]) -> tuple[Span, ...]:
    """Disjoint spans: storage number, first byte, end, bytes touched between."""
    if len({access.storage.storage_id for access in accesses}) == len(accesses):
        return tuple((a.storage.storage_id, *a.byte_range[:3]) for a in accesses if a.byte_range.touched_bytes)
    union: dict[int, ByteRangeSet] = {}
    for access in accesses:
        union.setdefault(access.storage.storage_id, ByteRangeSet()).add(access.byte_range)
    return tuple(
        (number, p.start, p.end, p.touched_bytes)
        for number, regions in union.items()
        for p in regions.disjoint_ranges()
    )


def _touched_bytes(spans: tuple[Span, ...]) -> int:
    return sum(touched for _, _, _, touched in spans)


def _sum_work(operators: list[Operator]) -> Work:
    flops: dict[str, int] = {}
    for operator in operators:
        for unit, amount in operator.work.flops.items():
            flops[unit] = flops.get(unit, 0) + amount
    return Work(
        flops=flops,
        bytes_read=sum(operator.work.bytes_read for operator in operators),
        bytes_written=sum(operator.work.bytes_written for operator in operators),
    )


def _coverage(operators: list[Operator], untraced_bytes: int) -> float:
    moved = sum(operator.work.total_bytes for operator in operators) + untraced_bytes
    known = sum(operator.work.total_bytes for operator in operators if operator.flops_known)
    return known / moved if moved else 1.0
