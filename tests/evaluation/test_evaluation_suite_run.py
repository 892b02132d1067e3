"""A folder of problems judged by `kw suite run`, to its end and through faults."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import faults


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    folder = tmp_path_factory.mktemp("suite")
    faults.write_suite(folder)
    return folder


def run(kw, folder, *words):
    results = folder / "results.jsonl"
    given = ["--candidates", folder / "candidates", "--results", results, *words, "--json"]
    return kw("suite", "run", folder / "problems", *given), results


def test_every_candidate_has_its_verdict_and_is_judged_once(kw, suite):
    answer, results = run(kw, suite, "--baseline", "", "--workers", "2")
    assert answer.code == 1
    codes = {
        one["candidate"]: (one["verdict"]["reason"] or {"code": ""})["code"] for one in answer.document["outcomes"]
    }
    assert codes == faults.EXPECTED
    assert (answer.document["throughput"]["verdicts"], answer.document["throughput"]["workers"]) == (
        len(faults.EXPECTED),
        2,
    )
    lines = results.read_bytes()
    (suite / "candidates" / "total_right.py").touch()
    answer, _ = run(kw, suite, "--baseline", "")
    assert (answer.document["reused_results"], answer.document["throughput"]) == (len(faults.EXPECTED), None)
    assert results.read_bytes() == lines


@pytest.mark.slow
def test_what_is_accepted_is_timed_and_drawn(kw, suite, tmp_path):
    mine = tmp_path / "candidates"
    mine.mkdir()
    (mine / "rows_right.py").write_bytes((suite / "candidates" / "rows_right.py").read_bytes())
    page, results = tmp_path / "page.html", tmp_path / "results.jsonl"
    words = ["--baseline", "eager", "--pairs", "5", "--html", page, "--results", results, "--json"]
    answer = kw("suite", "run", suite / "problems", "--candidates", mine, *words)
    assert answer.code == 0
    (outcome,), (curve,) = answer.document["outcomes"], answer.document["curves"]
    assert [one["baseline"] for one in outcome["comparisons"]] == ["eager"]
    assert (curve["num_problems"], curve["points"][0]["count_low"]) == (1, 1)
    assert answer.document["problems_without_candidate"] == ["affine", "total"]
    assert "fast_p" in page.read_text()
    assert [json.loads(line)["type"] for line in results.read_text().splitlines()] == ["judged", "timed"]


@pytest.mark.slow
def test_a_candidate_that_stops_computing_is_rejected_and_stays_so(kw, suite, tmp_path):
    lazy = """
import torch
class ModelNew(torch.nn.Module):
    calls, kept = 0, None
    def forward(self, x):
        self.calls += 1
        if self.calls < 20:
            self.kept = 2 * x + 1
        return self.kept.clone()
"""
    mine = tmp_path / "candidates"
    mine.mkdir()
    (mine / "affine.py").write_text(lazy)
    words = ["--baseline", "eager", "--pairs", "5", "--results", tmp_path / "results.jsonl", "--json"]
    for _ in range(2):  # the second time from its line
        answer = kw("suite", "run", suite / "problems", "--candidates", mine, *words)
        (outcome,), (curve,) = answer.document["outcomes"], answer.document["curves"]
        assert (answer.code, outcome["verdict"]["accepted"]) == (1, False)
        assert outcome["verdict"]["reason"]["code"] in ("stale-output", "inaccurate")
        assert curve["points"][0]["count_high"] == 0


@pytest.mark.slow
def test_whatever_is_killed_no_verdict_is_lost_or_told_twice_or_wrong(tmp_path):
    faults.write_suite(tmp_path)
    killed, _ = faults.kill_and_resume(tmp_path, 3, seed=20261123, within_s=8.0)
    assert sum(killed.values()) == 3


def test_an_unknown_baseline_is_named_with_those_that_exist(kw, suite):
    answer, _ = run(kw, suite, "--baseline", "eager,faster")
    assert answer.code == 2
    assert answer.document["error"]["message"] == "unknown baseline 'faster'; available: eager, compile"
    (step,) = answer.document["next"]
    assert step.startswith("kw suite run") and step.endswith("--baseline eager,compile")
