"""The contract of the command line: one document, its fields, the exit code; for every verb."""

import html
import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch
from tiers import slow

from kernelwright.cli import runner as cli_answer
from kernelwright.core.record import Record

PROGRAMS = Path(__file__).parent / "programs"
SMALL, STEADY = PROGRAMS / "small.py", PROGRAMS / "steady.py"
ENVELOPE = {"schema", "verb", "status", "next"}
FIELDS = {
    "why": {"regime", "summary", "coverage", "time_us", "floors", "work", "operators", "recommendations"},
    "verify": {"accepted", "reason", "accuracy", "input_sets", "golden", "sandbox"},
    "bench": {"variants", "comparisons"},
    "machine": {"name", "levels", "matrix_tflop_s"},
    "evidence": {"rows", "counts", "updated"},
    "optimize": {"regions", "output_file", "verdict", "bench"},
    "kernels": {"kernels"},
    "layout": {"expression", "kind", "result", "size", "cosize", "steps", "questions", "drawing"},
}
CALLS = [
    slow(("why", [SMALL, PROGRAMS / "small_right.py"], 0)),
    ("why", [SMALL, "--spec", "h200"], 0),
    slow(("verify", [SMALL, PROGRAMS / "small_right.py"], 0)),
    ("verify", [SMALL, PROGRAMS / "other_signature.py"], 1),
    slow(("optimize", [PROGRAMS / "by_value.py", "--show", "regions"], 0)),
    ("machine", [], 0),
    ("machine", ["--spec", "b200"], 0),
    ("evidence", ["status", "--kind", "layout", "--folder", "evidence"], 0),
    ("kernels", [], 0),
    ("layout", ["composition((6,2):(8,2), (4,3):(3,1))"], 0),
    ("layout", ["mma.m16n8k16.bf16.A"], 0),
    ("layout", ["bank_conflicts(32:32)"], 0),
    ("layout", ["size((4,8))"], 0),
]


@pytest.mark.parametrize(("verb", "words", "code"), CALLS, ids=lambda v: str(v)[-40:])
def test_every_verb_answers_with_one_document(kw, verb, words, code):
    assert asked(kw, verb, *words).code == code


def asked(kw, verb, *words):
    """The answer, which is the one document of this verb."""
    answer = kw(verb, *words, "--json")
    assert ENVELOPE | FIELDS[verb] <= answer.document.keys(), answer.err
    assert answer.document["schema"] == {"name": f"kernelwright.{verb}", "version": 2}
    assert answer.document["status"] == {0: "ok", 1: "finding"}[answer.code], answer.out
    return answer


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a CUDA device")
@pytest.mark.parametrize(
    "words",
    [
        ["why", SMALL],
        ["verify", SMALL, SMALL],
        ["bench", SMALL, SMALL],
        ["optimize", SMALL],
        ["machine"],
        ["judge-check"],
        ["evidence", "record"],
    ],
    ids=lambda words: words[0],
)
def test_a_device_that_is_not_there_is_an_error_of_the_environment(kw, words, tmp_path):
    out = ["--out", tmp_path / "out.py"] if words[0] == "optimize" else []
    answer = kw(*words, *out, "--device", "cuda")
    assert (answer.code, "no CUDA device" in " ".join(answer.err.split())) == (2, True), answer.err


def test_a_place_where_no_page_can_be_is_known_before_the_work(kw, tmp_path):
    missing = kw("machine", "--spec", "h200", "--html", tmp_path / "missing" / "page.html")
    assert (missing.code, "no folder" in " ".join(missing.err.split())) == (2, True)  # wrapped wherever the path ends
    folder = kw("machine", "--spec", "h200", "--html", tmp_path)
    assert (folder.code, "a folder" in " ".join(folder.err.split())) == (2, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["gemm_cpu", "--size", "0"], "nothing to compute"),
        (["gemm_cpu", "--device", "emulated"], "nothing to emulate"),
        (["gemm_cpu", "--device", "tpu"], "no device 'tpu'"),
        (["gemm_fp32", "--recorded", "evidence", "--rung", "77"], "no rung '77'"),
    ],
)
def test_a_ladder_that_cannot_be_climbed_so_says_why(kw, words, says):
    answer = kw("ladder", *words)
    assert (answer.code, says in answer.err) == (2, True), answer.err


