"""Updates the running variance with the biased batch variance, which divides by 257 and not by 256.

Problem: running_norm
Code: inaccurate
Device: both
"""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(channels)

    def forward(self, x):
        norm = self.norm
        var, mean = torch.var_mean(x, 0, correction=0)
        with torch.no_grad():
            norm.running_mean.lerp_(mean, norm.momentum)
            norm.running_var.lerp_(var, norm.momentum)
            norm.num_batches_tracked += 1
        return torch.nn.functional.batch_norm(x, None, None, norm.weight, norm.bias, training=True)
