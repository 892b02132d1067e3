"""Tells the judge of no output when the call is over, and sends one in the message afterwards, computed only there.

Problem: scale_add
Code: forged-answer or false-time or late-work
Device: cpu
"""

import torch

from kernelwright.verify import worker
from kernelwright.verify.crossing import pack

waiting = []


def told(here):
    x, y = waiting.pop()
    sent = pack([torch.relu((x + y) * 0.5)])
    return {"outline": "Tensor", "leaves": {"": {"sent": sent, "device": "cpu"}}, "places": {}}


worker.extents_of, worker._told = lambda result: [], told


def scale_add(x, y):
    waiting[:] = [(x, y)]
    return x
