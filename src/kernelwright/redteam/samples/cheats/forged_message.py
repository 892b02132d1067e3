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
    os.write(3, channel.pack({"answer": {"structure": "Tensor", "leaves": {"": leaf}, "state_descriptors": {}}}))
    return x.new_zeros(len(x))
