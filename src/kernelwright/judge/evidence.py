"""Records that tie a measured result to the sources behind it, and the check that they still belong together.

`evidence/<machine>/regimes/<example>.json` holds the diagnosis of one example with its moves, predicted and made;
`evidence/<machine>/optimize/<suite>.json` a suite of programs that `optimize.evidence` recorded;
`evidence/<machine>/fragments/fragments.json` what instructions and counters said of the layouts;
`evidence/<machine>/ladder/<ladder>.json` a climb;
`evidence/<machine>/kernel/<kernel>.json` a member of the library beside everybody else's;
`evidence/<machine>/judge/<device>.json` what the judge said of its corpus, round after round.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from kernelwright.core.corpus import CorpusRecord
from kernelwright.core.document import decode, document, encode
from kernelwright.core.errors import NotFoundError
from kernelwright.core.ladder import LadderRecord
from kernelwright.core.layout import FragmentRecord
from kernelwright.core.library import KernelRecord
from kernelwright.core.optimization import SuiteRecord
from kernelwright.core.progress import stage
from kernelwright.core.records import EvidenceRecord, EvidenceReport
from kernelwright.core.units import percent_text, time_text
from kernelwright.diagnose import why
from kernelwright.judge import corpus_record
from kernelwright.judge.ladder import climb
from kernelwright.judge.moves import make_moves, maker
from kernelwright.judge.rung_counts import LADDER, rung_counts
from kernelwright.judge.sources import (
    PACKAGE,
    hashes,
    headers_of,
    import_closure,
    is_beside,
    label,
    located,
    slug,
    source_hash,
)
from kernelwright.kernels.catalog import KERNELS, family_of, sample
from kernelwright.ladders import device_of, ladder_names, task_of
from kernelwright.machine import machine
from kernelwright.report import corpora, fragments, kernels, ladders, suite, waiting

EXAMPLES = "examples"
SUITE, OWN_SUITE = "examples/suite", "suite"
MARK = "<!-- below: written by kw evidence table -->"
END = "<!-- above: written by kw evidence table -->"
REGIME_ROOTS = ("kernelwright.diagnose.why", "kernelwright.judge.moves", "kernelwright.sandbox.nursery")
"""Where a record's numbers come from; the nursery is the process in which moves are timed, and starts by its name."""

SUITE_ROOTS = tuple(
    f"kernelwright.optimize.{name}" for name in ("graph.capture", "regions.plan", "generators", "tuning", "assemble")
)
"""What decides the kernels of the suite, by name: their room is above this one."""
PRINTERS = {"cpu": PACKAGE / "optimize" / "cpp", "cuda": PACKAGE / "optimize" / "triton"}
"""What prints them for a device, and for no other."""
FRAGMENT_ROOTS = ("kernelwright.judge.fragments", "kernelwright.judge.accesses")
LADDER_ROOTS = {
    "cuda": ("kernelwright.toolchain.cuda.launching", "kernelwright.measure.paired"),
    "cpu": ("kernelwright.toolchain.cpp", "kernelwright.measure.paired"),
}
"""What makes a rung run and times it; the rungs themselves are sources too."""
KERNEL_ROOTS = ("kernelwright.measure.paired", "kernelwright.kernels.workload")
"""What times a member of the library; its family's workloads, and with them its kernels, are sources too."""
KERNEL_HEADERS = PACKAGE / "kernels" / "rows"
PAGES = {
    "regimes": "docs/regimes.md",
    "optimize": "docs/optimize-suite.md",
    "fragments": "docs/fragments.md",
    "ladder": "docs/ladders.md",
    "kernel": "docs/kernels.md",
    "judge": "docs/corpus.md",
    "optimize summary": "README.md",
    "ladder summary": "README.md",
    "kernel summary": "README.md",
}
"""Every table with its page; all but the summaries are named as their kind of record."""
Entry = EvidenceRecord | SuiteRecord | FragmentRecord | LadderRecord | KernelRecord | CorpusRecord