def test_an_interrupted_verb_says_so(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_answer, "_run_supervised", interrupted)
    assert cli_answer.run_command("optimize", lambda: None, Record, cli_answer.OutputOptions(json=True)) == 130
    document = json.loads(capsys.readouterr().out)
    assert (document["status"], document["error"]["code"]) == ("error", "limit")


def test_why_says_the_parts_that_agents_read_and_leaves_a_page_without_network(kw, tmp_path):
    page = tmp_path / "page.html"
    found = asked(kw, "why", SMALL, "--html", page).document
    assert found["floors"].keys() >= {"as_written_us", "fused_us"}
    assert found["work"] == {"flops": 42_000, "bytes_as_written": 420_000, "bytes_fused": 252_000}
    assert all({"action", "predicted_us"} <= move.keys() for move in found["recommendations"])
    assert [row["name"] for row in found["operators"]] == ["add", "relu"]
    text = page.read_text()
    assert len(text) < 1_000_000
    assert "<script src" not in text
    assert 'href="http' not in text


def test_layout_says_the_parts_that_agents_read(kw, tmp_path):
    drawing = tmp_path / "drawing.svg"
    found = asked(kw, "layout", "logical_divide((4,2,3):(2,1,8), 4:2)", "--svg", drawing).document
    assert found["result"] == "((2,2),(2,3)):((4,1),(2,8))"
    assert [step["result"] for step in found["steps"]] == [found["result"]]
    assert {question["topic"] for question in found["questions"]} == {"bank conflicts", "coalescing", "swizzle"}
    assert found["drawing"]["texts"][0] == ["0", "2", "8", "10", "16", "18"]
    assert drawing.read_text().startswith("<svg")


def test_an_expression_that_has_no_answer_is_marked(kw):
    document = kw("layout", "coalesce(complement((4,6):(1,2), 24))", "--json").document
    assert document["error"]["where"] == "coalesce(>>complement((4,6):(1,2), 24)<<)"


@pytest.mark.slow
def test_bench_says_the_parts_that_agents_read(kw):
    found = asked(kw, "bench", STEADY, PROGRAMS / "steady_right.py", "--pairs", "5", "--baseline", "eager").document
    assert {variant["name"] for variant in found["variants"]} == {"candidate", "eager"}
    assert all({"time_us", "low_us", "high_us", "floor_us"} <= variant.keys() for variant in found["variants"])
    (comparison,) = found["comparisons"]
    assert comparison["verdict"] in ("FASTER", "SAME", "SLOWER", "UNCLEAR")
    assert comparison["low"] <= comparison["speedup"] <= comparison["high"]


@pytest.mark.slow
def test_a_machine_that_is_not_there_is_predicted_and_nobody_is_called_faster(kw):
    found = asked(kw, "bench", SMALL, PROGRAMS / "small_right.py", "--spec", "h200").document
    assert found["predicted"]
    assert found["comparisons"] == []
    # Two launches of 5 us each; the memory would need 420 KB / 4.8 TB/s.
    times_us = {variant["name"]: variant["time_us"] for variant in found["variants"]}
    assert times_us["eager"] == pytest.approx(10.0)
    assert all(variant["timing"] is None for variant in found["variants"])
    verdict = asked(kw, "verify", SMALL, PROGRAMS / "small_right.py", "--spec", "h200").document
    assert any("predicted" in note for note in verdict["notes"])


