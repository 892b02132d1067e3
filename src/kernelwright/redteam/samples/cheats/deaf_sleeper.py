"""Sleeps for ever, deaf to every signal that it may ignore and to every exception.

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
