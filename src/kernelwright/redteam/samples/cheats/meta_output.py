"""Computes on the meta device, where every shape is right and there are no numbers.

Problem: matmul
Code: wrong-device
Device: both
"""


def matmul(a, b):
    return a.to("meta") @ b.to("meta")
