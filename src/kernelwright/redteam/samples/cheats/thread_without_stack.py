"""Lets torch multiply while a thread runs whose stack cannot be read.

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
#include <string.h>
#include <sys/mman.h>
#include <thread>
#if defined(__aarch64__)
static const unsigned spin[] = {0xd2800009, 0x9100013f, 0x14000000};
#else
static const unsigned spin[] = {0xfeebe431};
#endif
// The top of the stack is zero, and from there on it jumps to where it is; nothing lies before it in memory.
extern "C" void start() {
    char *page = static_cast<char *>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    memcpy(page, spin, sizeof spin);
    __builtin___clear_cache(page, page + sizeof spin);
    std::thread(reinterpret_cast<void (*)()>(page)).detach();
}
"""
folder = Path(os.environ["KERNELWRIGHT_CACHE"], "cpp", "blind")
folder.mkdir(exist_ok=True)
(folder / "blind.cpp").write_text(SOURCE)
command = ["g++", "-O2", "-shared", "-fPIC", "-pthread", "blind.cpp", "-o", "blind.so"]
subprocess.run(command, cwd=folder, check=True, capture_output=True)
ctypes.CDLL(str(folder / "blind.so")).start()


def matmul(a, b):
    return torch.matmul(a, b)
