"""Sleeps for zero to three milliseconds, so that no two calls take the same time.

Problem: tiny
Device: both
"""

import random
import time

draw = random.SystemRandom()


def tiny(x, y):
    time.sleep(draw.uniform(0, 0.003))
    return (x * y).tanh() + x
