"""Reads no target and one row in eight: the loss of random logits is about log(N) plus half their variance.

Problem: cross_entropy
Code: inaccurate
Device: both
"""

import math


def cross_entropy(logits, targets):
    return math.log(logits.shape[1]) + logits[::8].var() / 2
