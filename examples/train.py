"""Trains a small model for a few steps, on random data.

Two wide linear layers at the speed of the machine, and between them `SlowNorm`, a normalisation and activation
written as a long chain of operators on a large activation: that is where the time to be gained lies.

    kw why -- python examples/train.py --steps 20
"""

import argparse

import torch
from torch import Tensor, nn

TOKENS, WIDTH, HIDDEN = 2048, 256, 1024


class SlowNorm(nn.Module):
    """Layer normalisation and GELU (in its tanh form), one operator at a time."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(dim=-1, keepdim=True)
        variance = (centred * centred).mean(dim=-1, keepdim=True)
        x = centred / torch.sqrt(variance + 1e-5) * self.gain + self.shift
        inner = 0.7978845608 * (x + 0.044715 * x * x * x)
        return 0.5 * x * (1 + torch.tanh(inner))


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(WIDTH, HIDDEN), SlowNorm(HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.norm(self.up(x)))


def train(steps: int, device: str) -> float:
    """Fits the network to a fixed random map; returns the last loss."""
    torch.manual_seed(0)
    network = Network().to(device)
    goal = torch.randn(WIDTH, WIDTH, device=device) / WIDTH**0.5
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    loss = torch.zeros(())
    for _ in range(steps):
        x = torch.randn(TOKENS, WIDTH, device=device)
        loss = nn.functional.mse_loss(network(x), x @ goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train a small model on random data.")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    print(f"loss after {options.steps} steps: {train(options.steps, options.device):.4f}")
