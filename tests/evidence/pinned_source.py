"""A source whose hash is pinned: everything that other Python versions parse or print in another way."""

from dataclasses import dataclass


@dataclass
class Pinned:
    name: str = "it's"

    def text(self, *, wide: int = 3, **more: float) -> str:
        """Not part of the hash."""
        return f"{self.name!r:>{wide}} {'a' + 'b'} {more['x']:.2f}"  # nor is this


def several(x, /, *rest):
    match x:
        case [1, *tail] if tail:
            return (tail, rest)
        case _:
            return lambda: None
