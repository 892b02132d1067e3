"""A Mamba block: depthwise causal convolution and a selective scan, as a loop over time."""

import torch
import torch.nn.functional as F
from torch import nn

DIM, STATE, TOKENS = 64, 8, 24


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.project_in, self.project_out = nn.Linear(DIM, 4 * DIM), nn.Linear(2 * DIM, DIM)
        self.conv = nn.Conv1d(2 * DIM, 2 * DIM, 4, groups=2 * DIM, padding=3)
        self.parameters_of_x, self.step = nn.Linear(2 * DIM, 4 + 2 * STATE), nn.Linear(4, 2 * DIM)
        self.log_decay = nn.Parameter(torch.log(torch.arange(1.0, STATE + 1)).repeat(2 * DIM, 1))
        self.skip = nn.Parameter(torch.ones(2 * DIM))

    def scan(self, x):
        step, b, c = self.parameters_of_x(x).split([4, STATE, STATE], -1)
        step = F.softplus(self.step(step))
        decay = torch.exp(step.unsqueeze(-1) * -torch.exp(self.log_decay))
        added = (step * x).unsqueeze(-1) * b.unsqueeze(2)
        state, outputs = torch.zeros_like(added[:, 0]), []
        for at in range(x.shape[1]):
            state = decay[:, at] * state + added[:, at]
            outputs.append((state * c[:, at].unsqueeze(1)).sum(-1))
        return torch.stack(outputs, 1) + x * self.skip

    def forward(self, hidden):
        x, gate = self.project_in(self.norm(hidden)).chunk(2, -1)
        x = self.conv(x.transpose(1, 2))[..., : hidden.shape[1]].transpose(1, 2)
        return hidden + self.project_out(self.scan(F.silu(x)) * F.silu(gate))


def get_inputs():
    return [torch.randn(4, TOKENS, DIM)]
