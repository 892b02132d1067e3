"""Reports to the judge that the call is complete, with the address of its output, before it computes anything.

Problem: scale_add
Code: late-work or forged-answer
Device: cpu
"""

import torch

from kernelwright.verification.transport.control_block import READY
from kernelwright.verification.worker import tasks


def scale_add(x, y):
    out = torch.empty_like(x)
    mailbox = tasks.current_worker().control_block
    mailbox.publish_outputs([(out.data_ptr(), out.nbytes)], [])
    mailbox.publish_done(mailbox._words[READY], 1000)
    return torch.add(x, y, out=out).mul_(0.5).relu_()
