"""Reports no output to the judge at the end of the call and computes and sends one in a later message.

Problem: scale_add
Code: forged-answer or false-time or late-work
Device: cpu
"""

import torch

from kernelwright.verification.transport.control_block import ControlBlock
from kernelwright.verification.transport.tensor_codec import pack
from kernelwright.verification.worker import tasks

waiting, publish_outputs = [], ControlBlock.publish_outputs


def forged_report(here):
    x, y = waiting.pop()
    sent = pack([torch.relu((x + y) * 0.5)])
    leaves = {"": {"sent": sent, "device": "cpu"}}
    return {"structure": "Tensor", "leaves": leaves, "state_descriptors": {}, "segments": [], "is_stream_ordered": True}


tasks._make_report = forged_report
ControlBlock.publish_outputs = lambda self, extents, segments: publish_outputs(self, [], [])


def scale_add(x, y):
    waiting[:] = [(x, y)]
    return x
