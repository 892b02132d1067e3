"""Hardware counters of a command's kernels, collected with NVIDIA's ncu."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
from collections.abc import Sequence

from kernelwright.core.errors import MissingDependency, SetupError

NCU_TIMEOUT_S = 300


def collect_metrics(command: Sequence[str], metrics: Sequence[str], kernel_name: str) -> list[dict[str, float]]:
    """Collect metrics for every launch of a kernel in a command, in launch order.

    Args:
        command: a program and its arguments.
        metrics: ncu metric names.
        kernel_name: the name of the kernel.
    Returns:
        One dict per launch, by metric name.
    Raises:
        MissingDependency: ncu is not installed.
        SetupError: ncu failed; the message holds its last line of output.
    """
    tool = shutil.which("ncu") or shutil.which("ncu", path="/usr/local/cuda/bin:/opt/nvidia/nsight-compute")
    if tool is None:
        raise MissingDependency("no ncu on this machine", next="install NVIDIA Nsight Compute")
    options = ["--csv", "--clock-control", "none", "--kernel-name", kernel_name, "--metrics", ",".join(metrics)]
    try:
        completed = subprocess.run([tool, *options, *command], capture_output=True, text=True, timeout=NCU_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise SetupError(f"ncu took longer than {NCU_TIMEOUT_S} s", next="profile fewer launches") from error
    lines = [line for line in completed.stdout.splitlines() if line.startswith('"')]
    if completed.returncode or not lines:
        last = (completed.stderr or completed.stdout).strip().splitlines()[-1:]
        raise SetupError(f"ncu returned no counters: {' '.join(last)}", next="run ncu by hand to see why")
    rows: dict[str, dict[str, float]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        value = row["Metric Value"].replace(",", "")
        if not value.replace(".", "", 1).isdigit():
            raise SetupError(f"ncu has no {row['Metric Name']} on this GPU: {value}", next="ncu --query-metrics")
        rows.setdefault(row["ID"], {})[row["Metric Name"]] = float(value)
    return list(rows.values())
