"""Rows of the corpus: verdicts add up while sample and judge are the same."""

import pytest

from kernelwright.core.corpus import CorpusReport, SampleOutcome
from kernelwright.core.throughput import Pace
from kernelwright.evidence import redteam
from kernelwright.evidence.kinds import Request
from kernelwright.evidence.recording import record
from kernelwright.evidence.rows import read_rows
from kernelwright.evidence.tables import measured
from kernelwright.redteam.corpus import samples
from kernelwright.report.corpora import markdown

CHEAT, HONEST = (next(one for one in samples() if one.kind == kind) for kind in ("dishonest", "honest"))


@pytest.fixture
def judged(monkeypatch, tmp_path):
    """Records what a judge is made to say of one cheat, and of one honest candidate, in so many rounds."""

    def run(*codes):
        rounds = iter(codes)

        def check_corpus(**_):
            found = [
                SampleOutcome(
                    name=one.name, kind=one.kind, what=one.what, problem=one.problem, expected=one.codes, got=code
                )
                for one, code in ((CHEAT, next(rounds)), (HONEST, ""))
            ]
            return CorpusReport(
                device="cpu", rounds=1, sandbox=("own process",), outcomes=tuple(found), pace=Pace(verdicts=2, time_s=1)
            )

        monkeypatch.setattr(redteam, "check_corpus", check_corpus)
        record("redteam", Request("cpu", str(tmp_path), rounds=len(codes)))
        return {row.workload: row.as_type(redteam.SampleResult).counts for row in read_rows(str(tmp_path))}

    return run


def test_rounds_add_up(judged, tmp_path):
    right = CHEAT.codes[0]
    judged(right, right)
    found = judged("")
    assert (found[CHEAT.name].got, found[CHEAT.name].wrong) == ({right: 2, "": 1}, 1)
    assert found[CHEAT.name].faults == ("accepted",)
    assert (found[HONEST.name].got, found[HONEST.name].wrong) == ({"": 3}, 0)
    rows = read_rows(str(tmp_path))
    page = markdown(measured(rows, {row.key: row.as_state("current") for row in rows}))
    assert "1 dishonest and 1 honest samples, 6 verdicts, 1 wrong" in page
    assert f"| `{HONEST.name}` | {HONEST.problem} |" in page


def test_another_judge_begins_anew(judged, monkeypatch):
    right = CHEAT.codes[0]
    judged(right)
    monkeypatch.setattr(redteam, "versions", lambda names: dict.fromkeys(names, 99))
    assert judged(right)[CHEAT.name].got == {right: 1}