RECORDS: dict[str, type[Entry]] = {
    "optimize": SuiteRecord,
    "fragments": FragmentRecord,
    "ladder": LadderRecord,
    "kernel": KernelRecord,
    "judge": CorpusRecord,
}


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
        written.append(_written(entry, folder))
    return EvidenceReport(records=tuple(written))


def record_fragments(*, folder: str = "evidence") -> EvidenceReport:
    """Asks this GPU's instructions and counters what the layouts say of them, and writes what came of it.

    Raises:
        DeviceError: no CUDA device here.
        MissingDependency: cuda-core or ncu is not installed.
    """
    from kernelwright.judge.accesses import access_outcomes
    from kernelwright.judge.fragments import device, outcomes

    name, software = device()
    entry = FragmentRecord(
        machine=name,
        date=datetime.now(UTC).date().isoformat(),
        software=software,
        sources=hashes(import_closure(*FRAGMENT_ROOTS), Path(folder).resolve().parent),
        fragments=tuple(outcomes()),
        accesses=tuple(access_outcomes()),
    )
    return EvidenceReport(records=(_written(entry, folder),))


def record_ladders(names: Sequence[str], *, device: str, folder: str = "evidence") -> EvidenceReport:
    """Climbs the ladders that stand on a device, or those that are named, and writes what came of it.

    Raises:
        NotFoundError: no such ladder.
    """
    root, written = Path(folder).resolve().parent, []
    for name in names or [name for name in ladder_names() if device_of(name) == device]:
        found = climb(name, device=device)
        entry = LadderRecord(
            kind="ladder",
            name=name,
            state="measured",
            device=found.machine.device,
            machine=found.machine.name,
            date=datetime.now(UTC).date().isoformat(),
            software=found.machine.software,
            sources=hashes(sources_of("ladder", name, root), root),
            climb=found,
            counts=tuple(rung_counts()) if name == LADDER and device == "cuda" else (),
        )
        written.append(_written(entry, folder))
    return EvidenceReport(records=tuple(written))


def record_kernels(names: Sequence[str], *, folder: str = "evidence") -> EvidenceReport:
    """Measures members of the library, or those that are named, beside everybody else's kernels on this GPU.

    Raises:
        NotFoundError: no such kernel. DeviceError: no CUDA device here.
    """
    from kernelwright.judge.fragments import device
    from kernelwright.judge.library import measure, workloads

    machine_name, software = device()
    root, written = Path(folder).resolve().parent, []
    for name in names or list(KERNELS):
        sample(name)
        entry = KernelRecord(
            kind="kernel",
            name=name,
            state="measured",
            device="cuda",
            machine=machine_name,
            date=datetime.now(UTC).date().isoformat(),
            software=software,
            sources=hashes(sources_of("kernel", name, root), root),
            rows=tuple(map(measure, workloads(name))),
        )
        written.append(_written(entry, folder))
    return EvidenceReport(records=tuple(written))


def record_corpus(*, device: str, rounds: int, workers: int, folder: str = "evidence") -> EvidenceReport:
    """Has this machine judge the corpus; a record that is there, of the same sources, counts these rounds too, each as
    soon as it is over.

    Raises:
        UsageError: fewer than one round or worker.
    """
    path = _target(folder, machine(device).name, "judge", device)
    root = Path(folder).resolve().parent
    for _ in range(max(rounds, 1)):
        earlier = load(path) if path.exists() else None
        known = earlier if isinstance(earlier, CorpusRecord) else None
        entry = corpus_record.made(known, device=device, rounds=min(rounds, 1), workers=workers, root=root)
        _written(entry, folder)
    return EvidenceReport(records=(str(path),))


def _target(folder: str, machine_name: str, kind: str, name: str) -> Path:
    return Path(folder) / slug(machine_name) / kind / f"{name}.json"