def test_optimize_leaves_one_file_that_is_proved_and_timed(kw, tmp_path):
    out = tmp_path / "faster.py"
    answer = asked(kw, "optimize", STEADY, "--baseline", "eager", "--out", out)
    found = answer.document
    assert answer.code == 0
    assert found["output_file"] == str(out)
    assert found["source"] == out.read_text()
    assert [file.name for file in tmp_path.iterdir()] == ["faster.py"]
    assert found["verdict"]["accepted"]
    assert {variant["name"] for variant in found["bench"]["variants"]} == {"candidate", "eager"}
    (region,) = found["regions"]
    assert region["winner"] in {attempt["name"] for attempt in region["attempts"]} | {"torch"}
    assert min(region["floor_us"], region["before_us"]) > 0, "which is less is for a quiet machine to say"
    assert kw("verify", STEADY, out, "--json").document["accepted"]


def test_a_plan_writes_nothing(kw):
    before = sorted(PROGRAMS.iterdir())
    found = asked(kw, "optimize", SMALL, "--show", "regions").document
    assert (found["output_file"], found["source"], found["verdict"], found["bench"]) == ("", "", None, None)
    assert "relu" in found["regions"][0]["text"]
    assert sorted(PROGRAMS.iterdir()) == before


@pytest.mark.parametrize("show", ["regions", "all"])
def test_a_plan_is_shown_as_text(kw, show):
    answer = kw("optimize", SMALL, "--show", show)
    assert (answer.code, "relu" in answer.out) == (0, True)


def test_a_wrong_option_leaves_no_file(kw, tmp_path):
    answer = kw("optimize", SMALL, "--baseline", "magic", "--out", tmp_path / "faster.py", "--json")
    assert (answer.code, answer.document["error"]["code"]) == (2, "usage")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_rejected_candidate_is_not_timed(kw):
    answer = kw("bench", SMALL, PROGRAMS / "small_wrong.py", "--pairs", "5", "--baseline", "eager", "--json")
    assert answer.code == 1
    assert answer.document["variants"] == []
    assert answer.document["verdicts"][0]["reason"]["code"] == "inaccurate"


BAD = [
    (["why", PROGRAMS / "missing.py"], "not-found"),
    (["why", PROGRAMS / "no_model.py"], "problem-error"),
    (["why", PROGRAMS / "raises.py"], "problem-error"),
    (["why", PROGRAMS / "endless.py", "--limit", "1"], "timeout"),
    (["why", PROGRAMS / "greedy.py"], "out-of-memory"),
    (["verify", PROGRAMS / "nan.py", PROGRAMS / "nan.py"], "problem-error"),
    slow((["verify", PROGRAMS / "raises.py", PROGRAMS / "raises.py"], "problem-error")),
    (["why", SMALL, "--device", "tpu"], "usage"),
    (["why", SMALL, "--spec", "z80"], "not-found"),
    (["why"], "usage"),
    (["bench", SMALL, PROGRAMS / "small_right.py", "--baseline", "magic"], "usage"),
    (["bench", SMALL, PROGRAMS / "small_right.py", "--spec", "z80"], "not-found"),
    (["verify", SMALL, PROGRAMS / "small_right.py", "--spec", "z80"], "not-found"),
    (["bench", SMALL, PROGRAMS / "small_right.py", "--pairs", "2"], "usage"),
    (["verify", SMALL, PROGRAMS / "small_right.py", "--tolerance", "tight"], "usage"),
    (["why", SMALL, "--html", "/nowhere/page.html"], "usage"),
    (["optimize", PROGRAMS / "missing.py"], "not-found"),
    (["optimize", PROGRAMS / "no_model.py"], "problem-error"),
    (["optimize", SMALL, "--out", SMALL], "usage"),
    (["optimize", SMALL, "--show", "nonsense"], "usage"),
    (["optimize", SMALL, "--out", "/nowhere/faster.py"], "usage"),
    (["optimize", SMALL, "--device", "tpu"], "usage"),
    (["evidence", "record", "nothing"], "not-found"),
    (["evidence", "record", "--kind", "nothing"], "usage"),
    (["evidence", "record", "--kind", "layout"], "no-device"),
    (["layout", "(4,2:(2,1)"], "layout"),
    (["layout", "composition((6,2):(1,7), (3,2):(2,3))"], "layout"),
    (["layout", "(4,2):(1,-4)"], "layout"),
    (["layout", "9223372036854775808:1"], "layout"),
    (["layout", "4:1", "--tile", "16"], "usage"),
    (["layout", "4:1", "--element-bytes", "3"], "layout"),
    (["layout", "4:1", "--colour", "red"], "layout"),
    (["layout", "4:1", "--svg", "/nowhere/drawing.svg"], "usage"),
    (["layout", "size(4:1)", "--svg", "/tmp/never_written.svg"], "usage"),
    (["evidence", "status", "--folder", "nowhere"], "not-found"),
    (["why", "--", "python", "absent.py"], "not-found"),
    (["why", "--spec", "h200", "--", "python", PROGRAMS / "script.py"], "usage"),
    (["why", "--compile", "--", "python", PROGRAMS / "script.py"], "usage"),
    (["why", "--limit", "1", "--", "python", PROGRAMS / "endless_script.py"], "timeout"),
]


