"""Instruments have versions, and nobody changes one without saying so."""

import shutil

import pytest

from kernelwright.core.errors import NotFoundError
from kernelwright.evidence import instruments


def test_every_instrument_is_as_its_registry_knows_it():
    changed = instruments.changed_instruments()
    assert not changed, (
        f"the sources of {', '.join(changed)} changed: does it still measure the same? "
        'kw evidence instrument NAME --same WHY, or --new WHAT --bound "by how much"'
    )


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """A copy that a test may write."""
    path = tmp_path / "instruments.json"
    shutil.copy(instruments.REGISTRY, path)
    monkeypatch.setattr(instruments, "REGISTRY", path)
    instruments.instruments.cache_clear()
    yield path
    instruments.instruments.cache_clear()


def test_a_new_version_is_newer_than_rows_that_used_the_old_one(registry):
    rows = {
        "graph clock": instruments.current_versions(["graph clock"]),
        "work": instruments.current_versions(["work"]),
    }
    instruments.record_change("graph clock", new="replays are led by one more", bound="0.1 us of a call")
    assert instruments.changes_since(rows["work"]) == []
    (sentence,) = instruments.changes_since(rows["graph clock"])
    assert "replays are led by one more (0.1 us of a call)" in sentence
    assert "replays are led" in registry.read_text()


def test_a_change_that_measures_the_same_leaves_rows_as_they_are(registry, monkeypatch):
    rows = instruments.current_versions(["event clock"])
    sources = {**instruments.INSTRUMENT_SOURCES, "event clock": ("measure/clock.py:HostClock",)}
    monkeypatch.setattr(instruments, "INSTRUMENT_SOURCES", sources)
    assert instruments.changed_instruments() == ["event clock"]
    instruments.record_change("event clock", same="renamed")
    assert instruments.changed_instruments() == []
    assert instruments.changes_since(rows) == []
    with pytest.raises(NotFoundError, match="no instrument 'sundial'"):
        instruments.record_change("sundial", same="a shadow")
