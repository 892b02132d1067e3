"""Sleeps for two milliseconds before it computes.

Problem: tiny
Device: both
"""

import time


def tiny(x, y):
    time.sleep(0.002)
    return (x * y).tanh() + x
