"""Starts up to 300 processes that sleep for twenty seconds, and raises when it may start no more.

Problem: gelu
Code: runtime-error or crash or out-of-memory
Device: cpu
"""

import os
import time


def gelu(x):
    for _ in range(300):
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
    raise RuntimeError("300 processes and none refused")
