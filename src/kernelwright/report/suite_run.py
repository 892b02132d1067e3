"""A run over a suite in words and as a curve: what terminal and page both say of it."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from kernelwright.core.suite_run import Curve, FastP, Outcome, SuiteRun
from kernelwright.core.units import number_text, percent_text
from kernelwright.report import format
from kernelwright.report.axes import LinearScale, LogScale, ticks
from kernelwright.report.drawing import render

FEW_POINTS = (0.0, 0.8, 1.0, 1.5, 2.0, 5.0)
"""Of those that are counted, for narrow paper."""


def sentence(run: SuiteRun) -> str:
    """`9 of 12 candidates accepted, for 8 problems, 63 % of them FASTER than eager`."""
    accepted, many = sum(one.accepted for one in run.outcomes), number_text(len(run.outcomes), "candidate")
    won = [f"{percent_text(at(one, 1.0).sure / one.problems)} of them FASTER than {one.baseline}" for one in run.curves]
    return ", ".join([f"{accepted} of {many} accepted, for {number_text(run.problems, 'problem')}", *won])


def at(curve: Curve, p: float) -> FastP:
    return next(one for one in curve.points if one.p == p)


def share_text(point: FastP, problems: int) -> str:
    """`63 %`, or `50-63 %` where only some of them are sure."""
    low, high = round(100 * point.sure / problems), round(100 * point.possible / problems)
    return f"{low} %" if low == high else f"{low}-{high} %"


def p_text(p: float) -> str:
    return f"{p:g}"


def case_text(one: Outcome) -> str:
    """The candidate, which mostly is called like its problem."""
    problem, candidate = format.plain(one.problem), format.plain(one.candidate)
    return candidate if candidate.startswith(problem.rpartition("/")[2]) else f"{problem}: {candidate}"


def against_text(one: Outcome, baseline: str, *, brief: bool = False) -> str:
    """`FASTER 1.31x [1.28, 1.34]`, in brief without the interval; a dash where nothing was timed."""
    found = one.against(baseline)
    if not found:
        return "-"
    said = f"{found.verdict} {format.times_text(found.ratio)}"
    return said if brief else f"{said} {format.interval_text(found)}"


def details(one: Outcome) -> list[str]:
    """Why it was rejected or not judged, and what makes its problem prove little."""
    said = [one.error.detail] if one.error else []
    if one.verdict:
        said += [one.verdict.reason.detail.partition("\n")[0]] if one.verdict.reason else []
        said += one.verdict.degenerate
    said += [f"{arm.name}: {arm.suspicious}" for arm in one.arms if arm.suspicious]
    return [format.plain(line) for line in said]


def notes(run: SuiteRun) -> list[str]:
    """How fast verdicts came, what was not judged, and what came from an earlier run."""
    found = [format.pace_text(run.pace)] if run.pace else []
    for names, what in (
        (run.idle, "without a candidate"),
        (run.lost, "without a problem"),
        (run.unread, "that Python cannot read"),
    ):
        if names:
            shown = ", ".join(format.plain(name) for name in names[:4]) + (", ..." if len(names) > 4 else "")
            kind = "problem" if names is run.idle else "file"
            found.append(f"{number_text(len(names), kind)} {what}: {shown}")
    if run.kept:
        found.append(f"{number_text(run.kept, 'result')} kept from an earlier run, in {format.plain(run.results)}")
    return found


# ---- The curve


@dataclass(frozen=True)
class Frame:
    """The drawing's size and the margins around the axes; `named` has the baselines' names beside their curves."""

    width: int
    height: int
    left: int
    right: int
    named: bool
    top: int = 12
    bottom: int = 46


WIDE, NARROW = Frame(720, 300, 44, 96, named=True), Frame(340, 280, 42, 12, named=False)


@dataclass(frozen=True)
class Stairs:
    """One baseline's curve: what is sure as a line, what is possible as the top of a band above it."""

    name: str
    line: str
    band: str
    label_y: float
    dots: tuple[tuple[float, float, str], ...]


def curves(run: SuiteRun) -> Markup:
    """fast_p over p, a stair for each baseline: for wide paper, and for narrow with the names below."""
    points = [point.p for point in run.curves[0].points if point.p] if run.curves else []
    return _draw(run, points, WIDE, "wide") + _draw(run, points, NARROW, "narrow") if points else Markup("")


def _draw(run: SuiteRun, points: list[float], frame: Frame, name: str) -> Markup:
    far, bottom = frame.width - frame.right, frame.height - frame.bottom
    x, y = LogScale(points[0], points[-1], frame.left, far), LinearScale(0, 1, bottom, frame.top)
    return render(
        "curves.svg.j2",
        frame=frame,
        name=name,
        far=far,
        bottom=bottom,
        grid=[x.at(p) for p in points],
        ticks=ticks([(x.at(p), p_text(p)) for p in points], frame.left, far, overhang=12),
        shares=[(y.at(share), percent_text(share)) for share in (0.0, 0.25, 0.5, 0.75, 1.0)],
        stairs=_apart([_stairs(one, x, y) for one in run.curves]),
    )


def _stairs(curve: Curve, x: LogScale, y: LinearScale) -> Stairs:
    points = [point for point in curve.points if point.p]
    low = [(x.at(point.p), y.at(point.sure / curve.problems)) for point in points]
    high = [(x.at(point.p), y.at(point.possible / curve.problems)) for point in points]
    dots = tuple(
        (*place, f"{share_text(point, curve.problems)} more than {p_text(point.p)} times as fast as {curve.baseline}")
        for place, point in zip(low, points, strict=True)
    )
    band = _path(low) + " L" + _path(high[::-1])[1:] + " Z"
    return Stairs(curve.baseline, _path(low), band, low[-1][1], dots)


def _path(points: list[tuple[float, float]]) -> str:
    return "M" + " L".join(f"{x:g} {y:g}" for x, y in points)


def _apart(stairs: list[Stairs]) -> list[Stairs]:
    """Their names one above the other where the curves end together."""
    found: list[Stairs] = []
    for one in sorted(stairs, key=lambda stair: -stair.label_y):
        top = min(one.label_y, found[-1].label_y - 16) if found else one.label_y
        found.append(Stairs(one.name, one.line, one.band, top, one.dots))
    return found
