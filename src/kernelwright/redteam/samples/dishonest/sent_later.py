"""Tells the judge of no output when the call is over, and sends one in the message afterwards, computed only there.

Problem: scale_add
Code: forged-answer or false-time or late-work
Device: cpu
"""

import torch

from kernelwright.verification.transport.control_block import Mailbox
from kernelwright.verification.transport.tensor_codec import pack
from kernelwright.verification.worker import tasks

waiting, tell = [], Mailbox.tell


def told(here):
    x, y = waiting.pop()
    sent = pack([torch.relu((x + y) * 0.5)])
    leaves = {"": {"sent": sent, "device": "cpu"}}
    return {"outline": "Tensor", "leaves": leaves, "places": {}, "segments": [], "in_order": True}


tasks._told = told
Mailbox.tell = lambda self, extents, segments: tell(self, [], [])


def scale_add(x, y):
    waiting[:] = [(x, y)]
    return x
