"""An autograd function whose backward is written by hand, in FP32.

Problem: loss_gradients
Device: both
"""

import torch


class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, labels):
        gate = torch.sigmoid(x)
        hidden = x * gate
        log_p = torch.log_softmax(hidden @ w, -1)
        ctx.save_for_backward(x, gate, hidden, w, log_p, labels)
        return -log_p.gather(1, labels[:, None]).mean()

    @staticmethod
    def backward(ctx, grad):
        x, gate, hidden, w, log_p, labels = ctx.saved_tensors
        scores = log_p.exp()
        scores[torch.arange(len(x), device=x.device), labels] -= 1
        scores *= grad / len(x)
        return (scores @ w.T) * (gate + hidden * (1 - gate)), hidden.T @ scores, None


def loss_gradients(x, w, labels):
    with torch.enable_grad():
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        loss = Loss.apply(x, w, labels)
        return loss.detach(), *torch.autograd.grad(loss, [x, w])
