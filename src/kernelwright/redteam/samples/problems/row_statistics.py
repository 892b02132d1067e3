"""Mean, deviation and the normalised rows, in a dict with a nested tuple."""

import torch


def row_statistics(x):
    deviation, mean = torch.std_mean(x, -1, keepdim=True)
    return {"rows": (x - mean) / (deviation + 1e-3), "statistics": (mean[:, 0], [deviation[:, 0]])}


def get_inputs():
    return [torch.randn(80, 333)]
