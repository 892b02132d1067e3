"""A run over a suite in words and as a curve: what terminal and page both say of it."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from kernelwright.core.suite_run import CaseOutcome, FastP, FastPCurve, SuiteRun
from kernelwright.core.units import number_text, percent_text
from kernelwright.report import format
from kernelwright.report.axes import LinearScale, LogScale, place_ticks
from kernelwright.report.drawing import render_template

NARROW_THRESHOLDS = (0.0, 0.8, 1.0, 1.5, 2.0, 5.0)
"""Of those that are counted, for narrow paper."""


def suite_summary(run: SuiteRun) -> str:
    """`9 of 12 candidates accepted, for 8 problems, 63 % of them FASTER than eager`."""
    accepted, many = sum(one.accepted for one in run.outcomes), number_text(len(run.outcomes), "candidate")
    won = [
        f"{percent_text(point_at(one, 1.0).count_low / one.num_problems)} of them FASTER than {one.baseline}"
        for one in run.curves
    ]
    return ", ".join([f"{accepted} of {many} accepted, for {number_text(run.num_problems, 'problem')}", *won])


def point_at(curve: FastPCurve, p: float) -> FastP:
    return next(one for one in curve.points if one.p == p)


def share_text(point: FastP, problems: int) -> str:
    """`63 %`, or `50-63 %` where only some of them are sure."""
    low, high = round(100 * point.count_low / problems), round(100 * point.count_high / problems)
    return f"{low} %" if low == high else f"{low}-{high} %"


def threshold_text(p: float) -> str:
    return f"{p:g}"


def case_text(one: CaseOutcome) -> str:
    """The candidate, which mostly is called like its problem."""
    problem, candidate = format.sanitize_line(one.problem), format.sanitize_line(one.candidate)
    return candidate if candidate.startswith(problem.rpartition("/")[2]) else f"{problem}: {candidate}"


def baseline_comparison_text(one: CaseOutcome, baseline: str, *, brief: bool = False) -> str:
    """`FASTER 1.31x [1.28, 1.34]`, in brief without the interval; a dash where nothing was timed."""
    found = one.comparison_with(baseline)
    if not found:
        return "-"
    said = f"{found.verdict} {format.factor_text(found.speedup)}"
    return said if brief else f"{said} {format.interval_text(found)}"


def case_details(one: CaseOutcome) -> list[str]:
    """Why it was rejected or not judged, and what makes its problem prove little."""
    said = [one.error.detail] if one.error else []
    if one.verdict:
        said += [one.verdict.reason.detail.partition("\n")[0]] if one.verdict.reason else []
        said += one.verdict.problem_warnings
    said += [f"{arm.name}: {arm.suspicious}" for arm in one.variants if arm.suspicious]
    return [format.sanitize_line(line) for line in said]


def suite_notes(run: SuiteRun) -> list[str]:
    """How fast verdicts came, what was not judged, and what came from an earlier run."""
    found = [format.throughput_text(run.throughput)] if run.throughput else []
    for names, what in (
        (run.problems_without_candidate, "without a candidate"),
        (run.candidates_without_problem, "without a problem"),
        (run.unreadable_files, "that Python cannot read"),
    ):
        if names:
            shown = ", ".join(format.sanitize_line(name) for name in names[:4]) + (", ..." if len(names) > 4 else "")
            kind = "problem" if names is run.problems_without_candidate else "file"
            found.append(f"{number_text(len(names), kind)} {what}: {shown}")
    if run.reused_results:
        found.append(
            f"{number_text(run.reused_results, 'result')} kept from an earlier run, in "
            f"{format.sanitize_line(run.results_file)}"
        )
    return found


# ---- The curve


@dataclass(frozen=True)
class CurveFrame:
    """The drawing's size and the margins around the axes; `inline_labels` has the baselines' names beside their
    curves."""

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
    """One baseline's curve: what is sure as a line, what is possible as the top of a band above it."""

    name: str
    line: str
    band: str
    label_y: float
    dots: tuple[tuple[float, float, str], ...]


def render_curves(run: SuiteRun) -> Markup:
    """fast_p over p, a stair for each baseline: for wide paper, and for narrow with the names below."""
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
        stairs=_separate_labels([_step_curve(one, x, y) for one in run.curves]),
    )


def _step_curve(curve: FastPCurve, x: LogScale, y: LinearScale) -> StepCurve:
    points = [point for point in curve.points if point.p]
    low = [(x.position(point.p), y.position(point.count_low / curve.num_problems)) for point in points]
    high = [(x.position(point.p), y.position(point.count_high / curve.num_problems)) for point in points]
    dots = tuple(
        (
            *place,
            f"{share_text(point, curve.num_problems)} more than {threshold_text(point.p)} times "
            f"as fast as {curve.baseline}",
        )
        for place, point in zip(low, points, strict=True)
    )
    band = _path(low) + " L" + _path(high[::-1])[1:] + " Z"
    return StepCurve(curve.baseline, _path(low), band, low[-1][1], dots)


def _path(points: list[tuple[float, float]]) -> str:
    return "M" + " L".join(f"{x:g} {y:g}" for x, y in points)


def _separate_labels(stairs: list[StepCurve]) -> list[StepCurve]:
    """Their names one above the other where the curves end together."""
    found: list[StepCurve] = []
    for one in sorted(stairs, key=lambda stair: -stair.label_y):
        top = min(one.label_y, found[-1].label_y - 16) if found else one.label_y
        found.append(StepCurve(one.name, one.line, one.band, top, one.dots))
    return found
