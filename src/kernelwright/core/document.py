"""The JSON document that every verb prints: a record in an envelope. Encoding and decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from kernelwright.core.commands import add_options, split_commands
from kernelwright.core.errors import InternalError, KernelwrightError, UsageError

SCHEMA_VERSION = 2
STATUSES = ("ok", "finding", "error")
T = TypeVar("T")


def build_document(
    verb: str, record: msgspec.Struct | dict[str, Any], *, status: str = "ok", next: Sequence[str] = ()
) -> dict:
    """Return the record's fields with the envelope's `schema`, `verb`, `status`, `next`, `advice`.

    Args:
        next: next steps. Commands that run unchanged go to the envelope's `next`, sentences to its `advice`.
    Raises:
        ValueError: unknown status, or a field of the record has the name of an envelope field.
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
        raise ValueError(f"unknown status {status!r}; expected one of {', '.join(STATUSES)}")
    if clashes := envelope.keys() & fields.keys():
        raise ValueError(f"record fields clash with the envelope: {', '.join(sorted(clashes))}")
    return envelope | fields


def build_error_document(verb: str, error: KernelwrightError, command: Sequence[str] = ()) -> dict:
    """Return the document of a verb that failed. Its `next` always has a command, by default the verb's help.

    Args:
        command: the words of the command that failed. If the error's next step is an option such as `--device cpu`,
            `next` holds the same command with that option.
    """
    fields = {"code": error.code, "message": error.message, "where": error.where}
    steps = error.next.splitlines() if error.next != KernelwrightError.default_next else []
    if corrected := add_options(command, error.next):
        steps = [corrected]
    elif isinstance(error, InternalError):
        steps = [add_options(command, "--debug") or "", *steps]
    elif not split_commands(steps)[0]:
        steps = ["kw --help" if verb == "kw" else f"kw {verb} --help", *steps]
    return build_document(verb, {"error": fields}, status="error", next=steps)


def encode(doc: dict | msgspec.Struct) -> str:
    """Encode as indented JSON without a trailing newline; NaN and infinity become null."""
    return msgspec.json.format(msgspec.json.encode(doc), indent=2).decode()


def decode(text: str | bytes, record: type[T]) -> T:
    """Decode the record of a document that `encode` wrote.

    Raises:
        UsageError: invalid JSON, another schema version, or fields that do not match the record.
    """
    try:
        fields = msgspec.json.decode(text, type=dict[str, Any])
        schema = fields.pop("schema", None)
        if not isinstance(schema, dict) or schema.get("version") != SCHEMA_VERSION:
            raise UsageError(
                f"schema {schema!r} is not version {SCHEMA_VERSION}",
                next="write the document again with this version of kw",
            )
        for name in ("verb", "status", "next", "advice"):
            fields.pop(name, None)
        return msgspec.convert(fields, type=record)
    except msgspec.MsgspecError as error:
        raise UsageError(f"not a {record.__name__} document: {error}") from error
