"""Renames values and tensors whose names are reserved by C++, the headers or the emitted loops."""

from __future__ import annotations

import re
from functools import cache

import msgspec

from kernelwright.compiler.cpp.prelude import read_headers
from kernelwright.compiler.regions.region import Reduction, Region, Scan, Step

_KEYWORDS = """alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept const
consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default delete do double
dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable namespace new
noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires return short
signed sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef typeid
typename union unsigned using virtual void volatile wchar_t while xor xor_eq std INFINITY NAN main"""
_LOOP_VARIABLES = "row task split lane_begin lane_end split_begin split_end unroll V T"
_DECLARED = re.compile(r"\b(?:struct|using|define|constexpr \w+)\s+(\w+)|(\w+)\((?:[^()]|\([^()]*\))*\)\s*\{")
_AXIS = re.compile(r"[ir]\d+")


def rename_reserved(region: Region) -> Region:
    """The region with an underscore appended to each reserved name."""

    def rename(name: str) -> str:
        return f"{name}_" if name in _reserved_names() or _AXIS.fullmatch(name) else name

    def rename_step(step: Step | Reduction | Scan) -> Step | Reduction | Scan:
        if not isinstance(step, Step):
            return msgspec.structs.replace(step, value=rename(step.value), arg=rename(step.arg))
        args = step.args if step.op == "index" else tuple(rename(a) if isinstance(a, str) else a for a in step.args)
        return msgspec.structs.replace(step, value=rename(step.value), args=args)

    return msgspec.structs.replace(
        region,
        loads=tuple(
            msgspec.structs.replace(load, value=rename(load.value), buffer=rename(load.buffer)) for load in region.loads
        ),
        steps=tuple(rename_step(step) for step in region.steps),
        stores=tuple(msgspec.structs.replace(store, value=rename(store.value)) for store in region.stores),
    )


@cache
def _reserved_names() -> frozenset[str]:
    declared = {name for groups in _DECLARED.findall(read_headers()) for name in groups if name}
    return frozenset((*_KEYWORDS.split(), *_LOOP_VARIABLES.split(), *declared))
