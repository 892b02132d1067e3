"""Lets the system's program sort order each row, in a process that ends within the call.

Problem: stable_order
Device: cpu
"""

import subprocess

import torch


def stable_order(keys):
    rows = keys.tolist()
    lines = "".join(f"{row} {key} {place}\n" for row, each in enumerate(rows) for place, key in enumerate(each))
    command = ["/usr/bin/sort", "-s", "-k1,1n", "-k2,2n"]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True, env={"LC_ALL": "C"})
    ordered = torch.tensor([list(map(int, line.split())) for line in done.stdout.splitlines()]).view(*keys.shape, 3)
    return ordered[..., 1].contiguous(), ordered[..., 2].contiguous()
