"""The record of a machine that judged the corpus: rounds add up while the samples are the same."""

from pathlib import Path

import msgspec
import pytest

from kernelwright.core.corpus import CorpusReport, SampleOutcome
from kernelwright.core.pace import Pace
from kernelwright.judge import corpus_record
from kernelwright.judge.evidence import check, corpus_page, load, record_corpus
from kernelwright.judge.sources import hashes

ROOT = Path(__file__).resolve().parents[2]
CHEAT = {"kind": "dishonest", "what": "Cheats | twice.", "problem": "gelu", "expected": ("inaccurate", "not-finite")}
HONEST = {"kind": "honest", "what": "Works.", "problem": "gelu", "expected": ()}


@pytest.fixture
def judged(monkeypatch, tmp_path):
    """Records what a judge is made to say of one cheat, round after round, and of one honest candidate."""

    def run(*codes):
        outcomes = [SampleOutcome(name="cheat.py", got=code, time_s=1.5, **CHEAT) for code in codes]
        outcomes += [SampleOutcome(name="works.py", got="", time_s=0.5, **HONEST) for _ in codes]
        report = CorpusReport(
            device="cpu",
            rounds=len(codes),
            sandbox=("own process",),
            outcomes=tuple(outcomes),
            pace=Pace(verdicts=len(outcomes), time_s=60.0),
        )
        monkeypatch.setattr(corpus_record, "check_corpus", lambda **asked: report)
        (path,) = record_corpus(device="cpu", rounds=1, workers=1, folder=str(tmp_path)).records
        return load(Path(path))

    return run


def test_rounds_add_up(judged, tmp_path):
    judged("inaccurate", "not-finite")
    record = judged("inaccurate")
    cheat, honest = record.samples
    assert (record.rounds, record.time_s) == (3, 120.0)
    assert (cheat.got, cheat.wrong) == ({"inaccurate": 2, "not-finite": 1}, 0)
    assert (honest.got, honest.wrong) == ({"": 3}, 0)
    page = corpus_page(str(tmp_path))
    assert "1 dishonest and 1 honest samples in 3 rounds, 6 verdicts in 120 s, 0 wrong" in page
    assert "| `cheat.py` | gelu | Cheats \\| twice. | inaccurate (2), not-finite (1) |" in page
    assert "| `works.py` | gelu | Works. | accepted |" in page


def test_a_change_of_verdict_stands_in_the_record(judged, tmp_path):
    cheat = judged("inaccurate", "").samples[0]
    assert (cheat.wrong, cheat.faults) == (1, ("accepted",))
    assert judged("crash").samples[0].faults == ("accepted", "crash")
    assert "inaccurate, accepted" not in corpus_page(str(tmp_path))
    assert "2 wrong" in corpus_page(str(tmp_path))


def test_every_round_stands_in_the_record_as_soon_as_it_is_over(monkeypatch, tmp_path):
    rounds = []

    def check_corpus(**asked):
        if len(rounds) == 2:
            raise KeyboardInterrupt
        rounds.append(asked["rounds"])
        outcome = SampleOutcome(name="cheat.py", got="inaccurate", time_s=1.5, **CHEAT)
        return CorpusReport(device="cpu", rounds=1, sandbox=(), outcomes=(outcome,), pace=Pace(verdicts=1, time_s=1.0))

    monkeypatch.setattr(corpus_record, "check_corpus", check_corpus)
    with pytest.raises(KeyboardInterrupt):
        record_corpus(device="cpu", rounds=3, workers=1, folder=str(tmp_path))
    assert rounds == [1, 1]
    assert load(next(tmp_path.glob("*/judge/cpu.json"))).rounds == 2


def test_other_samples_begin_anew(judged, monkeypatch):
    judged("inaccurate")
    monkeypatch.setattr(corpus_record, "corpus_sources", lambda device: [Path(corpus_record.__file__)])
    assert judged("inaccurate").rounds == 1


def test_a_record_is_stale_once_a_sample_changed(judged, tmp_path):
    record = judged("inaccurate")
    assert record.sources == hashes(corpus_record.corpus_sources("cpu"), tmp_path.parent)
    assert not check(str(tmp_path)).stale
    path = next(tmp_path.glob("*/judge/cpu.json"))
    name = next(iter(record.sources))
    path.write_text(path.read_text().replace(record.sources[name], "0" * 24))
    assert [line.partition(": ")[2] for line in check(str(tmp_path)).stale] == [name]


def test_a_device_where_nobody_checks_every_change_hangs_on_the_judge_too():
    names = {path.name for path in corpus_record.corpus_sources("cuda")}
    assert {"calls.py", "reach.py", "worker.py"} <= names
    assert "calls.py" not in {path.name for path in corpus_record.corpus_sources("cpu")}
    assert msgspec.to_builtins(sorted(names))
