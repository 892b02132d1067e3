"""What the library of kernels holds, as `kw kernels` lists it."""

from __future__ import annotations

from kernelwright.core.records import Record


class LibraryKernel(Record, frozen=True, kw_only=True):
    """One kernel for people who call it.

    Attributes:
        call: where it is imported from.
        variants: what of it compiles by itself: `kw sass kernels/NAME:VARIANT`.
        dtypes: of its tensors.
        limits: what it does not take.
        evidence: the record behind its speed; empty where it was not measured yet.
    """

    name: str
    about: str
    call: str
    variants: tuple[str, ...]
    dtypes: tuple[str, ...]
    limits: str
    source: str
    evidence: str = ""


class Library(Record, frozen=True, kw_only=True):
    """All of them."""

    kernels: tuple[LibraryKernel, ...]
