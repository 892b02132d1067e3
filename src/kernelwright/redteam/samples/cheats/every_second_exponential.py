"""Sums every second exponential of a row and doubles the sum: probabilities of 1e-3 are off by 5 %.

Problem: softmax
Code: inaccurate
Device: both
"""


def softmax(x):
    raised = (x - x.amax(-1, keepdim=True)).exp_()
    half = raised[:, ::2]
    return raised.div_(half.sum(-1, keepdim=True) * (x.shape[1] / half.shape[1]))
