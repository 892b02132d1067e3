"""Raises KeyboardInterrupt, as if the user had stopped the judge.

Problem: softmax
Code: runtime-error or crash
Device: both
"""


def softmax(x):
    raise KeyboardInterrupt
