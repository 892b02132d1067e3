"""The backend on models against its targets, from runs made by hand."""

import pytest

from kernelwright.core.backend_run import BackendRun
from kernelwright.core.evidence import RowGroup, RowState
from kernelwright.core.median_times import MedianTime
from kernelwright.report.backend import COLUMNS, markdown, summarize_runs, summary_text


def run(name, ours=50.0, compiled=60.0, eager=100.0, seconds=(4.0, 6.0), **failure):
    times = {"kernelwright": ours, "torch.compile": compiled, "eager": eager}
    return BackendRun(
        name=name,
        first_call_s=dict(zip(("torch.compile", "kernelwright"), seconds, strict=False)),
        times={}
        if failure
        else {one: MedianTime(time_us=us, low_us=us * 0.99, high_us=us * 1.01) for one, us in times.items()},
        **failure,
    )


def group(*runs, state="current", reason=""):
    states = tuple(
        RowState(
            kind="backend", workload=one.name, variant="", machine="m", state=state, reason=reason, date="2026-11-28"
        )
        for one in runs
    )
    return RowGroup(
        name="backend", machine="NVIDIA H200", device="cuda", environment={"torch": "2.11"}, results=runs, states=states
    )


FAILED = run("mlp/large", reason="inaccurate", detail="kernelwright: a | b")


def test_the_summary_has_means_and_the_models_at_the_limits():
    found = summarize_runs([run("a/small"), run("b/small", ours=100.0, compiled=99.0, seconds=(2.0, 7.0)), FAILED])
    assert (found.models, found.slowest, found.slowest_over_eager) == (2, "b/small", 1.0)
    assert (found.longest, found.first_call_ratio) == ("b/small", 3.5)
    assert found.over_eager == pytest.approx(2.0**0.5)
    assert found.over_compile == pytest.approx((1.2 * 0.99) ** 0.5)


def test_the_line_states_each_target():
    assert summary_text([run("a/small"), run("b/small", ours=50.0, compiled=60.0, eager=48.0)]) == (
        "2 models: geometric mean 1.39x over eager, 1.20x (target: at least 1.00x, met) over torch.compile; slowest "
        "against eager 0.96x (target: at least 0.95x, met), b/small; longest first call 1.50x (target: at most 3.00x, "
        "met) that of torch.compile, a/small."
    )
    missed = summary_text([run("a/small", ours=110.0, compiled=100.0, seconds=(1.0, 3.1)), FAILED])
    assert missed.count("not met") == 3
    assert missed.endswith(" 1 model failed: mlp/large.")
    assert summary_text([FAILED]) == "No model was measured. 1 model failed: mlp/large."


def test_every_model_has_a_line_with_its_state():
    text = markdown([group(run("mlp/small"), FAILED, state="superseded", reason="its code has changed")])
    lines = [line for line in text.splitlines() if line.startswith("| mlp")]
    assert [line.split()[1] for line in lines] == ["mlp/large", "mlp/small"]
    assert {line.replace("\\|", "").count("|") for line in lines} == {len(COLUMNS) + 1}
    assert "| 100 us ±1.0 % | 60.0 us ±1.0 % | 50.0 us ±1.0 % | 2.00x | 1.20x | 4.0 s | 6.0 s | 1.50x |" in lines[1]
    assert lines[1].endswith("| correct | 2026-11-28: superseded |")
    assert r"| inaccurate: kernelwright: a \| b |" in lines[0]
    assert "Its code has changed." in text


def test_without_rows_the_page_names_the_command():
    assert markdown([]) == "No rows yet: run `kw evidence record --kind backend`.\n"
