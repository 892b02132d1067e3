"""`kw optimize`: what the file does, the modules or regions, the verdict and the bench; the largest within 38 lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from kernelwright.core.optimization import ModuleOutcome, Optimization, RegionOutcome
from kernelwright.core.units import number_text, time_text
from kernelwright.report import format, module_rows, optimization, optimization_headline
from kernelwright.report.terminal import bench, verdict
from kernelwright.report.terminal.console import TerminalWriter
from kernelwright.report.terminal.diagnosis import write_summary

MAX_REGIONS, MAX_FALLBACKS, MAX_MODULES = 8, 6, 16
MAX_NOTES, MAX_NOTE_LENGTH = 6, 300
TIMES = ("before", "predicted", "after", "x floor")
HOW_TO_SEE_ALL = "--html FILE or --json for all"


def write(result: Optimization, writer: TerminalWriter) -> None:
    """Write the result of an optimization, the headline first."""
    if result.verdict is None:
        return _plan(result, writer)
    head, tail = partial(_head, result, writer), partial(_tail, result, writer)
    space = None
    if writer.max_lines:
        space = writer.max_lines - writer.count_lines(head) - writer.count_lines(tail)
    head()
    _parts(result, writer, space)
    tail()
    return None


def _head(result: Optimization, writer: TerminalWriter) -> None:
    writer.print_paragraph(optimization_headline.headline_text(result), 0, "bold")
    writer.print_paragraph(f"{format.sanitize_line(result.problem)}: {optimization.setup_text(result)}", 0, "dim")
    if result.diagnosis:
        write_summary(result.diagnosis, writer)
    writer.print_line()


def _tail(result: Optimization, writer: TerminalWriter) -> None:
    assert result.verdict
    _rewrites(result, writer)
    writer.print_line()
    verdict.write(result.verdict, writer)
    if result.bench:
        bench.write(result.bench, writer)
    notes = optimization.joined_notes(result)
    for note in notes[:MAX_NOTES]:
        writer.print_paragraph(note if len(note) <= MAX_NOTE_LENGTH else f"{note[:MAX_NOTE_LENGTH]} ...", 0, "dim")
    if len(notes) > MAX_NOTES:
        writer.print_line((f"and {number_text(len(notes) - MAX_NOTES, 'more note')}; --json for all", "dim"))
    if result.budget:
        writer.print_paragraph(optimization_headline.budget_text(result.budget), 0, "dim")
    if result.output_file:
        writer.print_line(f"wrote {format.sanitize_line(result.output_file)}")


def _parts(result: Optimization, writer: TerminalWriter, space: int | None) -> None:
    """The modules, or the regions of a program with one module; as many as there is space for."""
    if len(result.modules) > 1:
        limit = MAX_MODULES if space is not None else len(result.modules)
        return _largest(partial(_modules, result, writer), writer, limit, space)
    limit = MAX_REGIONS if space is not None else len(result.regions)
    return _largest(partial(_regions, result, writer), writer, limit, space)


def _largest(write: Callable[[int], None], writer: TerminalWriter, limit: int, space: int | None) -> None:
    """Write as many rows as fit, at least one."""
    while space is not None and limit > 1 and writer.count_lines(partial(write, limit)) > space:
        limit -= 1
    write(limit)


# ---- modules


def _modules(result: Optimization, writer: TerminalWriter, limit: int) -> None:
    """A row for each module, what was gained and left in it below or next to it, then the smaller ones."""
    rows, smaller = module_rows.module_rows(result, limit)
    head, table, notes = _module_layout(result, rows, writer)
    writer.print_table(head, table, notes)
    if smaller:
        writer.print_line("  ", (f"and {smaller}; {HOW_TO_SEE_ALL}", "dim"))
    if unused := optimization.unused_text(result):
        writer.print_paragraph(f"kernels {unused}", 2, "dim")
    writer.print_paragraph(module_rows.caption(result), 2, "dim")


def _module_layout(
    result: Optimization, modules: Sequence[ModuleOutcome], writer: TerminalWriter
) -> tuple[list[str], list[list[str]], list[list[str]]]:
    """Return head, rows and row notes; the texts move to the notes if the rows are too wide."""
    head = ["module", "before", "after", "share", "bound by", "what"]
    rows = [
        [
            module_rows.module_name(module, result),
            *module_rows.module_times(module),
            format.sanitize_line(module.limiter) or "-",
            module_rows.module_text(module, result) or "-",
        ]
        for module in modules
    ]
    if writer.table_fits(head, rows):
        return head, rows, [[] for _ in rows]
    return head[:-1], [row[:-1] for row in rows], [[row[-1]] for row in rows]


# ---- regions


def _regions(result: Optimization, writer: TerminalWriter, limit: int) -> None:
    """A row for each region, with notes below it for cells that do not fit; then the regions without a kernel."""
    rows, num_hidden = optimization.region_rows(result, limit)
    if rows:
        head, table, notes = _layout(rows, writer)
        writer.print_table(head, table, notes)
    else:
        writer.print_line("  ", optimization.NO_REGIONS)
    if num_hidden:
        writer.print_line("  ", (f"{optimization.more_text(num_hidden)}; {HOW_TO_SEE_ALL}", "dim"))
    for region in rows:
        if not region.has_kernel or region.not_used:
            text = f"{optimization.region_name(region)}: {optimization.outcome_text(region)}"
            writer.print_paragraph(text, 4, "dim", first=["  "])
    _fallbacks(result, writer)


def _layout(
    regions: Sequence[RegionOutcome], writer: TerminalWriter
) -> tuple[list[str], list[list[str]], list[list[str]]]:
    """Return head, rows and row notes; computation and winner move to the notes if the rows are too wide."""
    names = [optimization.region_name(region) for region in regions]
    times = [_times(region) for region in regions]
    computations = [optimization.computation_text(region) or "-" for region in regions]
    winners = [optimization.winner_text(region) for region in regions]
    rows = [
        [name, computation, *row, winner]
        for name, computation, row, winner in zip(names, computations, times, winners, strict=True)
    ]
    if writer.table_fits(head := ["region", "computation", *TIMES, "winner"], rows):
        return head, rows, [[] for _ in regions]
    notes = [[f"winner: {winner}"] for winner in winners]
    if writer.table_fits(head[:-1], without_winner := [row[:-1] for row in rows]):
        return head[:-1], without_winner, notes
    rows = [[name, *row] for name, row in zip(names, times, strict=True)]
    return ["region", *TIMES], rows, [[what, *note] for what, note in zip(computations, notes, strict=True)]


def _times(region: RegionOutcome) -> list[str]:
    """Times of a region; one that was not tuned has none."""
    if not region.before_us:
        return [module_rows.NOT_TIMED, "-", "-", "-"]
    return [
        *map(time_text, (region.before_us, region.predicted_us, region.after_us)),
        format.ratio_text(region.after_us, region.floor_us),
    ]


def _rewrites(result: Optimization, writer: TerminalWriter) -> None:
    names = [f"{format.sanitize_line(rewrite.name)} x{rewrite.count:,}" for rewrite in result.rewrites]
    reason = next((rewrite.not_used for rewrite in result.rewrites if rewrite.not_used), "")
    if names:
        title = f"rewrites, not used ({reason})" if reason else "rewrites"
        writer.print_paragraph(f"{title}: {', '.join(names)}", 4, "dim", first=["  "])


def _fallbacks(result: Optimization, writer: TerminalWriter) -> None:
    for fallback in result.fallbacks[:MAX_FALLBACKS]:
        writer.print_paragraph(
            f"fallback operator {optimization.fallback_operator_text(fallback)}: "
            f"{optimization.fallback_reason_text(fallback)}",
            4,
            "dim",
            first=["  "],
        )
    if len(result.fallbacks) > MAX_FALLBACKS:
        writer.print_line("  ", (f"and {len(result.fallbacks) - MAX_FALLBACKS} more fallback operators", "dim"))


# ---- a plan


def _plan(result: Optimization, writer: TerminalWriter) -> None:
    """Write the regions as text, as all backends receive them: all, or the largest that there is space for."""
    space = None
    if writer.max_lines:
        space = writer.max_lines - writer.count_lines(partial(_fallbacks, result, writer))
    shown = optimization.plan_rows(result, space)
    for lines in shown:
        for line in lines:
            writer.print_line(line)
        writer.print_line()
    if num_hidden := len(result.regions) - len(shown):
        writer.print_line("  ", (f"and {number_text(num_hidden, 'more region')}; --show all for all", "dim"))
    _fallbacks(result, writer)
