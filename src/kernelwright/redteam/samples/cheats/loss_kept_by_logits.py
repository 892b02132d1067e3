"""Returns the last gradients again if the inputs and the weights are as before, and does not look at the labels.

Problem: loss_gradients
Code: stale-output or inaccurate
Device: both
"""

import torch

last = []


def gradients(x, w, labels):
    with torch.enable_grad():
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        loss = torch.nn.functional.cross_entropy(torch.nn.functional.silu(x) @ w, labels)
        return loss.detach(), *torch.autograd.grad(loss, [x, w])


def loss_gradients(x, w, labels):
    if not last or not (torch.equal(last[0], x) and torch.equal(last[1], w)):
        last[:] = [x.clone(), w.clone(), gradients(x, w, labels)]
    return tuple(one.clone() for one in last[2])
