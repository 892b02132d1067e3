"""Names of values and tensors that C++, our headers or the printed loops do not take already."""

from __future__ import annotations

import re
from functools import cache

import msgspec

from kernelwright.compiler.cpp.prelude import read_headers
from kernelwright.compiler.regions.region import Region, Step

_KEYWORDS = """alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept const
consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default delete do double
dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable namespace new
noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires return short
signed sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef typeid
typename union unsigned using virtual void volatile wchar_t while xor xor_eq std INFINITY NAN main"""
_LOOP_VARIABLES = "row task part low high first last u V T"
_DECLARED = re.compile(r"\b(?:struct|using|define|constexpr \w+)\s+(\w+)|(\w+)\((?:[^()]|\([^()]*\))*\)\s*\{")
_AXIS = re.compile(r"[ir]\d+")


def rename_reserved(region: Region) -> Region:
    """The same region; a name that is taken gets an underscore at its end."""

    def free(name: str) -> str:
        return f"{name}_" if name in _reserved_names() or _AXIS.fullmatch(name) else name

    def step(given: object) -> object:
        if not isinstance(given, Step):
            return msgspec.structs.replace(given, value=free(given.value), arg=free(given.arg))  # type: ignore
        args = given.args if given.op == "index" else tuple(free(a) if isinstance(a, str) else a for a in given.args)
        return msgspec.structs.replace(given, value=free(given.value), args=args)

    return msgspec.structs.replace(
        region,
        loads=tuple(
            msgspec.structs.replace(load, value=free(load.value), buffer=free(load.buffer)) for load in region.loads
        ),
        steps=tuple(step(given) for given in region.steps),
        stores=tuple(msgspec.structs.replace(store, value=free(store.value)) for store in region.stores),
    )


@cache
def _reserved_names() -> frozenset[str]:
    declared = {name for found in _DECLARED.findall(read_headers()) for name in found if name}
    return frozenset((*_KEYWORDS.split(), *_LOOP_VARIABLES.split(), *declared))
