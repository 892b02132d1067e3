"""Hardware counters through NVIDIA's ncu: what a command's kernels did, kernel by kernel."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
from collections.abc import Sequence

from kernelwright.core.errors import MissingDependency, SetupError

NCU_TIMEOUT_S = 300


def collect_metrics(command: Sequence[str], metrics: Sequence[str], kernel_name: str) -> list[dict[str, float]]:
    """The values of some metrics for every launch of a kernel that a command makes, in order.

    Args:
        command: a program and its arguments.
        metrics: names as ncu has them.
        kernel_name: the name of the kernel.
    Raises:
        MissingDependency: no ncu on this machine.
        SetupError: ncu failed; the message holds its last line.
    """
    tool = shutil.which("ncu") or shutil.which("ncu", path="/usr/local/cuda/bin:/opt/nvidia/nsight-compute")
    if tool is None:
        raise MissingDependency("no ncu on this machine", next="install NVIDIA Nsight Compute")
    options = ["--csv", "--clock-control", "none", "--kernel-name", kernel_name, "--metrics", ",".join(metrics)]
    try:
        done = subprocess.run([tool, *options, *command], capture_output=True, text=True, timeout=NCU_TIMEOUT_S)
    except subprocess.TimeoutExpired as fault:
        raise SetupError(f"ncu took longer than {NCU_TIMEOUT_S} s", next="count fewer launches") from fault
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    if done.returncode or not lines:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise SetupError(f"ncu gave no counters: {' '.join(last)}", next="run it by hand to see why")
    found: dict[str, dict[str, float]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        value = row["Metric Value"].replace(",", "")
        if not value.replace(".", "", 1).isdigit():
            raise SetupError(f"ncu counts no {row['Metric Name']} here: {value}", next="ncu --query-metrics")
        found.setdefault(row["ID"], {})[row["Metric Name"]] = float(value)
    return list(found.values())
