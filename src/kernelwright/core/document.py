"""The one JSON document that every verb prints: an envelope around a record, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from kernelwright.core.commands import add_options, split_commands
from kernelwright.core.errors import InternalError, KernelwrightError, UsageError

SCHEMA_VERSION = 1
STATUSES = ("ok", "finding", "error")
T = TypeVar("T")


def build_document(
    verb: str, record: msgspec.Struct | dict[str, Any], *, status: str = "ok", next: Sequence[str] = ()
) -> dict:
    """The record's fields inside the envelope `schema`, `verb`, `status`, `next`, `advice`.

    Args:
        next: what to do now. Commands that run as they stand are in the envelope's `next`, sentences in its `advice`.
    Raises:
        ValueError: a field of the record would hide one of the envelope.
    """
    fields = msgspec.to_builtins(record)
    commands, advice = split_commands(next)
    envelope = {
        "schema": {"name": f"kernelwright.{verb}", "version": SCHEMA_VERSION},
        "verb": verb,
        "status": status,
        "next": commands,
        "advice": advice,
    }
    if status not in STATUSES:
        raise ValueError(f"no status {status!r}; there are {', '.join(STATUSES)}")
    if hidden := envelope.keys() & fields.keys():
        raise ValueError(f"the record's {', '.join(sorted(hidden))} would hide the envelope's")
    return envelope | fields


def build_error_document(verb: str, error: KernelwrightError, command: Sequence[str] = ()) -> dict:
    """The document of a verb that could not answer. Its `next` has a command, the verb's help at least.

    Args:
        command: the words of the command that failed; an error whose next step is an option, such as
            `--device cpu`, names the same command with it.
    """
    fault = {"code": error.code, "message": error.message, "where": error.where}
    steps = error.next.splitlines() if error.next != KernelwrightError.default_next else []
    if again := add_options(command, error.next):
        steps = [again]
    elif isinstance(error, InternalError):
        steps = [add_options(command, "--debug") or "", *steps]
    elif not split_commands(steps)[0]:
        steps = ["kw --help" if verb == "kw" else f"kw {verb} --help", *steps]
    return build_document(verb, {"error": fault}, status="error", next=steps)


def encode(doc: dict | msgspec.Struct) -> str:
    """JSON with sorted indentation, ending without a newline; NaN and infinity become null."""
    return msgspec.json.format(msgspec.json.encode(doc), indent=2).decode()


def decode(text: str | bytes, record: type[T]) -> T:
    """The record inside a document that `encode` wrote.

    Raises:
        UsageError: not JSON, another schema version, or fields that do not fit the record.
    """
    try:
        fields = msgspec.json.decode(text, type=dict[str, Any])
        schema = fields.pop("schema", None)
        if not isinstance(schema, dict) or schema.get("version") != SCHEMA_VERSION:
            raise UsageError(f"schema {schema!r} is not version {SCHEMA_VERSION}", next="write it again with this kw")
        for name in ("verb", "status", "next", "advice"):
            fields.pop(name, None)
        return msgspec.convert(fields, type=record)
    except msgspec.MsgspecError as fault:
        raise UsageError(f"not a document of {record.__name__}: {fault}") from fault
