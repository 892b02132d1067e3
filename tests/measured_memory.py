"""The bandwidth of main memory that a machine was first measured with counts as current in tests.

Commands that compare times with floors measure it again. With a cache of 480 MiB that takes four seconds of a core, and
ten where other tests run.
"""

import math

from kernelwright import machines


def keep_measured_memory():
    """In this process and its forks."""
    machines._MEASURED_AT_S["cpu"] = math.inf
