"""Records that tie a measured result to the sources behind it, and the check that they still belong together.

`evidence/<machine>/regimes/<example>.json` holds the diagnosis of one example with its moves, predicted and made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from kernelwright.core.document import decode, document, encode
from kernelwright.core.errors import NotFoundError
from kernelwright.core.progress import stage
from kernelwright.core.records import EvidenceRecord, EvidenceReport
from kernelwright.core.units import percent_text, time_text
from kernelwright.diagnose import why
from kernelwright.judge.moves import make_moves, maker
from kernelwright.judge.sources import hashes, import_closure, label, located, source_hash
from kernelwright.machine import machine

EXAMPLES = "examples"
MARK = "<!-- below: written by kw evidence table -->"
REGIME_ROOTS = ("kernelwright.diagnose.why", "kernelwright.judge.moves", "kernelwright.sandbox.nursery")
"""Where a record's numbers come from; the nursery is the process in which moves are timed, and starts by its name."""


def record(names: Sequence[str], *, device: str, folder: str = "evidence") -> EvidenceReport:
    """Diagnoses examples on this machine, makes their moves, writes one record each.

    Raises:
        NotFoundError: no example of that name beside the evidence folder.
    """
    root = Path(folder).resolve().parent
    examples, written = _examples(root, names), []
    machine(device, remeasure=True)  # ceilings that were measured on a busy box would stand in every record
    for path in examples:
        stage(f"evidence for {path.stem}")
        found = why(str(path), device=device)
        sources = [path, *import_closure(*REGIME_ROOTS)]
        sources += [Path(by) for move in found.moves if (by := maker(move, path, device)) and Path(by).exists()]
        entry = EvidenceRecord(
            kind="regimes",
            name=path.stem,
            state="measured",
            device="cuda" if device == "cuda" else "cpu",
            machine=found.machine.name,
            date=datetime.now(UTC).date().isoformat(),
            software=found.machine.software,
            sources=hashes(sources, root),
            diagnosis=found,
            moves=tuple(make_moves(path, found, device)),
        )
        target = Path(folder) / _slug(found.machine.name) / entry.kind / f"{entry.name}.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(encode(document("evidence", entry)) + "\n", encoding="utf-8")
        written.append(str(target))
    return EvidenceReport(records=tuple(written))


def check(folder: str = "evidence") -> EvidenceReport:
    """Compares every record with the sources as they are now.

    A record is stale when a source changed, went missing, or joined the import closure since.

    Raises:
        NotFoundError: there are no records, so nothing was checked.
    """
    root, stale, pending = Path(folder).resolve().parent, [], []
    if not (paths := sorted(Path(folder).glob("*/*/*.json"))):
        raise NotFoundError(f"no records in {folder}", next="kw evidence check --folder DIR, or kw evidence record")
    closure = {label(path, root): path for path in import_closure(*REGIME_ROOTS)}
    for path in paths:
        entry = load(path)
        if entry.state == "pending":
            pending.append(str(path))
        elif changed := _changed(entry, closure, root):
            stale.append(f"{path}: {', '.join(changed)}")
    return EvidenceReport(records=tuple(map(str, paths)), stale=tuple(stale), pending=tuple(pending))


def load(path: Path) -> EvidenceRecord:
    """One record from its file."""
    return decode(path.read_bytes(), EvidenceRecord)


def regimes_table(folder: str = "evidence") -> str:
    """Every example on every machine that was measured, and every move predicted and made, as two Markdown tables."""
    entries = [load(path) for path in sorted(Path(folder).glob("*/regimes/*.json"))]
    rows = ["| machine | example | regime | time | fused floor | in words |", "|---|---|---|---|---|---|"]
    for entry in entries:
        found = entry.diagnosis
        if found is None or found.time_us is None:
            rows.append(f"| {entry.machine} | {entry.name} | pending | | | {'; '.join(entry.notes)} |")
            continue
        words = found.sentence.partition(": ")[2]
        floor_text = time_text(found.floors.fused_us)
        rows.append(
            f"| {entry.machine} | {entry.name} | {found.regime} | {time_text(found.time_us)} | {floor_text} | {words} |"
        )
    outcomes = [(entry, move) for entry in entries for move in entry.moves]
    rows += [
        "",
        "| machine | example | move | before | predicted | achieved | off by | made by |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for entry, move in outcomes:
        times = " | ".join(map(time_text, (move.before_us, move.predicted_us, move.achieved_us)))
        rows.append(
            f"| {entry.machine} | {entry.name} | {move.kind} | {times} | {percent_text(move.error)} | {move.made_by} |"
        )
    if outcomes:
        typical = median(move.error for _, move in outcomes)
        rows += ["", f"Median error of {len(outcomes)} predictions: {percent_text(typical)}."]
    return "\n".join(rows) + "\n"


def write_table(folder: str, page: str) -> None:
    """Replaces everything below `MARK` in a page by the table.

    Raises:
        NotFoundError: no such page, or no such line in it.
    """
    path = Path(page)
    if not path.exists() or MARK not in (text := path.read_text(encoding="utf-8")):
        raise NotFoundError(f"no page {page!r} with the line {MARK}", next="kw evidence table --into docs/regimes.md")
    path.write_text(text.partition(MARK)[0] + MARK + "\n\n" + regimes_table(folder), encoding="utf-8")


def _changed(entry: EvidenceRecord, closure: dict[str, Path], root: Path) -> list[str]:
    now = {name: located(name, root) for name in entry.sources} | closure
    return [n for n, p in sorted(now.items()) if not p.exists() or entry.sources.get(n) != source_hash(p)]


def _examples(root: Path, names: Sequence[str]) -> list[Path]:
    there = {p.stem: p for p in sorted((root / EXAMPLES).glob("*.py")) if "def get_inputs" in p.read_text()}
    if unknown := [name for name in names if name not in there]:
        raise NotFoundError(f"no example {unknown[0]!r}", next=f"there are {', '.join(there)}")
    return [there[name] for name in names or there]


def _slug(machine: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", machine.lower()).strip("-")