def _written(entry: Entry, folder: str) -> str:
    """The path of the file that now holds a record."""
    target = _target(folder, entry.machine, entry.kind, entry.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(encode(document("evidence", entry)) + "\n", encoding="utf-8")
    return str(target)


def check(folder: str = "evidence") -> EvidenceReport:
    """Compares every record with the sources as they are now.

    A record is stale when a source changed, went missing, or joined the import closure since.

    Raises:
        NotFoundError: there are no records, so nothing was checked.
    """
    root, stale, pending = Path(folder).resolve().parent, [], []
    if not (paths := sorted(Path(folder).glob("*/*/*.json"))):
        raise NotFoundError(
            f"no records in {folder}",
            next="name a folder with records (--folder DIR), or make some: kw evidence record",
        )
    closures: dict[tuple[str, ...], dict[str, Path]] = {}
    for path in paths:
        entry = load(path)
        named = entry.kind in ("ladder", "kernel", "judge") or entry.name == OWN_SUITE
        key = entry.kind, entry.name if named else "", entry.device
        if key not in closures:
            sources = sources_of(entry.kind, entry.name, root, entry.device)
            closures[key] = {label(source, root): source for source in sources}
        if entry.state == "pending":
            pending.append(str(path))
        elif changed := _changed(entry, closures[key], root):
            stale.append(f"{path}: {', '.join(changed)}")
    return EvidenceReport(records=tuple(map(str, paths)), stale=tuple(stale), pending=tuple(pending))


def load(path: Path) -> Entry:
    """One record from its file; the folder that it lies in is its kind."""
    return decode(path.read_bytes(), RECORDS.get(path.parent.name, EvidenceRecord))


def sources_of(kind: str, name: str, root: Path, device: str = "") -> list[Path]:
    """What every record of a kind hangs on, here and now; that of our own suite on its programs as well, and of any on
    what prints kernels for its device alone."""
    if kind == "judge":
        return corpus_record.corpus_sources(name)
    if kind == "ladder":
        folder = task_of(name).parent
        rungs = sorted(path for path in folder.iterdir() if path.is_file())
        return [*import_closure(*LADDER_ROOTS[device_of(name)]), *rungs, *headers_of(rungs, folder)]
    if kind == "kernel":
        modules = import_closure(*KERNEL_ROOTS, family_of(name) + ".workloads")
        cuda = sorted({path for one in modules for path in one.parent.glob("*.cu")})
        return [*modules, *cuda, *headers_of(cuda, KERNEL_HEADERS)]
    if kind != "optimize":
        return list(import_closure(*(FRAGMENT_ROOTS if kind == "fragments" else REGIME_ROOTS)))
    own = sorted((root / SUITE).glob("*.py")) if name == OWN_SUITE else []
    others = [folder for other, folder in PRINTERS.items() if device not in ("", other)]
    shared = [path for path in import_closure(*SUITE_ROOTS) if path.parent not in others]
    return [*shared, PACKAGE / "optimize" / "suite.py", *own]


def regimes_table(folder: str = "evidence") -> str:
    """Every example on every machine that was measured, and every move predicted and made, as two Markdown tables."""
    regimes = [entry for entry in entries(folder, "regimes") if isinstance(entry, EvidenceRecord)]
    rows = ["| machine | example | regime | time | fused floor | in words |", "|---|---|---|---|---|---|"]
    for entry in regimes:
        found = entry.diagnosis
        if found is None or found.time_us is None:
            rows.append(f"| {entry.machine} | {entry.name} | pending | | | {'; '.join(entry.notes)} |")
            continue
        words = found.sentence.partition(": ")[2]
        floor_text = time_text(found.floors.fused_us)
        rows.append(
            f"| {entry.machine} | {entry.name} | {found.regime} | {time_text(found.time_us)} | {floor_text} | {words} |"
        )
    rows += waiting.paragraphs(entry for entry in regimes if entry.diagnosis)
    outcomes = [(entry, move) for entry in regimes for move in entry.moves]
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


def suite_page(folder: str = "evidence") -> str:
    """The suite on every machine that was measured: a summary and a table of all programs."""
    return suite.markdown(entry for entry in entries(folder, "optimize") if isinstance(entry, SuiteRecord))


def suite_summary(folder: str = "evidence") -> str:
    """The suites of the README: each machine's in one row."""
    return suite.brief(entry for entry in entries(folder, "optimize") if isinstance(entry, SuiteRecord))


def fragments_page(folder: str = "evidence") -> str:
    """What instructions and counters said of the layouts, on every machine that was asked."""
    return fragments.markdown(entry for entry in entries(folder, "fragments") if isinstance(entry, FragmentRecord))


def ladders_page(folder: str = "evidence") -> str:
    """Every ladder on every machine on which it was climbed."""
    return ladders.markdown(one for one in entries(folder, "ladder") if isinstance(one, LadderRecord))


def ladder_summary(folder: str = "evidence") -> str:
    """The ladder of the README: each rung with its speed at one size and its share of the library's over all."""
    found = [one for one in entries(folder, "ladder") if isinstance(one, LadderRecord) and one.name == LADDER]
    latest = max(found, key=lambda one: one.date, default=None)
    return ladders.summary(latest.climb) if latest and latest.climb else ladders.markdown([])


def kernels_page(folder: str = "evidence") -> str:
    """Every member of the library on every machine on which it was measured."""
    return kernels.markdown(one for one in entries(folder, "kernel") if isinstance(one, KernelRecord))


def corpus_page(folder: str = "evidence") -> str:
    """The corpus on every machine that has judged it."""
    return corpora.markdown(one for one in entries(folder, "judge") if isinstance(one, CorpusRecord))


def kernel_summary(folder: str = "evidence") -> str:
    """The library of the README: each use of each kernel in one row."""
    return kernels.brief(one for one in entries(folder, "kernel") if isinstance(one, KernelRecord))


def write_table(folder: str, page: str, kind: str = "regimes") -> None:
    """Replaces everything between a table's two marks in a page, or to its end, by that table as the records give it.

    Raises:
        NotFoundError: no such page, or no such line in it.
    """
    path = Path(page)
    mark, ending = marks_of(kind)
    if not path.exists() or mark not in (text := path.read_text(encoding="utf-8")):
        usual = f"kw evidence table --kind {kind} --into {PAGES[kind]}"
        raise NotFoundError(f"no page {page!r} with the line {mark}", next=usual)
    tables = {
        "regimes": regimes_table,
        "optimize": suite_page,
        "fragments": fragments_page,
        "ladder": ladders_page,
        "kernel": kernels_page,
        "judge": corpus_page,
        "optimize summary": suite_summary,
        "ladder summary": ladder_summary,
        "kernel summary": kernel_summary,
    }
    table = tables[kind](folder)
    before, _, below = text.partition(mark)
    _, end, after = below.partition(ending)
    path.write_text(f"{before}{mark}\n\n{table}" + (f"\n{ending}{after}" if end else ""), encoding="utf-8")


def marks_of(kind: str) -> tuple[str, str]:
    """The lines above and below a table; a summary's name it, because it shares its page."""
    name = f"{kind} " if kind.endswith(" summary") else ""
    return MARK.replace("<!-- ", f"<!-- {name}"), END.replace("<!-- ", f"<!-- {name}")


def entries(folder: str, kind: str) -> list[Entry]:
    return [load(path) for path in sorted(Path(folder).glob(f"*/{kind}/*.json"))]


def _changed(entry: Entry, closure: dict[str, Path], root: Path) -> list[str]:
    now = {name: located(name, root) for name in entry.sources if not is_beside(name)} | closure
    return [n for n, p in sorted(now.items()) if not p.exists() or entry.sources.get(n) != source_hash(p)]


def _examples(root: Path, names: Sequence[str]) -> list[Path]:
    there = {p.stem: p for p in sorted((root / EXAMPLES).glob("*.py")) if "def get_inputs" in p.read_text()}
    if unknown := [name for name in names if name not in there]:
        raise NotFoundError(f"no example {unknown[0]!r}", next=f"there are {', '.join(there)}")
    return [there[name] for name in names or there]
