"""Counts what a program does, call by call, below autograd, from metadata only: no values, no device work, no clock."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.core.pytree import tensors
from kernelwright.core.records import Operator, ProgramWork, Work
from kernelwright.work.calls import Call, signature_of, tensors_in
from kernelwright.work.formulas import FORMULAS, Formula, formula_of
from kernelwright.work.modules import ModulePaths
from kernelwright.work.regions import RegionSet
from kernelwright.work.storages import Storage, Storages, region
from kernelwright.work.traffic import Access, narrowed, passes_over, reads_of, writes_of

Span = tuple[int, int, int, int]
Outputs = dict[int, tuple[Storage, RegionSet]]
VIEW = Formula("view", lambda call: 0)


def count(program: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> ProgramWork:
    """The work of one run of a program: forward, backward, optimizer, whatever it calls; on any device, fake ones too.

    Outputs are what it returns and what it leaves behind: gradients, optimizer state, a cache that it filled.

    Args:
        program: runs once, is never timed, and its result is thrown away.
    """
    mode = CountingMode()
    mode.called_with((args, kwargs))
    with _eager(), mode:
        result = program(*args, **(kwargs or {}))
    outputs = mode._outputs(result)
    del result  # with it goes what only its autograd graph kept alive; what stays is kept by somebody else
    if any(storage.number not in outputs for storage in mode._storages.fresh_and_alive()):
        gc.collect()
    return mode._finish(outputs, left_behind=True)


def _eager() -> contextlib.AbstractContextManager[object]:
    """Compiled parts run eagerly: torch does not compile under a mode, and refuses where a full graph is demanded. The
    compiler takes seconds to import; where it is not loaded, no part is compiled."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else contextlib.nullcontext()


class CountingMode(TorchDispatchMode):
    """Counts every call inside `with`, as code runs; each call goes on exactly once, to the next mode or to torch.

    Attributes:
        operators: the calls so far, in order.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[Operator] = []
        self._storages = Storages()
        self._modules = ModulePaths()
        self._unseen: dict[int, RegionSet] = {}
        self._arguments: tuple[int, ...] = ()
        self._depth = 0

    def called_with(self, arguments: Any) -> None:
        """Says which storages are the program's arguments, before it runs."""
        found = [self._storages.find(tensor, fresh=False)[0].number for tensor in tensors(arguments)]
        self._arguments = tuple(dict.fromkeys(found))

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
        if self._splits(func):
            with self:
                return func.decompose(*args, **kwargs)
        call = Call.bind(func, args, kwargs)
        reads = reads_of(call, self._storages)
        result = func(*args, **kwargs)
        call.outputs = tensors_in(result)
        self.operators.append(self._operator(call, reads))
        return result

    def _splits(self, func: Any) -> bool:
        """Whether it is a composite that autograd would have taken apart; without it (inference) it arrives whole."""
        signature = signature_of(func)
        return signature.composite and (signature.namespace == "aten" or signature.key not in FORMULAS)

    def _operator(self, call: Call, reads: list[Access]) -> Operator:
        """The record of a call that has just run."""
        writes, fresh_bytes = writes_of(call, self._storages)
        formula = formula_of(call)
        if _moves_nothing(call, formula, writes):
            reads, writes, formula = [], [], VIEW
        known = formula is not None and (formula is VIEW or not any(map(_is_opaque, (*call.inputs, *call.outputs))))
        reads = [narrowed(call, access) for access in reads]
        writes = [narrowed(call, access) for access in writes]
        self._note(reads, writes)
        read_spans, write_spans = _spans(reads), _spans(writes)
        flops = _flops(formula, call) if formula is not None and known else {}
        return Operator(
            index=len(self.operators),
            name=call.signature.name,
            kind=formula.kind if formula is not None else "other",
            known=known and flops is not None,
            work=Work(
                flops=flops or {}, bytes_read=passes_over(call) * _bytes(read_spans), bytes_written=_bytes(write_spans)
            ),
            shapes=call.shapes(),
            module=self._modules.current,
            reads=tuple(dict.fromkeys(access.storage.number for access in reads)),
            writes=tuple(dict.fromkeys(access.storage.number for access in writes)),
            read_spans=read_spans,
            write_spans=write_spans,
            fresh_bytes=fresh_bytes,
        )

    def _note(self, reads: list[Access], writes: list[Access]) -> None:
        changed = {access.storage.number for access in writes}
        for access in reads:
            access.storage.note_read(access.region)
            if access.storage.fresh and access.storage.blank and access.storage.number not in changed:
                self._unseen.setdefault(access.storage.number, RegionSet()).add(access.region)
        for access in writes:
            access.storage.written.add(access.region)

    def _unseen_bytes(self, outputs: Outputs) -> int:
        """Bytes that the program read or returned, and that code must have made which torch cannot see.

        What came from NumPy or a list counts only when it is returned: read, it may as well be a constant.
        """
        returned = {number: shown for number, (storage, shown) in outputs.items() if storage.blank}
        return sum(regions.touched for regions in (self._unseen | returned).values())

    def finish(self, outputs: Any = None) -> ProgramWork:
        """The work of all calls so far.

        Args:
            outputs: what the program returns, a tensor or any tree of them. Without it everything that the program
                allocated and that is still alive counts as output, as for code that is still running.
        """
        return self._finish(self._outputs(outputs), left_behind=outputs is None)

    def _outputs(self, tree: Any) -> Outputs:
        found: Outputs = {}
        for tensor in filter(lambda leaf: isinstance(leaf, torch.Tensor), pytree.tree_leaves(tree)):
            storage, _ = self._storages.find(tensor, fresh=False)
            found.setdefault(storage.number, (storage, RegionSet()))[1].add(region(tensor, storage))
        return found

    def _finish(self, outputs: Outputs, left_behind: bool) -> ProgramWork:
        before = self._storages.input_traffic()
        fresh = {number: pair for number, pair in outputs.items() if pair[0].fresh}
        written = sum(min(storage.written.touched, shown.touched) for storage, shown in fresh.values())
        kept = [s for s in self._storages.fresh_and_alive() if s.number not in fresh] if left_behind else []
        written += sum(storage.written.touched for storage in kept)
        as_written = _total(self.operators)
        return ProgramWork(
            operators=tuple(self.operators),
            as_written=as_written,
            fused=Work(
                flops=as_written.flops,
                bytes_read=before.bytes_read,
                bytes_written=before.bytes_written + written,
            ),
            coverage=_coverage(self.operators, self._unseen_bytes(outputs)),
            output_bytes=sum(storage.bytes for storage, _ in fresh.values()),
            inputs=tuple(self._storages.inputs),
            arguments=self._arguments,
            outputs=tuple(sorted({*outputs, *(s.number for s in kept), *before.mutated})),
        )


