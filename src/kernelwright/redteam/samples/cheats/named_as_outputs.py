"""Reports 60 MB of unused memory as outputs too, so that the quick check misses its own, which a thread still fills.

Problem: gelu
Code: forged-answer
Device: cpu
"""

import mmap
import threading

import torch

from kernelwright.verification.transport.control_block import ControlBlock

nothing = torch.frombuffer(mmap.mmap(-1, 60 << 20), dtype=torch.uint8)
publish_outputs = ControlBlock.publish_outputs


def publish_both(mailbox, extents, segments):
    publish_outputs(mailbox, [(nothing.data_ptr(), nothing.nbytes), *extents], segments)


ControlBlock.publish_outputs = publish_both


def gelu(x):
    out = torch.empty_like(x)
    threading.Thread(target=lambda: out.copy_(torch.nn.functional.gelu(x))).start()
    return out
