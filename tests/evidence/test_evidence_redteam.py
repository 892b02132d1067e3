"""Rows of the corpus: verdicts add up while sample and judge are the same."""

import pytest

from kernelwright.core.corpus import CorpusReport, SampleOutcome
from kernelwright.core.throughput import Throughput
from kernelwright.evidence import redteam
from kernelwright.evidence.kinds import MeasureRequest
from kernelwright.evidence.recording import record_rows
from kernelwright.evidence.rows import read_rows
from kernelwright.evidence.tables import group_rows
from kernelwright.redteam.corpus import load_samples
from kernelwright.report.corpus import markdown

CHEAT, HONEST = (next(one for one in load_samples() if one.kind == kind) for kind in ("cheat", "legitimate"))


@pytest.fixture
def judged(monkeypatch, tmp_path):
    """Records what a judge is made to say of one cheat, and of one honest candidate, in so many rounds."""

    def run(*codes):
        rounds = iter(codes)

        def check_corpus(**_):
            found = [
                SampleOutcome(
                    name=one.name,
                    kind=one.kind,
                    description=one.description,
                    problem=one.problem,
                    expected=one.expected_codes,
                    got=code,
                )
                for one, code in ((CHEAT, next(rounds)), (HONEST, ""))
            ]
            return CorpusReport(
                device="cpu",
                rounds=1,
                sandbox=("own process",),
                outcomes=tuple(found),
                throughput=Throughput(verdicts=2, time_s=1),
            )

        monkeypatch.setattr(redteam, "check_corpus", check_corpus)
        record_rows("redteam", MeasureRequest("cpu", str(tmp_path), rounds=len(codes)))
        return {row.workload: row.decode_result(redteam.SampleResult).counts for row in read_rows(str(tmp_path))}

    return run


def test_rounds_add_up(judged, tmp_path):
    right = CHEAT.expected_codes[0]
    judged(right, right)
    found = judged("")
    assert (found[CHEAT.name].verdict_counts, found[CHEAT.name].num_wrong) == ({right: 2, "": 1}, 1)
    assert found[CHEAT.name].wrong_verdicts == ("accepted",)
    assert (found[HONEST.name].verdict_counts, found[HONEST.name].num_wrong) == ({"": 3}, 0)
    rows = read_rows(str(tmp_path))
    page = markdown(group_rows(rows, {row.key: row.to_row_state("current") for row in rows}))
    assert "1 cheats and 1 legitimate samples, 6 verdicts, 1 wrong" in page
    assert f"| `{HONEST.name}` | {HONEST.problem} |" in page


def test_another_judge_begins_anew(judged, monkeypatch):
    right = CHEAT.expected_codes[0]
    judged(right)
    monkeypatch.setattr(redteam, "current_versions", lambda names: dict.fromkeys(names, 99))
    assert judged(right)[CHEAT.name].verdict_counts == {right: 1}
