"""What the terminal can show: its width, its characters, its colours; and the few shapes that every record uses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from kernelwright.report.format import plain

NARROWEST, WIDEST = 80, 160
REGIME_STYLE = {
    "compute-bound": "dark_orange",
    "memory-bound": "dodger_blue1",
    "overhead-bound": "gold3",
    "latency-bound": "medium_purple1",
    "undetermined": "grey58",
}
OUTCOME_STYLE = {"FASTER": "green3", "SAME": "grey58", "SLOWER": "red3", "UNCLEAR": "gold3"}
GOOD, BAD = "bold green3", "bold red3"
_ASCII = str.maketrans({"µ": "u", "…": "~", "→": "->", "–": "-", "—": "-", "×": "x", "·": ".", "’": "'", "≥": ">="})


@dataclass(frozen=True)
class Paper:
    """A console with what it can show. Every line goes through `line`, so that none holds what it cannot print."""

    console: Console
    width: int
    ascii_only: bool

    @classmethod
    def of(cls, console: Console) -> Paper:
        encoding = (console.encoding or "").lower().replace("-", "").replace("_", "")
        return cls(console, min(max(console.width, NARROWEST), WIDEST), not encoding.startswith("utf"))

    @property
    def gap(self) -> int:
        """Columns between the columns of a table."""
        return 2 if self.width < 100 else 3

    def line(self, *pieces: str | tuple[str, str]) -> None:
        """One line from pieces, each a string or (string, style)."""
        text = Text()
        for piece in pieces:
            words, style = (piece, "") if isinstance(piece, str) else piece
            text.append(self.letters(words), style)
        text.rstrip()
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def letters(self, words: str) -> str:
        """The words in characters that this console can print and that cannot drive it."""
        words = "".join(c if c.isprintable() else " " for c in words)
        if not self.ascii_only:
            return words
        return words.translate(_ASCII).encode("ascii", "replace").decode()

    def paragraph(self, words: str, indent: int, style: str = "", first: Sequence[str | tuple[str, str]] = ()) -> None:
        """Words wrapped to the width behind a hanging indent; `first` stands in the indent of the first line."""
        lines = Text(words).wrap(self.console, self.width - indent)
        lead = list(first) or [" " * indent]
        for row in lines or [Text("")]:
            self.line(*lead, (row.plain.rstrip(), style))
            lead = [" " * indent]

    def shorten(self, words: str, room: int) -> str:
        """At most `room` columns; the end stays, since it is the operator and the start only its module.

        A module path loses whole names where that is enough: `decoder.layers.0.mlp linear` -> `…0.mlp linear`.
        """
        words = plain(words)
        if len(words) <= room:
            return words
        dots = (i for i, c in enumerate(words) if c == "." and i + 1 < len(words))
        cut = next((i + 1 for i in dots if len(words) - i <= room), len(words) - max(room - 1, 0))
        return "…" + words[cut:]

    def bar(self, share: float, room: int) -> str:
        """A bar of `share` of `room` columns, never empty for something."""
        filled = round(min(max(share, 0.0), 1.0) * room)
        return ("#" if self.ascii_only else "█") * max(filled, int(share > 0))

    def head(self, who: str, where: str) -> None:
        """The first line of an answer: who, and where it ran; on lines of their own where one is too short."""
        if len(who) + 10 + len(where) <= self.width:
            return self.line((who, "bold"), " " * 10, (where, "dim"))
        self.paragraph(who, 0, "bold")
        return self.paragraph(where, 0, "dim")

    def fits(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
        """Whether a table keeps its whole first column at this width."""
        return 2 + sum(_widths([head, *rows])) + self.gap * (len(head) - 1) <= self.width

    def table(
        self, head: Sequence[str], rows: Iterable[Sequence[str]], under: Sequence[Sequence[str]] | None = None
    ) -> None:
        """Left-aligned columns under a dim head, indented by two; the first column gives way when room is short.

        A column that holds nothing but dashes is left out. `under` holds, for each row, the dim lines under it.
        """
        body = [list(row) for row in rows]
        kept = [i for i in range(len(head)) if i == 0 or any(row[i] != "-" for row in body)]
        head, body = [head[i] for i in kept], [[row[i] for i in kept] for row in body]
        widths = _widths([head, *body])
        spare = self.width - 2 - sum(widths[1:]) - self.gap * (len(head) - 1)
        widths[0] = max(min(widths[0], spare), 6)
        for i, row in enumerate([head, *body]):
            cells = [self.shorten(row[0], widths[0]), *row[1:]]
            line = (" " * self.gap).join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
            self.line("  ", (line, "" if i else "dim"))
            for words in under[i - 1] if under and i else ():
                self.paragraph(words, 4, "dim")


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """The width of each column."""
    return [max(map(len, column)) for column in zip(*rows, strict=True)]
