"""How much of a tensor one program takes."""

BLOCK, DRAWN_BLOCK, WARPS = 1024, 2048, 4
"""Eight elements a thread, and sixteen where random numbers are drawn for them, whose work hides more loads."""
SMALL_BLOCK = 256
"""While so few elements are enough for one program to each multiprocessor: nobody has many in turn."""


def block_of(count: int, multiprocessors: int, drawn: bool) -> int:
    """Elements of a program, of so many in all."""
    if count <= SMALL_BLOCK * multiprocessors:
        return SMALL_BLOCK
    return DRAWN_BLOCK if drawn else BLOCK
