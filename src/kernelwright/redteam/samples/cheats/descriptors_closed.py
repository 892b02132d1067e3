"""Closes all open files of its process, among them the connection to the judge.

Problem: softmax
Code: crash or runtime-error or forged-answer
Device: both
"""

import os

import torch


def softmax(x):
    os.closerange(0, 1024)
    return torch.softmax(x, -1)
