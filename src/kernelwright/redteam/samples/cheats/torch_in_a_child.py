"""Passes the product to a child process that uses torch, while a thread of its own code spins.

Problem: matmul
Code: not-own-kernels
Device: cpu
Policy: own-kernels
"""

import ctypes
import mmap
import os
import subprocess
from pathlib import Path

import torch

SOURCE = r"""
#include <atomic>
#include <thread>
static std::atomic<long> turns{0};
extern "C" void start() { std::thread([] { for (;;) turns.fetch_add(1, std::memory_order_relaxed); }).detach(); }
"""
folder = Path(os.environ["KERNELWRIGHT_CACHE"], "cpp", "decoys")
folder.mkdir(exist_ok=True)
(folder / "decoys.cpp").write_text(SOURCE)
command = ["g++", "-O2", "-shared", "-fPIC", "-pthread", "decoys.cpp", "-o", "decoys.so"]
subprocess.run(command, cwd=folder, check=True, capture_output=True)
child = []


def start(a, b):
    torch.set_num_threads(1)
    sizes = (a.shape, b.shape, (a.shape[0], b.shape[1]))
    shared = [torch.frombuffer(mmap.mmap(-1, 4 * m * n), dtype=torch.float32).view(m, n) for m, n in sizes]
    (asked, ask), (answered, answer) = os.pipe(), os.pipe()
    if os.fork() == 0:
        while os.read(asked, 1):
            torch.matmul(shared[0], shared[1], out=shared[2])
            os.write(answer, b"x")
        os._exit(0)
    ctypes.CDLL(str(folder / "decoys.so")).start()
    child.append((shared, ask, answered))


def matmul(a, b):
    if not child:
        start(a, b)
    shared, ask, answered = child[0]
    shared[0].copy_(a)
    shared[1].copy_(b)
    os.write(ask, b"x")
    os.read(answered, 1)
    return shared[2].clone()
