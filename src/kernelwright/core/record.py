"""The base of all records: immutable, typed, with the unit in each name, the same in Python and in JSON.

A number that was not measured is None, never 0. Times are microseconds.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kernelwright.core import renderers


def require(condition: bool, message: str) -> None:
    """Refuse a record in an impossible state.

    Raises:
        ValueError: `condition` is false; decoding a document then raises a ValidationError.
    """
    if not condition:
        raise ValueError(message)


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all records. `print` and notebooks render a record if `report` has been imported."""

    def __str__(self) -> str:
        return renderers.render_record("text", self) or repr(self)

    def _repr_html_(self) -> str | None:
        return renderers.render_record("html", self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))
