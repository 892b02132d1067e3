"""Raises an exception whose text cannot be made: str() and repr() of it raise.

Problem: softmax
Code: runtime-error
Device: both
"""


class NoTextError(Exception):
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


def softmax(x):
    raise NoTextError
