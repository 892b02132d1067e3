"""Rows on disk: `evidence/<machine>/<kind>.jsonl`, one row per line, sorted."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from kernelwright.core.cache import write_atomic
from kernelwright.core.errors import NotFoundError, UsageError
from kernelwright.core.evidence import EvidenceRow
from kernelwright.evidence.source_digests import machine_slug

DEFAULT_FOLDER = "evidence"
COMMIT_VARIABLE = "KERNELWRIGHT_COMMIT"
"""Environment variable with the commit, for sources that are copied without their repository."""


def read_rows(folder: str = DEFAULT_FOLDER, kind: str = "*") -> list[EvidenceRow]:
    """All rows of one kind, or of all kinds.

    Raises:
        UsageError: a line is not a row.
    """
    return [row for path in sorted(Path(folder).glob(f"*/{kind}.jsonl")) for row in _read_file(path)]


def require_rows(folder: str) -> list[EvidenceRow]:
    """All rows of a folder.

    Raises:
        NotFoundError: there are none.
    """
    if rows := read_rows(folder):
        return rows
    raise NotFoundError(f"no rows in {folder}", next="use a folder with rows (--folder DIR), or: kw evidence record")


def write_rows(rows: Iterable[EvidenceRow], folder: str = DEFAULT_FOLDER) -> None:
    """Write rows to their files, replacing rows with the same key."""
    files: dict[Path, list[EvidenceRow]] = {}
    for row in rows:
        files.setdefault(Path(folder) / machine_slug(row.machine) / f"{row.kind}.jsonl", []).append(row)
    for path, new_rows in files.items():
        known = {row.key: row for row in (_read_file(path) if path.exists() else [])} | {
            row.key: row for row in new_rows
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (msgspec.json.encode(known[key]) for key in sorted(known))
        write_atomic(path, b"\n".join(lines) + b"\n")


def current_commit(root: Path) -> str:
    """The commit of a working tree, with a `+` suffix if its sources have uncommitted changes."""
    if commit := os.environ.get(COMMIT_VARIABLE):
        return commit
    git = ["git", "-C", str(root)]
    try:
        commit = subprocess.run([*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "status", "--porcelain", "src", "examples"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return commit.stdout.strip() + "+" * bool(changed.stdout)


def current_date() -> str:
    """Today's date in UTC, ISO format."""
    return datetime.now(UTC).date().isoformat()


def _read_file(path: Path) -> list[EvidenceRow]:
    try:
        return [msgspec.json.decode(line, type=EvidenceRow) for line in path.read_bytes().splitlines() if line.strip()]
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} contains a line that is not a row of evidence: {error}", where=str(path)) from error