@pytest.mark.parametrize(
    ("words", "code"), BAD, ids=lambda v: " ".join(Path(str(w)).name for w in v) if isinstance(v, list) else v
)
def test_bad_input_is_one_clear_error(kw, words, code):
    cut = words.index("--") if "--" in words else len(words)
    answer = kw(*words[:cut], "--json", *words[cut:])
    assert answer.code == 2, answer.out + answer.err
    error = answer.document["error"]
    assert error["code"] == code
    assert error["message"]
    assert answer.document["next"], "every error says what to do next"
    assert "Traceback" not in answer.out + answer.err
    assert not left_running()


def test_a_cache_that_cannot_be_written_is_no_bug_of_ours(kw):
    answer = kw("machine", "--json", KERNELWRIGHT_CACHE="/proc/nowhere")
    assert (answer.code, answer.document["error"]["code"]) == (2, "environment")
    assert "/proc/nowhere" in answer.document["error"]["message"]


def test_the_same_error_reads_well(kw):
    answer = kw("why", PROGRAMS / "missing.py")
    assert (answer.code, answer.out) == (2, "")
    assert "missing.py" in answer.err
    assert "next:" in answer.err


def test_debug_shows_the_traceback(kw):
    assert "no luck with (3,)" in kw("why", PROGRAMS / "raises.py", "--debug").err


@pytest.mark.slow
def test_an_unregistered_operator_gets_no_verdict(kw):
    found = kw("why", PROGRAMS / "unregistered.py", "--json").document
    assert found["regime"] == "undetermined"
    assert found["coverage"] < 0.8
    assert "mystery" in found["summary"]


def test_a_running_script_is_watched_and_cannot_corrupt_the_document(kw):
    answer = kw("why", "--json", "--", "python", PROGRAMS / "script.py")
    assert [row["name"] for row in answer.document["operators"] if row["flops"] == 3 * 2 * 64**3] == ["mm"]
    assert "a line of the script's own" in answer.err


@pytest.mark.slow
def test_the_page_of_a_finding_holds_the_document_of_the_run(kw, tmp_path):
    page = tmp_path / "page.html"
    answer = kw("verify", SMALL, PROGRAMS / "small_wrong.py", "--json", "--html", page)
    kept = json.loads(html.unescape(page.read_text().partition("<pre>")[2].partition("</pre>")[0]))
    assert kept == answer.document
    assert kept["status"] == "finding"


def test_help_lists_every_verb(kw):
    text = kw("--help").out
    assert all(f"\n  {verb}" in text for verb in FIELDS)
    assert "Traceback" not in text


def left_running():
    """Processes that outlived a kw of this test run: they are known by the private cache in their environment."""
    found = []
    for process in psutil.process_iter(["pid"]):
        try:
            if (
                process.pid != os.getpid()
                and process.environ().get("KERNELWRIGHT_CACHE") == os.environ["KERNELWRIGHT_CACHE"]
            ):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_import_is_cheap():
    look = "print(json.dumps(sorted(m for m in sys.modules if m.startswith('kernelwright'))))"
    code = f"import kernelwright, sys, json; {look}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ["kernelwright"], "importing the package loads nothing else of it"
