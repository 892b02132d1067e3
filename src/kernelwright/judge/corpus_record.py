"""The record of a machine that has judged the corpus, round after round."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import torch

from kernelwright.core.corpus import CorpusRecord, CorpusReport, SampleCounts, SampleOutcome
from kernelwright.judge.corpus import SAMPLES, check_corpus
from kernelwright.judge.corpus import samples as all_samples
from kernelwright.judge.sources import PACKAGE, hashes, import_closure
from kernelwright.machine import machine


def made(earlier: CorpusRecord | None, *, device: str, rounds: int, workers: int, root: Path) -> CorpusRecord:
    """Judges every sample so many times; a record of the same sources counts these rounds too.

    Args:
        root: of the repository, to which the sources' names are relative.
    Raises:
        UsageError: fewer than one round or worker.
    """
    report = check_corpus(device=device, rounds=rounds, workers=workers)
    sources = hashes(corpus_sources(device), root)
    fresh = CorpusRecord(
        kind="judge",
        name=device,
        state="measured",
        device=report.device,
        machine=machine(device).name,
        date=datetime.now(UTC).date().isoformat(),
        software={"torch": torch.__version__.partition("+")[0], "Python": platform.python_version()},
        sources=sources,
        rounds=report.rounds,
        sandbox=report.sandbox,
        samples=tuple(_counted(report)),
        time_s=report.pace.time_s,
    )
    return _together(earlier, fresh) if earlier and earlier.sources == sources else fresh


def corpus_sources(device: str) -> list[Path]:
    """Samples and problems; on a device, where nobody judges them at every change, the judge as well."""
    samples = [one.path for one in all_samples() if one.runs_on(device)] + sorted(SAMPLES.glob("problems/*.py"))
    if device == "cpu":
        return samples
    judge = import_closure("kernelwright.verify.verdict", "kernelwright.verify.worker")
    return [*samples, *(path for path in judge if path.is_relative_to(PACKAGE / "verify"))]


def _counted(report: CorpusReport) -> Iterable[SampleCounts]:
    each: dict[str, list[SampleOutcome]] = {}
    for one in report.outcomes:
        each.setdefault(one.name, []).append(one)
    for name, outcomes in each.items():
        first = outcomes[0]
        yield SampleCounts(
            name=name,
            kind=first.kind,
            what=first.what,
            problem=first.problem,
            expected=first.expected,
            got=dict(Counter(one.got for one in outcomes)),
            slowest_s=round(max(one.time_s for one in outcomes), 2),
            faults=tuple(f"{one.got or 'accepted'} {one.detail}".strip() for one in outcomes if not one.right),
        )


def _together(earlier: CorpusRecord, fresh: CorpusRecord) -> CorpusRecord:
    before = {one.name: one for one in earlier.samples}
    samples = [
        msgspec.structs.replace(
            one,
            got=dict(Counter(one.got) + Counter(before[one.name].got)),
            slowest_s=max(one.slowest_s, before[one.name].slowest_s),
            faults=before[one.name].faults + one.faults,
        )
        for one in fresh.samples
    ]
    rounds, time_s = earlier.rounds + fresh.rounds, earlier.time_s + fresh.time_s
    return msgspec.structs.replace(fresh, rounds=rounds, time_s=time_s, samples=tuple(samples))