def _moves_nothing(call: Call, formula: Formula | None, writes: list[Access]) -> bool:
    """Whether a call only allocates or looks, or gave back what it got: a view, a `contiguous` with nothing to do."""
    if (formula is not None and formula.kind == "view") or call.signature.namespace in ("profiler", "prim"):
        return True
    return bool(call.outputs) and not writes


def _flops(formula: Formula, call: Call) -> dict[str, int] | None:
    """FLOPs of a call; None where the formula does not fit it. Counting must not break a program that runs."""
    try:
        return formula.flops(call)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None


def _is_opaque(tensor: torch.Tensor) -> bool:
    """Whether a tensor's shape does not say how many numbers it holds: sparse, nested, quantised."""
    return tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized


def _spans(accesses: list[Access]) -> tuple[Span, ...]:
    """Each byte once: storage number, first byte, end, bytes touched between."""
    if len({access.storage.number for access in accesses}) == len(accesses):
        return tuple((a.storage.number, *a.region[:3]) for a in accesses if a.region.touched)
    union: dict[int, RegionSet] = {}
    for access in accesses:
        union.setdefault(access.storage.number, RegionSet()).add(access.region)
    return tuple((number, p.start, p.end, p.touched) for number, regions in union.items() for p in regions.parts())


def _bytes(spans: tuple[Span, ...]) -> int:
    return sum(touched for _, _, _, touched in spans)


def _total(operators: list[Operator]) -> Work:
    flops: dict[str, int] = {}
    for operator in operators:
        for unit, amount in operator.work.flops.items():
            flops[unit] = flops.get(unit, 0) + amount
    return Work(
        flops=flops,
        bytes_read=sum(operator.work.bytes_read for operator in operators),
        bytes_written=sum(operator.work.bytes_written for operator in operators),
    )


def _coverage(operators: list[Operator], unseen_bytes: int) -> float:
    moved = sum(operator.work.total_bytes for operator in operators) + unseen_bytes
    known = sum(operator.work.total_bytes for operator in operators if operator.known)
    return known / moved if moved else 1.0
