"""Computes running sums of exponentials about the maximum of the whole row: sums far below it become zero.

Problem: log_running_sum
Code: inaccurate
Device: both
"""


def log_running_sum(x):
    largest = x.amax(-1, keepdim=True)
    return (x.double() - largest).exp().cumsum(-1).log().add(largest).to(x.dtype)
