"""Sets a timer and returns; the signal handler fills the output a millisecond later, without another thread.

Problem: gelu
Code: late-work or aliased-output
Device: cpu
"""

import signal

import torch

waiting = []


def fill(number, frame):
    while waiting:
        x, out = waiting.pop()
        out.copy_(torch.nn.functional.gelu(x))
    signal.setitimer(signal.ITIMER_REAL, 0)


signal.signal(signal.SIGALRM, fill)


def gelu(x):
    out = torch.empty_like(x)
    waiting.append((x, out))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.01)
    return out
