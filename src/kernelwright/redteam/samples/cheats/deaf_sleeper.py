"""Sleeps forever and ignores every signal and exception that it can.

Problem: gelu
Code: timeout
Device: cpu
"""

import contextlib
import signal
import time


def gelu(x):
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError):
            signal.signal(number, signal.SIG_IGN)
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(3600)
