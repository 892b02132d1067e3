"""Stops its own process by a signal, which the judge does to it too.

Problem: softmax
Code: timeout or crash or forged-answer
Device: cpu
"""

import os
import signal

import torch


def softmax(x):
    os.kill(os.getpid(), signal.SIGSTOP)
    return torch.softmax(x, -1)
