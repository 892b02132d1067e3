"""The corpus: samples that a judge must reject, each with the code that has to do it, and samples that it must accept.

A sample is judged under another name and without the lines that say what it is: by what it does.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from kernelwright.benchmark.worker_pool import done_by, warm_nursery
from kernelwright.core import progress
from kernelwright.core.corpus import CorpusReport, SampleOutcome
from kernelwright.core.errors import InternalError, KernelwrightError, NotFoundError, UsageError
from kernelwright.core.records import REJECTIONS, Device
from kernelwright.core.throughput import Pace
from kernelwright.machines import require_device
from kernelwright.measure.clock import wall_s
from kernelwright.verification import verify

SAMPLES = Path(__file__).parent / "samples"
TIME_S, ENDLESS_S = 60.0, 3.0
MEMORY_BYTES = 2 << 30
SUFFIXES = (".py", ".cpp", ".cu")
_FIELD = re.compile(r"^(?://)?\s*(Problem|Code|Device|Policy):\s*(.+?)\s*$", re.MULTILINE)
_DOCSTRING = re.compile(r'\A"""(.*?)"""\n', re.DOTALL)


@dataclass(frozen=True)
class Sample:
    """One file of the corpus.

    Attributes:
        what: what it does, in one sentence.
        codes: of which any one may reject it; none for an honest one.
        device: `cpu`, `cuda` or `both`.
    """

    path: Path
    kind: Literal["honest", "dishonest"]
    what: str
    problem: str
    codes: tuple[str, ...]
    device: str
    policy: str

    @property
    def name(self) -> str:
        return self.path.name

    def runs_on(self, device: str) -> bool:
        return self.device in (device, "both")

    def is_called(self, parts: Sequence[str]) -> bool:
        """Whether one of these is its kind or its policy, or in its name."""
        return any(part in (self.kind, self.policy) or part in self.name for part in parts)

    @property
    def bare(self) -> str:
        """Its source without the lines that say what it is."""
        text = self.path.read_text(encoding="utf-8")
        if self.path.suffix == ".py":
            return _DOCSTRING.sub("", text, count=1)
        lines = text.splitlines(keepends=True)
        told = next((at for at, line in enumerate(lines) if line.startswith("// kw:")), 0)
        return "".join(lines[told:])


def samples(folder: Path = SAMPLES) -> list[Sample]:
    """Every sample, by name.

    Raises:
        InternalError: one says too little of itself.
    """
    return [_sample(path) for path in sorted(folder.glob("*honest/*")) if path.suffix in SUFFIXES]


def _sample(path: Path) -> Sample:
    text = path.read_text(encoding="utf-8")
    head = text[:1500]
    fields = dict(reversed(_FIELD.findall(head)))
    kind = cast(Literal["honest", "dishonest"], path.parent.name)
    codes = tuple(fields.get("Code", "").split(" or ")) if "Code" in fields else ()
    if "Problem" not in fields or bool(codes) != (kind == "dishonest") or not set(codes) <= set(REJECTIONS):
        raise InternalError(
            f"{path} says {fields} of itself", next="name its Problem, Device, and the Code if dishonest"
        )
    what = text.lstrip('"/ ').partition("\n")[0].strip()
    policy = fields.get("Policy", "any")
    return Sample(path, kind, what, fields["Problem"], codes, fields.get("Device", "cpu"), policy)


def check_corpus(*, device: str = "cpu", rounds: int = 1, only: Sequence[str] = (), workers: int = 1) -> CorpusReport:
    """Judges every sample that runs on a device.

    Args:
        rounds: how often.
        only: parts of names, kinds or policies; empty is all.
        workers: judges beside each other, each a process.
    Raises:
        UsageError: fewer than one round or worker.
        NotFoundError: no sample is called so. DeviceError: no such device here.
    """
    require_device(device, next="--device cpu")
    if min(rounds, workers) < 1:
        raise UsageError(f"{rounds} rounds by {workers} workers judge nothing", next="--rounds 1 --workers 1")
    start, found = wall_s(), samples()
    wanted = [one for one in found if not only or one.is_called(only)]
    if not wanted:
        raise NotFoundError(
            f"no sample is called like {', '.join(only)}",
            next="name parts of samples' names, or none for all of them: kw judge-check",
        )
    chosen = [one for one in wanted if one.runs_on(device)]
    outcomes, held = _judged_by(workers, chosen * rounds, device)
    return CorpusReport(
        device=cast(Device, device),
        rounds=rounds,
        sandbox=held,
        outcomes=tuple(outcomes),
        pace=Pace(verdicts=len(outcomes), time_s=wall_s() - start, workers=workers),
        skipped=tuple(one.name for one in wanted if one not in chosen),
    )


def _judged_by(workers: int, chosen: list[Sample], device: str) -> tuple[list[SampleOutcome], tuple[str, ...]]:
    """The outcomes in the order of the samples, and what held the strangers."""
    outcomes: dict[int, SampleOutcome] = {}
    held: tuple[str, ...] = ()
    progress.stage(f"0 of {len(chosen)} judged")
    for index, done in done_by(min(workers, len(chosen) or 1), _judged, [(sample, device) for sample in chosen]):
        if isinstance(done, KernelwrightError):
            done = _outcome(chosen[index], f"error: {done.code}", done.message), ()
        outcomes[index], held = done[0], done[1] or held
        progress.stage(f"{len(outcomes)} of {len(chosen)} judged, the last was {done[0].name}")
    return [outcomes[index] for index in sorted(outcomes)], held


def _judged(task: tuple[Sample, str]) -> tuple[SampleOutcome, tuple[str, ...]]:
    """What the judge says of one sample, which it meets as a file of no name."""
    (sample, device), start = task, wall_s()
    time_s = ENDLESS_S if "timeout" in sample.codes else TIME_S
    held: tuple[str, ...] = ()
    with tempfile.TemporaryDirectory(prefix="kernelwright-corpus-") as folder:
        staged = Path(folder) / f"candidate{sample.path.suffix}"
        staged.write_text(sample.bare, encoding="utf-8")
        try:
            verdict = verify(
                str(SAMPLES / "problems" / f"{sample.problem}.py"),
                str(staged),
                device=device,
                time_s=time_s,
                build_s=time_s,
                memory_bytes=MEMORY_BYTES,
                nursery=warm_nursery(),
                own_kernels=sample.policy == "own-kernels",
            )
            held, reason = verdict.sandbox, verdict.reason
            got, detail = (reason.code, reason.detail) if reason else ("", "")
        except KernelwrightError as fault:
            got, detail = f"error: {fault.code}", fault.message
    return _outcome(sample, got, detail, wall_s() - start), held


def _outcome(sample: Sample, got: str, detail: str, time_s: float = 0.0) -> SampleOutcome:
    return SampleOutcome(
        name=sample.name,
        kind=sample.kind,
        what=sample.what,
        problem=sample.problem,
        expected=sample.codes,
        got=got,
        detail=detail,
        time_s=time_s,
    )
