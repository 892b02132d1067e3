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

from kernelwright.benchmark.worker_pool import map_unordered, shared_fork_server
from kernelwright.core import progress
from kernelwright.core.corpus import CorpusReport, SampleOutcome
from kernelwright.core.errors import InternalError, KernelwrightError, NotFoundError, UsageError
from kernelwright.core.throughput import Throughput
from kernelwright.core.timing import Device
from kernelwright.core.verdict import REJECTIONS
from kernelwright.machines import require_device
from kernelwright.measure.clock import wall_s
from kernelwright.verification import verify

SAMPLES_DIR = Path(__file__).parent / "samples"
TIME_LIMIT_S, HANG_TIME_LIMIT_S = 60.0, 3.0
MEMORY_BYTES = 2 << 30
SUFFIXES = (".py", ".cpp", ".cu")
_FIELD = re.compile(r"^(?://)?\s*(Problem|Code|Device|Policy):\s*(.+?)\s*$", re.MULTILINE)
_DOCSTRING = re.compile(r'\A"""(.*?)"""\n', re.DOTALL)


@dataclass(frozen=True)
class CorpusSample:
    """One file of the corpus.

    Attributes:
        description: what it does, in one sentence.
        expected_codes: of which any one may reject it; none for a legitimate one.
        device: `cpu`, `cuda` or `both`.
    """

    path: Path
    kind: Literal["legitimate", "cheat"]
    description: str
    problem: str
    expected_codes: tuple[str, ...]
    device: str
    policy: str

    @property
    def name(self) -> str:
        return self.path.name

    def runs_on(self, device: str) -> bool:
        return self.device in (device, "both")

    def matches(self, parts: Sequence[str]) -> bool:
        """Whether one of these is its kind or its policy, or in its name."""
        return any(part in (self.kind, self.policy) or part in self.name for part in parts)

    @property
    def stripped_source(self) -> str:
        """Its source without the lines that say what it is."""
        text = self.path.read_text(encoding="utf-8")
        if self.path.suffix == ".py":
            return _DOCSTRING.sub("", text, count=1)
        lines = text.splitlines(keepends=True)
        told = next((at for at, line in enumerate(lines) if line.startswith("// kw:")), 0)
        return "".join(lines[told:])


def load_samples(folder: Path = SAMPLES_DIR) -> list[CorpusSample]:
    """Every sample, by name.

    Raises:
        InternalError: one says too little of itself.
    """
    files = [path for kind in ("cheats", "legitimate") for path in sorted((folder / kind).iterdir())]
    return [_load_sample(path) for path in files if path.suffix in SUFFIXES]


def _load_sample(path: Path) -> CorpusSample:
    text = path.read_text(encoding="utf-8")
    head = text[:1500]
    fields = dict(reversed(_FIELD.findall(head)))
    kind: Literal["legitimate", "cheat"] = "cheat" if path.parent.name == "cheats" else "legitimate"
    codes = tuple(fields.get("Code", "").split(" or ")) if "Code" in fields else ()
    if "Problem" not in fields or bool(codes) != (kind == "cheat") or not set(codes) <= set(REJECTIONS):
        raise InternalError(
            f"{path} says {fields} of itself", next="name its Problem, Device, and the Code if it is a cheat"
        )
    what = text.lstrip('"/ ').partition("\n")[0].strip()
    policy = fields.get("Policy", "any")
    return CorpusSample(path, kind, what, fields["Problem"], codes, fields.get("Device", "cpu"), policy)


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
    start, found = wall_s(), load_samples()
    wanted = [one for one in found if not only or one.matches(only)]
    if not wanted:
        raise NotFoundError(
            f"no sample is called like {', '.join(only)}",
            next="name parts of samples' names, or none for all of them: kw judge-check",
        )
    chosen = [one for one in wanted if one.runs_on(device)]
    outcomes, held = _judge_all(workers, chosen * rounds, device)
    return CorpusReport(
        device=cast(Device, device),
        rounds=rounds,
        sandbox=held,
        outcomes=tuple(outcomes),
        throughput=Throughput(verdicts=len(outcomes), time_s=wall_s() - start, workers=workers),
        skipped=tuple(one.name for one in wanted if one not in chosen),
    )


def _judge_all(workers: int, chosen: list[CorpusSample], device: str) -> tuple[list[SampleOutcome], tuple[str, ...]]:
    """The outcomes in the order of the samples, and what held the strangers."""
    outcomes: dict[int, SampleOutcome] = {}
    held: tuple[str, ...] = ()
    progress.report_stage(f"0 of {len(chosen)} judged")
    for index, done in map_unordered(
        min(workers, len(chosen) or 1), _judge_sample, [(sample, device) for sample in chosen]
    ):
        if isinstance(done, KernelwrightError):
            done = _make_outcome(chosen[index], f"error: {done.code}", done.message), ()
        outcomes[index], held = done[0], done[1] or held
        progress.report_stage(f"{len(outcomes)} of {len(chosen)} judged, the last was {done[0].name}")
    return [outcomes[index] for index in sorted(outcomes)], held


def _judge_sample(task: tuple[CorpusSample, str]) -> tuple[SampleOutcome, tuple[str, ...]]:
    """What the judge says of one sample, which it meets as a file of no name."""
    (sample, device), start = task, wall_s()
    time_s = HANG_TIME_LIMIT_S if "timeout" in sample.expected_codes else TIME_LIMIT_S
    held: tuple[str, ...] = ()
    with tempfile.TemporaryDirectory(prefix="kernelwright-corpus-") as folder:
        staged = Path(folder) / f"candidate{sample.path.suffix}"
        staged.write_text(sample.stripped_source, encoding="utf-8")
        try:
            verdict = verify(
                str(SAMPLES_DIR / "problems" / f"{sample.problem}.py"),
                str(staged),
                device=device,
                call_timeout_s=time_s,
                build_timeout_s=time_s,
                memory_bytes=MEMORY_BYTES,
                fork_server=shared_fork_server(),
                own_kernels=sample.policy == "own-kernels",
            )
            held, reason = verdict.sandbox, verdict.reason
            got, detail = (reason.code, reason.detail) if reason else ("", "")
        except KernelwrightError as fault:
            got, detail = f"error: {fault.code}", fault.message
    return _make_outcome(sample, got, detail, wall_s() - start), held


def _make_outcome(sample: CorpusSample, got: str, detail: str, time_s: float = 0.0) -> SampleOutcome:
    return SampleOutcome(
        name=sample.name,
        kind=sample.kind,
        description=sample.description,
        problem=sample.problem,
        expected=sample.expected_codes,
        got=got,
        detail=detail,
        time_s=time_s,
    )
