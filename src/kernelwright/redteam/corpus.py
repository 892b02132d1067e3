"""The corpus: samples that the judge must reject, each with its rejection codes, and samples that it must accept.

A sample is verified under a neutral file name and without its header, so that only its behaviour counts.
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
WRONG_VALUE_CODES = "inaccurate", "not-finite"
"""Codes of wrong values: which of them comes first depends on the inputs that were drawn."""
_FIELD = re.compile(r"^(?://)?\s*(Problem|Code|Device|Policy):\s*(.+?)\s*$", re.MULTILINE)
_DOCSTRING = re.compile(r'\A"""(.*?)"""\n', re.DOTALL)


@dataclass(frozen=True)
class CorpusSample:
    """One file of the corpus.

    Attributes:
        description: one sentence from its header.
        expected_codes: the accepted rejection codes, `not-finite` where `inaccurate` is; empty for a legitimate sample.
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
        """File name."""
        return self.path.name

    def runs_on(self, device: str) -> bool:
        """Whether the sample applies to a device."""
        return self.device in (device, "both")

    def matches(self, parts: Sequence[str]) -> bool:
        """Whether a part equals its kind or policy, or is contained in its name."""
        return any(part in (self.kind, self.policy) or part in self.name for part in parts)

    @property
    def stripped_source(self) -> str:
        """Its source without the header."""
        text = self.path.read_text(encoding="utf-8")
        if self.path.suffix == ".py":
            return _DOCSTRING.sub("", text, count=1)
        lines = text.splitlines(keepends=True)
        first_kept = next((i for i, line in enumerate(lines) if line.startswith("// kw:")), 0)
        return "".join(lines[first_kept:])


def load_samples(folder: Path = SAMPLES_DIR) -> list[CorpusSample]:
    """Load every sample, sorted by name within cheats and legitimate samples.

    Raises:
        InternalError: a sample has an incomplete header.
    """
    files = [path for kind in ("cheats", "legitimate") for path in sorted((folder / kind).iterdir())]
    return [_load_sample(path) for path in files if path.suffix in SUFFIXES]


def _load_sample(path: Path) -> CorpusSample:
    text = path.read_text(encoding="utf-8")
    head = text[:1500]
    fields = dict(reversed(_FIELD.findall(head)))
    kind: Literal["legitimate", "cheat"] = "cheat" if path.parent.name == "cheats" else "legitimate"
    codes = tuple(fields.get("Code", "").split(" or ")) if "Code" in fields else ()
    codes = tuple(dict.fromkeys((*codes, *WRONG_VALUE_CODES))) if WRONG_VALUE_CODES[0] in codes else codes
    if "Problem" not in fields or bool(codes) != (kind == "cheat") or not set(codes) <= set(REJECTIONS):
        raise InternalError(
            f"{path} has an incomplete header: {fields}", next="add Problem, Device, and Code if it is a cheat"
        )
    description = text.lstrip('"/ ').partition("\n")[0].strip()
    policy = fields.get("Policy", "any")
    return CorpusSample(path, kind, description, fields["Problem"], codes, fields.get("Device", "cpu"), policy)


def check_corpus(*, device: str = "cpu", rounds: int = 1, only: Sequence[str] = (), workers: int = 1) -> CorpusReport:
    """Verify every sample that runs on a device.

    Args:
        rounds: number of times that each sample is verified.
        only: parts of names, kinds or policies; all samples if empty.
        workers: number of parallel worker processes.
    Raises:
        UsageError: fewer than one round or worker.
        NotFoundError: no sample matches.
        DeviceError: the device is not available.
    """
    require_device(device, next="--device cpu")
    if min(rounds, workers) < 1:
        raise UsageError(
            f"{rounds} rounds with {workers} workers: at least 1 of each is needed", next="--rounds 1 --workers 1"
        )
    start, samples = wall_s(), load_samples()
    matching = [one for one in samples if not only or one.matches(only)]
    if not matching:
        raise NotFoundError(
            f"no sample matches {', '.join(only)}",
            next="use parts of sample names, or none for all samples: kw judge-check",
        )
    selected = [one for one in matching if one.runs_on(device)]
    outcomes, isolation = _judge_all(workers, selected * rounds, device)
    return CorpusReport(
        device=cast(Device, device),
        rounds=rounds,
        sandbox=isolation,
        outcomes=tuple(outcomes),
        throughput=Throughput(verdicts=len(outcomes), time_s=wall_s() - start, workers=workers),
        skipped=tuple(one.name for one in matching if one not in selected),
    )


def _judge_all(workers: int, samples: list[CorpusSample], device: str) -> tuple[list[SampleOutcome], tuple[str, ...]]:
    """The outcomes in the order of the samples, and the isolation mechanisms used."""
    outcomes: dict[int, SampleOutcome] = {}
    isolation: tuple[str, ...] = ()
    progress.report_stage(f"0 of {len(samples)} verified")
    for index, result in map_unordered(
        min(workers, len(samples) or 1), _judge_sample, [(sample, device) for sample in samples]
    ):
        if isinstance(result, KernelwrightError):
            result = _make_outcome(samples[index], f"error: {result.code}", result.message), ()
        outcomes[index], isolation = result[0], result[1] or isolation
        progress.report_stage(f"{len(outcomes)} of {len(samples)} verified, the last was {result[0].name}")
    return [outcomes[index] for index in sorted(outcomes)], isolation


def _judge_sample(task: tuple[CorpusSample, str]) -> tuple[SampleOutcome, tuple[str, ...]]:
    """Verify one sample under a neutral file name; returns its outcome and the isolation mechanisms used."""
    (sample, device), start = task, wall_s()
    time_s = HANG_TIME_LIMIT_S if "timeout" in sample.expected_codes else TIME_LIMIT_S
    isolation: tuple[str, ...] = ()
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
            isolation, reason = verdict.sandbox, verdict.reason
            got, detail = (reason.code, reason.detail) if reason else ("", "")
        except KernelwrightError as error:
            got, detail = f"error: {error.code}", error.message
    return _make_outcome(sample, got, detail, wall_s() - start), isolation


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
