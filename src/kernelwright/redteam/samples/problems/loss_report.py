"""A loss, how many predictions are right as a Python int, and the share of them as a float."""

import torch


def loss_report(logits, targets):
    right = int((logits.argmax(-1) == targets).sum())
    loss = torch.nn.functional.nll_loss(logits.log_softmax(-1), targets)
    return {"loss": loss, "right": right, "share": right / len(targets)}


def get_inputs():
    return [torch.randn(120, 9), torch.randint(0, 9, (120,))]
