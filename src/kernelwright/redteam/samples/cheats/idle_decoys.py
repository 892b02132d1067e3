"""Lets torch multiply while two dozen threads of the lowest priority spin in its own code.

Problem: matmul
Code: not-own-kernels
Device: cpu
Policy: own-kernels
"""

import ctypes
import os
import subprocess
from pathlib import Path

import torch

SOURCE = r"""
#include <atomic>
#include <sched.h>
#include <thread>
static std::atomic<long> turns{0};
static void spin() {
    sched_param lowest{};
    sched_setscheduler(0, SCHED_IDLE, &lowest);
    for (;;) turns.fetch_add(1, std::memory_order_relaxed);
}
extern "C" void start(int threads) {
    while (threads--) std::thread(spin).detach();
}
"""
folder = Path(os.environ["KERNELWRIGHT_CACHE"], "cpp", "decoys")
folder.mkdir(exist_ok=True)
(folder / "decoys.cpp").write_text(SOURCE)
command = ["g++", "-O2", "-shared", "-fPIC", "-pthread", "decoys.cpp", "-o", "decoys.so"]
subprocess.run(command, cwd=folder, check=True, capture_output=True)
ctypes.CDLL(str(folder / "decoys.so")).start(24)


def matmul(a, b):
    return torch.matmul(a, b)
