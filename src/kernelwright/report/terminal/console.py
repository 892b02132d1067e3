"""Terminal output: width, characters and colours of the console, and the tables and paragraphs of all records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from kernelwright.report.format import sanitize_line

MIN_WIDTH, MAX_WIDTH = 80, 160
MAX_LINES = 38
"""Lines of a report that has parts to leave out; with the two lines on a page it fits a terminal of 40."""
REGIME_STYLE = {
    "compute-bound": "dark_orange",
    "memory-bound": "dodger_blue1",
    "overhead-bound": "gold3",
    "latency-bound": "medium_purple1",
    "undetermined": "grey58",
}
COMPARISON_STYLE = {"FASTER": "green3", "SAME": "grey58", "SLOWER": "red3", "UNCLEAR": "gold3"}
GOOD, BAD = "bold green3", "bold red3"
_ASCII = str.maketrans({"µ": "u", "…": "~", "→": "->", "–": "-", "—": "-", "×": "x", "·": ".", "’": "'", "≥": ">="})


@dataclass(frozen=True)
class TerminalWriter:
    """A console with its width and character set. All output passes through `print_line`, which filters characters.

    `max_lines` limits reports that can leave parts out; None shows everything.
    """

    console: Console
    width: int
    ascii_only: bool
    max_lines: int | None = MAX_LINES

    @classmethod
    def from_console(cls, console: Console, max_lines: int | None = MAX_LINES) -> TerminalWriter:
        """Return a writer for a console, with its width clamped to [`MIN_WIDTH`, `MAX_WIDTH`]."""
        encoding = (console.encoding or "").lower().replace("-", "").replace("_", "")
        width = min(max(console.width, MIN_WIDTH), MAX_WIDTH)
        return cls(console, width, not encoding.startswith("utf"), max_lines)

    def count_lines(self, write: Callable[[], object]) -> int:
        """The lines that `write` would print; nothing is printed."""
        with self.console.capture() as captured:
            write()
        return captured.get().count("\n")

    @property
    def column_gap(self) -> int:
        """Spaces between the columns of a table."""
        return 2 if self.width < 100 else 3

    def print_line(self, *pieces: str | tuple[str, str]) -> None:
        """Print a line of pieces, each a string or (string, style)."""
        line = Text()
        for piece in pieces:
            text, style = (piece, "") if isinstance(piece, str) else piece
            line.append(self.to_printable(text), style)
        line.rstrip()
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def to_printable(self, text: str) -> str:
        """Replace control characters, and characters that the console cannot encode."""
        text = "".join(c if c.isprintable() else " " for c in text)
        if not self.ascii_only:
            return text
        return text.translate(_ASCII).encode("ascii", "replace").decode()

    def print_paragraph(
        self, text: str, indent: int, style: str = "", first: Sequence[str | tuple[str, str]] = ()
    ) -> None:
        """Print text wrapped to the width with an indent; `first` replaces the indent of the first line."""
        lines = Text(text).wrap(self.console, self.width - indent)
        lead = list(first) or [" " * indent]
        for row in lines or [Text("")]:
            self.print_line(*lead, (row.plain.rstrip(), style))
            lead = [" " * indent]

    def shorten(self, text: str, max_width: int) -> str:
        """Shorten to `max_width` columns, keeping the end: the operator rather than its module.

        A module path loses whole names if possible: `decoder.layers.0.mlp linear` -> `…0.mlp linear`.
        """
        text = sanitize_line(text)
        if len(text) <= max_width:
            return text
        dots = (i for i, c in enumerate(text) if c == "." and i + 1 < len(text))
        start = next((i + 1 for i in dots if len(text) - i <= max_width), len(text) - max(max_width - 1, 0))
        return "…" + text[start:]

    def bar_text(self, fraction: float, max_width: int) -> str:
        """Return a bar of `fraction` of `max_width` columns, at least one column if it is not zero."""
        filled = round(min(max(fraction, 0.0), 1.0) * max_width)
        return ("#" if self.ascii_only else "█") * max(filled, int(fraction > 0))

    def print_header(self, title: str, subtitle: str) -> None:
        """Print title and subtitle on one line, or on separate lines if it is too short."""
        if len(title) + 10 + len(subtitle) <= self.width:
            return self.print_line((title, "bold"), " " * 10, (subtitle, "dim"))
        self.print_paragraph(title, 0, "bold")
        return self.print_paragraph(subtitle, 0, "dim")

    def table_fits(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
        """Whether a table fits without shortening its first column."""
        return 2 + sum(_column_widths([head, *rows])) + self.column_gap * (len(head) - 1) <= self.width

    def print_table(
        self, head: Sequence[str], rows: Iterable[Sequence[str]], row_notes: Sequence[Sequence[str]] | None = None
    ) -> None:
        """Print left-aligned columns, indented by two; the first column is shortened to fit the width.

        A column with only dashes is omitted. `row_notes` holds the lines below each row.
        """
        body = [list(row) for row in rows]
        columns = [i for i in range(len(head)) if i == 0 or any(row[i] != "-" for row in body)]
        head, body = [head[i] for i in columns], [[row[i] for i in columns] for row in body]
        widths = _column_widths([head, *body])
        available = self.width - 2 - sum(widths[1:]) - self.column_gap * (len(head) - 1)
        widths[0] = max(min(widths[0], available), 6)
        for i, row in enumerate([head, *body]):
            cells = [self.shorten(row[0], widths[0]), *row[1:]]
            line = (" " * self.column_gap).join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
            self.print_line("  ", (line, "" if i else "dim"))
            for note in row_notes[i - 1] if row_notes and i else ():
                self.print_paragraph(note, 4, "dim")


def _column_widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column."""
    return [max(map(len, column)) for column in zip(*rows, strict=True)]
