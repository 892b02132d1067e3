"""The instruments that rows depend on, each with a version that changes when its results can change.

`instruments.json` holds for each instrument its version, the digest of its sources, and the change of every version. A
test compares the digests: after a change of an instrument, record that it still measures the same (`kw evidence
instrument NAME --same WHY`) or a new version with the size of the change (`--new WHAT`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import msgspec

from kernelwright.core.cache import digest
from kernelwright.core.errors import NotFoundError
from kernelwright.core.record import Record
from kernelwright.evidence.source_digests import PACKAGE, normalize_python, source_digest

REGISTRY = Path(__file__).with_name("instruments.json")
INSTRUMENT_SOURCES: Mapping[str, tuple[str, ...]] = {
    "host clock": (
        "measure/clock.py:HostClock",
        "measure/clock.py:measure_steady_us",
        "measure/clock.py:choose_repetitions",
    ),
    "event clock": ("measure/clock.py:EventClock", "measure/clock.py:_event_elapsed_us"),
    "graph clock": (
        "measure/clock.py:GraphClock",
        "measure/clock.py:_event_elapsed_us",
        "measure/clock.py:capture_graph",
    ),
    "process time": ("evidence/command_process.py:CommandProcess",),
    "first call": ("evidence/backend_process.py",),
    "paired comparison": ("measure/paired.py", "measure/statistics.py", "measure/buffers.py"),
    "external clock": (
        "measure/clock_agreement.py",
        "verification/transport/external_timer.py",
        "verification/timed_calls.py",
    ),
    "counters": ("measure/counters.py",),
    "ceilings": ("machines/",),
    "work": ("work/",),
    "diagnosis": ("diagnosis/",),
    "recommendations": ("evidence/recommendation_check.py",),
    "quick check": ("verification/quick_check.py",),
    "verification": ("verification/",),
    "layout probes": ("hwcheck/mma_fragments.py", "hwcheck/access_counters.py", "hwcheck/ptx_probes.py"),
    "emulation": ("toolchain/emulator/",),
}
"""Files, folders and definitions inside a file (`file:name`) of each instrument."""


class InstrumentVersion(Record, frozen=True, kw_only=True):
    """One version: its change and an upper bound of its effect; `bound` is empty for the first."""

    version: int
    date: str
    change: str
    bound: str = ""


class Instrument(Record, frozen=True, kw_only=True):
    """An instrument: the digest of sources that measure the same as its last version, and its versions."""

    digest: str
    versions: tuple[InstrumentVersion, ...]
    unchanged_notes: tuple[str, ...] = ()

    @property
    def version(self) -> int:
        """The current version."""
        return self.versions[-1].version


@cache
def instruments() -> dict[str, Instrument]:
    """The registered instruments by name."""
    return msgspec.json.decode(REGISTRY.read_bytes(), type=dict[str, Instrument])


def current_versions(names: Sequence[str]) -> dict[str, int]:
    """The current versions of the named instruments."""
    return {name: instruments()[name].version for name in names}


def changed_instruments() -> list[str]:
    """Instruments whose sources differ from the registered digest."""
    return [name for name in INSTRUMENT_SOURCES if instruments()[name].digest != instrument_digest(name)]


def instrument_digest(name: str) -> str:
    """Digest of the current sources of an instrument."""
    return digest(*(part for one in INSTRUMENT_SOURCES[name] for part in _source_texts(one)))


def record_change(name: str, *, same: str = "", new: str = "", bound: str = "") -> Instrument:
    """Record that changed sources measure the same (`same`), or a new version (`new`, with the `bound` of its effect).

    Raises:
        NotFoundError: no such instrument.
    """
    if name not in INSTRUMENT_SOURCES:
        raise NotFoundError(f"no instrument {name!r}", next=f"one of {', '.join(INSTRUMENT_SOURCES)}")
    known = instruments()
    one, date = known[name], datetime.now(UTC).date().isoformat()
    if new:
        next_version = InstrumentVersion(version=one.version + 1, date=date, change=new, bound=bound)
        one = msgspec.structs.replace(one, versions=(*one.versions, next_version), unchanged_notes=())
    else:
        one = msgspec.structs.replace(one, unchanged_notes=(*one.unchanged_notes, f"{date}: {same}"))
    known[name] = msgspec.structs.replace(one, digest=instrument_digest(name))
    REGISTRY.write_bytes(msgspec.json.format(msgspec.json.encode(known), indent=2) + b"\n")
    return known[name]


def changes_since(row: Mapping[str, int]) -> list[str]:
    """The changes of a row's instruments since it was measured, one line each."""
    changes = []
    for name, version in row.items():
        later = [one for one in instruments()[name].versions if one.version > version] if name in instruments() else []
        changes += [f"{name} {one.version}: {one.change}{f' ({one.bound})' if one.bound else ''}" for one in later]
    return changes


def _source_texts(location: str) -> list[str]:
    path, _, name = location.partition(":")
    if name:
        return [normalize_python((PACKAGE / path).read_text("utf-8"), name)]
    if path.endswith("/"):
        files = (one for one in sorted((PACKAGE / path).rglob("*")) if one.suffix in (".py", ".json", ".h", ".cpp"))
        return sorted(source_digest(one) for one in files)
    return [source_digest(PACKAGE / path)]
