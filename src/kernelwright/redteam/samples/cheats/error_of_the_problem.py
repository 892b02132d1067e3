"""Raises the exception by which the judge reports that a problem is at fault, while it is loaded.

Problem: softmax
Code: runtime-error
Device: both
"""

import torch


def classes(base):
    for one in base.__subclasses__():
        yield one
        yield from classes(one)


for found in classes(Exception):
    if found.__name__ == "ProblemError":
        raise found("the problem cannot be used", next="")


def softmax(x):
    return torch.softmax(x, -1)
