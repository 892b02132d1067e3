"""Exits the process with code 0 before anything is compared.

Problem: gelu
Code: crash
Device: cpu
"""

import os


def gelu(x):
    os._exit(0)
