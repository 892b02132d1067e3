"""The sample of KernelBench problems against its targets, from runs made by hand."""

import pytest

from kernelwright.core.evidence import RowGroup, RowState
from kernelwright.core.kernelbench import ProblemRun, is_in_sample, problem_number
from kernelwright.core.median_times import MedianTime
from kernelwright.report.kernelbench import COLUMNS, markdown, summarize_runs


def median(time_us):
    return MedianTime(time_us=time_us, low_us=0.99 * time_us, high_us=1.01 * time_us)


def run(name, ours=50.0, compiled=100.0, eager=100.0, wall_s=30.0, **changes):
    times = {"kernelwright": ours, "torch.compile": compiled, "eager": eager}
    times = {name: median(one) for name, one in times.items() if one}
    fields = {"accepted": True, "winner": "kernels", "num_regions": 2, "num_kernels": 1, "times": times}
    return ProblemRun(name=name, wall_s=wall_s, **(fields | changes))


def group(runs, state="current", reason=""):
    states = [
        RowState(
            kind="kernelbench",
            workload=one.name,
            variant="",
            machine="m",
            state=state,
            reason=reason,
            date="2026-11-28",
        )
        for one in runs
    ]
    return RowGroup(
        name="kernelbench",
        machine="NVIDIA H200",
        device="cuda",
        environment={"torch": "2.11"},
        results=tuple(runs),
        states=tuple(states),
    )


def summary_of(text):
    """The rows of the first table: label to its measured number, target and whether it is met."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "|" in line]
    return {cells[0]: tuple(cells[1:]) for cells in lines if len(cells) == 4}


WHOLE = [run(f"level{level}/{number}_p") for level in (1, 2) for number in range(1, 98, 4)]
WHOLE += [run(f"level3/{number}_p") for number in range(1, 50, 2)]


def test_the_sample_has_75_problems():
    assert len(WHOLE) == 75
    assert all(is_in_sample(one.name) for one in WHOLE)
    assert not is_in_sample("level1/4_p")
    assert not is_in_sample("level4/1_p")
    assert problem_number("level2/41_p") == ("level2", 41)
    assert problem_number("other") == ("", 0)


def test_a_sample_that_reaches_every_target():
    assert summary_of(markdown([group(WHOLE)])) == {
        "": ("measured", "target", ""),
        "---": ("---", "---", "---"),
        "accepted": ("75 of 75", "all", "met"),
        "median time of `kw optimize`": ("30 s", "at most 60 s", "met"),
        "longest time": ("30 s", "at most 150 s", "met"),
        "speedup over torch.compile": ("2.00x", "at least 1.25x", "met"),
        "speedup over the best of eager and torch.compile": ("2.00x", "", ""),
        "below 0.98x the best of eager and torch.compile": ("none", "none", "met"),
        "fast_1 over torch.compile": ("1.00", "at least 0.85", "met"),
    }


def test_a_part_of_the_sample_meets_targets_only_so_far():
    found = summary_of(markdown([group(WHOLE[:-1])]))
    assert found["accepted"] == ("74 of 75, 1 not measured", "all", "not met")
    assert {found[label][2] for label in ("longest time", "speedup over torch.compile")} == {"met so far"}


def test_what_is_missing_or_slow_misses_its_target():
    runs = [
        run("level1/1_slow", ours=100.0, compiled=120.0, eager=90.0, wall_s=151.0),
        run("level1/5_same", ours=100.0, compiled=100.0, wall_s=61.0),
        run("level1/9_untimed", times={}, wall_s=61.0),
        run("level1/13_wrong", accepted=False, reason="inaccurate", detail="a | b"),
    ]
    found = summarize_runs(runs)
    assert (found.problems, found.accepted, found.untimed, found.slower) == (4, 3, 1, 1)
    assert found.speedup_over_compile == pytest.approx(1.2**0.5)
    assert found.speedup_over_best == pytest.approx(0.9**0.5)
    assert found.fast_1 == pytest.approx(1 / 75)
    text = markdown([group(runs)])
    assert {cells[2] for label, cells in summary_of(text).items() if cells[1].startswith(("a", "n"))} == {"not met"}
    assert summary_of(text)["accepted"][0] == "3 of 75, 71 not measured"
    assert summary_of(text)["below 0.98x the best of eager and torch.compile"][0] == "1 problem, 1 not timed"


def test_without_torch_compile_a_problem_is_compared_with_eager():
    found = summarize_runs([run("level3/1_p", ours=50.0, compiled=None, eager=75.0)])
    assert (found.speedup_over_compile, found.speedup_over_best, found.fast_1) == (None, 1.5, 0.0)
    assert summary_of(markdown([group([run("level3/1_p", compiled=None)])]))["speedup over torch.compile"] == (
        "-",
        "at least 1.25x",
        "not met",
    )


def test_every_problem_has_a_line_in_order_with_its_state():
    runs = [
        run("level2/5_p", left_out=("torch.compile, channels-last",)),
        run("level1/13_p", accepted=False, reason="crash", detail="a | b", times={}, num_regions=0),
        run("level1/9_p"),
    ]
    text = markdown([group(runs, "superseded", "its code has changed")])
    lines = [line for line in text.splitlines() if line.startswith("| level")]
    assert [line.split()[1] for line in lines] == ["level1/9_p", "level1/13_p", "level2/5_p"]
    assert {line.replace("\\|", "").count("|") for line in lines} == {len(COLUMNS) + 1}
    assert "| 50.0 us ±1.0 % | 100 us ±1.0 % | 100 us ±1.0 % | 2.00x | 2.00x | kernels | 1 of 2 regions |" in lines[0]
    assert r"| rejected: crash: a \| b |" in lines[1]
    assert "| torch.compile, channels-last | 2026-11-28: superseded |" in lines[2]
    assert "Its code has changed." in text


def test_without_rows_the_page_names_the_command():
    assert markdown([]) == "No rows yet: run `kw evidence record --kind kernelbench --suite DIR`.\n"
