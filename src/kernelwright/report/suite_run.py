"""Texts and curves of `kw suite run`, shared by terminal and page."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from kernelwright.core.suite_run import CaseOutcome, FastP, FastPCurve, SuiteRun
from kernelwright.core.units import number_text, percent_text
from kernelwright.report import format
from kernelwright.report.axes import LinearScale, LogScale, place_ticks
from kernelwright.report.drawing import render_template

NARROW_THRESHOLDS = (0.0, 0.8, 1.0, 1.5, 2.0, 5.0)
"""The thresholds shown in the narrow layout."""


def suite_summary(run: SuiteRun) -> str:
    """`9 of 12 candidates accepted for 8 problems, 63 % of problems FASTER than eager`."""
    accepted, candidates = sum(one.accepted for one in run.outcomes), number_text(len(run.outcomes), "candidate")
    faster = [
        f"{percent_text(point_at(one, 1.0).count_low / one.num_problems)} of problems FASTER than {one.baseline}"
        for one in run.curves
    ]
    return ", ".join([f"{accepted} of {candidates} accepted for {number_text(run.num_problems, 'problem')}", *faster])


def point_at(curve: FastPCurve, p: float) -> FastP:
    """Return the point of a curve at threshold `p`."""
    return next(one for one in curve.points if one.p == p)


def share_text(point: FastP, problems: int) -> str:
    """`63 %`, or `50-63 %` if intervals include the threshold."""
    low, high = round(100 * point.count_low / problems), round(100 * point.count_high / problems)
    return f"{low} %" if low == high else f"{low}-{high} %"


def threshold_text(p: float) -> str:
    """Format a threshold of fast_p."""
    return f"{p:g}"


def case_text(one: CaseOutcome) -> str:
    """Name the candidate, with its problem unless its name starts with it."""
    problem, candidate = format.sanitize_line(one.problem), format.sanitize_line(one.candidate)
    return candidate if candidate.startswith(problem.rpartition("/")[2]) else f"{problem}: {candidate}"


def baseline_comparison_text(one: CaseOutcome, baseline: str, *, brief: bool = False) -> str:
    """`FASTER 1.31x [1.28, 1.34]`, without the interval if `brief`; a dash if not timed."""
    comparison = one.comparison_with(baseline)
    if not comparison:
        return "-"
    text = f"{comparison.verdict} {format.factor_text(comparison.speedup)}"
    return text if brief else f"{text} {format.interval_text(comparison)}"


def case_details(one: CaseOutcome) -> list[str]:
    """Lines with the reason of a rejection or error, warnings on the problem, and suspicious times."""
    lines = [one.error.detail] if one.error else []
    if one.verdict:
        lines += [one.verdict.reason.detail.partition("\n")[0]] if one.verdict.reason else []
        lines += one.verdict.problem_warnings
    lines += [f"{variant.name}: {variant.suspicious}" for variant in one.variants if variant.suspicious]
    return [format.sanitize_line(line) for line in lines]


def suite_notes(run: SuiteRun) -> list[str]:
    """Lines on throughput, files without a counterpart, and reused results."""
    notes = [format.throughput_text(run.throughput)] if run.throughput else []
    for names, state in (
        (run.problems_without_candidate, "without a candidate"),
        (run.candidates_without_problem, "without a problem"),
        (run.unreadable_files, "not readable as Python"),
    ):
        if names:
            shown = ", ".join(format.sanitize_line(name) for name in names[:4]) + (", ..." if len(names) > 4 else "")
            kind = "problem" if names is run.problems_without_candidate else "file"
            notes.append(f"{number_text(len(names), kind)} {state}: {shown}")
    if run.reused_results:
        results = number_text(run.reused_results, "result")
        notes.append(f"{results} reused from an earlier run, in {format.sanitize_line(run.results_file)}")
    return notes


# ---- Curves


@dataclass(frozen=True)
class CurveFrame:
    """Size and margins of a drawing; `inline_labels` places the baselines' names next to their curves."""

    width: int
    height: int
    left: int
    right: int
    inline_labels: bool
    top: int = 12
    bottom: int = 46


WIDE, NARROW = CurveFrame(720, 300, 44, 96, inline_labels=True), CurveFrame(340, 280, 42, 12, inline_labels=False)


@dataclass(frozen=True)
class StepCurve:
    """The step curve of a baseline: a line at `count_low`, and a band up to `count_high`."""

    name: str
    line: str
    band: str
    label_y: float
    dots: tuple[tuple[float, float, str], ...]


def render_curves(run: SuiteRun) -> Markup:
    """Render fast_p over p, a step curve for each baseline, in a wide and a narrow layout."""
    points = [point.p for point in run.curves[0].points if point.p] if run.curves else []
    return (
        _render_curves(run, points, WIDE, "wide") + _render_curves(run, points, NARROW, "narrow")
        if points
        else Markup("")
    )


def _render_curves(run: SuiteRun, points: list[float], frame: CurveFrame, name: str) -> Markup:
    far, bottom = frame.width - frame.right, frame.height - frame.bottom
    x, y = LogScale(points[0], points[-1], frame.left, far), LinearScale(0, 1, bottom, frame.top)
    return render_template(
        "curves.svg.j2",
        frame=frame,
        name=name,
        far=far,
        bottom=bottom,
        grid=[x.position(p) for p in points],
        ticks=place_ticks([(x.position(p), threshold_text(p)) for p in points], frame.left, far, overhang=12),
        shares=[(y.position(share), percent_text(share)) for share in (0.0, 0.25, 0.5, 0.75, 1.0)],
        curves=_separate_labels([_step_curve(one, x, y) for one in run.curves]),
    )


def _step_curve(curve: FastPCurve, x: LogScale, y: LinearScale) -> StepCurve:
    points = [point for point in curve.points if point.p]
    low = [(x.position(point.p), y.position(point.count_low / curve.num_problems)) for point in points]
    high = [(x.position(point.p), y.position(point.count_high / curve.num_problems)) for point in points]
    dots = tuple(
        (
            *position,
            f"{share_text(point, curve.num_problems)} with a speedup above {threshold_text(point.p)} over "
            f"{curve.baseline}",
        )
        for position, point in zip(low, points, strict=True)
    )
    band = _path(low) + " L" + _path(high[::-1])[1:] + " Z"
    return StepCurve(curve.baseline, _path(low), band, low[-1][1], dots)


def _path(points: list[tuple[float, float]]) -> str:
    return "M" + " L".join(f"{x:g} {y:g}" for x, y in points)


def _separate_labels(curves: list[StepCurve]) -> list[StepCurve]:
    """Stack the labels of curves that end at a similar height."""
    separated: list[StepCurve] = []
    for one in sorted(curves, key=lambda curve: -curve.label_y):
        label_y = min(one.label_y, separated[-1].label_y - 16) if separated else one.label_y
        separated.append(StepCurve(one.name, one.line, one.band, label_y, one.dots))
    return separated
