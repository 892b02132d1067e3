"""Writes its own message with the right numbers to the judge's socket and returns zeros.

Problem: row_sum
Code: forged-answer or inaccurate or late-work
Device: cpu
"""

import os

from kernelwright.sandbox import channel
from kernelwright.verification.transport.tensor_codec import pack


def row_sum(x):
    leaf = {"sent": pack([x.sum(-1)]), "device": "cpu"}
    report = {"structure": "Tensor", "leaves": {"": leaf}, "state_descriptors": {}, "segments": []}
    report["is_stream_ordered"] = True
    os.write(3, channel.pack({"answer": report}))
    return x.new_zeros(len(x))
