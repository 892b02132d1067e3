"""Raises SystemExit with code 0, which a harness that catches only Exception passes as success.

Problem: gelu
Code: runtime-error or crash
Device: cpu
"""

import sys


def gelu(x):
    sys.exit(0)
