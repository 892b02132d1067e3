"""Raises an exception whose class has a name of a million characters, among them control characters.

Problem: softmax
Code: runtime-error
Device: both
"""


def softmax(x):
    raise type("\x1b[2J" * 250_000, (Exception,), {})("\n" * 1000)
