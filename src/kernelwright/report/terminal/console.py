"""What the terminal can show: its width, its characters, its colours; and the few shapes that every record uses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from kernelwright.report.format import sanitize_line

MIN_WIDTH, MAX_WIDTH = 80, 160
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
    """A console with what it can show. Every line goes through `print_line`, so that none holds what it cannot
    print."""

    console: Console
    width: int
    ascii_only: bool

    @classmethod
    def from_console(cls, console: Console) -> TerminalWriter:
        encoding = (console.encoding or "").lower().replace("-", "").replace("_", "")
        return cls(console, min(max(console.width, MIN_WIDTH), MAX_WIDTH), not encoding.startswith("utf"))

    @property
    def column_gap(self) -> int:
        """Columns between the columns of a table."""
        return 2 if self.width < 100 else 3

    def print_line(self, *pieces: str | tuple[str, str]) -> None:
        """One line from pieces, each a string or (string, style)."""
        text = Text()
        for piece in pieces:
            words, style = (piece, "") if isinstance(piece, str) else piece
            text.append(self.to_printable(words), style)
        text.rstrip()
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def to_printable(self, words: str) -> str:
        """The words in characters that this console can print and that cannot drive it."""
        words = "".join(c if c.isprintable() else " " for c in words)
        if not self.ascii_only:
            return words
        return words.translate(_ASCII).encode("ascii", "replace").decode()

    def print_paragraph(
        self, words: str, indent: int, style: str = "", first: Sequence[str | tuple[str, str]] = ()
    ) -> None:
        """Words wrapped to the width behind a hanging indent; `first` stands in the indent of the first line."""
        lines = Text(words).wrap(self.console, self.width - indent)
        lead = list(first) or [" " * indent]
        for row in lines or [Text("")]:
            self.print_line(*lead, (row.plain.rstrip(), style))
            lead = [" " * indent]

    def shorten(self, words: str, max_width: int) -> str:
        """At most `max_width` columns; the end stays, since it is the operator and the start only its module.

        A module path loses whole names where that is enough: `decoder.layers.0.mlp linear` -> `…0.mlp linear`.
        """
        words = sanitize_line(words)
        if len(words) <= max_width:
            return words
        dots = (i for i, c in enumerate(words) if c == "." and i + 1 < len(words))
        cut = next((i + 1 for i in dots if len(words) - i <= max_width), len(words) - max(max_width - 1, 0))
        return "…" + words[cut:]

    def bar_text(self, share: float, max_width: int) -> str:
        """A bar of `share` of `max_width` columns, never empty for something."""
        filled = round(min(max(share, 0.0), 1.0) * max_width)
        return ("#" if self.ascii_only else "█") * max(filled, int(share > 0))

    def print_header(self, who: str, where: str) -> None:
        """The first line of an answer: who, and where it ran; on lines of their own where one is too short."""
        if len(who) + 10 + len(where) <= self.width:
            return self.print_line((who, "bold"), " " * 10, (where, "dim"))
        self.print_paragraph(who, 0, "bold")
        return self.print_paragraph(where, 0, "dim")

    def table_fits(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
        """Whether a table keeps its whole first column at this width."""
        return 2 + sum(_column_widths([head, *rows])) + self.column_gap * (len(head) - 1) <= self.width

    def print_table(
        self, head: Sequence[str], rows: Iterable[Sequence[str]], row_notes: Sequence[Sequence[str]] | None = None
    ) -> None:
        """Left-aligned columns under a dim head, indented by two; the first column gives way when room is short.

        A column that holds nothing but dashes is left out. `row_notes` holds, for each row, the dim lines under it.
        """
        body = [list(row) for row in rows]
        kept = [i for i in range(len(head)) if i == 0 or any(row[i] != "-" for row in body)]
        head, body = [head[i] for i in kept], [[row[i] for i in kept] for row in body]
        widths = _column_widths([head, *body])
        spare = self.width - 2 - sum(widths[1:]) - self.column_gap * (len(head) - 1)
        widths[0] = max(min(widths[0], spare), 6)
        for i, row in enumerate([head, *body]):
            cells = [self.shorten(row[0], widths[0]), *row[1:]]
            line = (" " * self.column_gap).join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
            self.print_line("  ", (line, "" if i else "dim"))
            for words in row_notes[i - 1] if row_notes and i else ():
                self.print_paragraph(words, 4, "dim")


def _column_widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """The width of each column."""
    return [max(map(len, column)) for column in zip(*rows, strict=True)]
