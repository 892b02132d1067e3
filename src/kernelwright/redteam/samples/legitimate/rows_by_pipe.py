"""Two forked processes sum their rows, send the results through pipes and are joined within the call.

Problem: row_sum
Device: cpu
"""

import multiprocessing

import torch

context = multiprocessing.get_context("fork")


def send_sums(rows, pipe):
    pipe.send(rows.sum(-1, dtype="float64").tolist())
    pipe.close()


def row_sum(x):
    started = []
    for rows in x.numpy()[::2], x.numpy()[1::2]:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=send_sums, args=(rows, sender))
        process.start()
        sender.close()
        started.append((receiver, process))
    out = torch.empty(len(x))
    for at, (receiver, process) in enumerate(started):
        out[at::2] = torch.tensor(receiver.recv())
        process.join()
    return out
