"""Weighs differences of logits by the second distribution, and adds the two normalisers at the end, in FP64.

Problem: divergence
Device: both
"""


def divergence(x, y):
    x, y = x.double(), y.double()
    x, y = x - x.amax(-1, keepdim=True), y - y.amax(-1, keepdim=True)
    raised = y.exp()
    weighted = (raised * (y - x)).sum(-1) / raised.sum(-1)
    return (weighted + x.exp().sum(-1).log() - raised.sum(-1).log()).float()
