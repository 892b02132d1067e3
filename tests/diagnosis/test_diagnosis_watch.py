import pytest
import torch

import kernelwright


class Wasteful(torch.nn.Module):
    """Twelve passes over a large activation."""

    def forward(self, x):
        for _ in range(6):
            x = (x * 1.01 + 0.01).abs()
        return x


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(64, 64)
        self.wasteful = Wasteful()

    def forward(self, x):
        return self.wasteful(self.up(x))


@pytest.fixture(scope="module")
def watched():
    net, x = Net(), torch.randn(20_000, 64)
    optimizer = torch.optim.SGD(net.parameters())
    with kernelwright.watch("training", device="cpu") as seen:
        for _ in range(3):
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()
    return seen.diagnosis


def test_the_wasteful_module_is_ranked_first(watched):
    assert watched.modules[0].module == "wasteful"
    assert watched.operators[0].module == "wasteful"


def test_forward_and_backward_products_are_counted(watched):
    # Forward x W' + b, backward dW: two products of 2 * 20,000 * 64 * 64 and 20,000 * 64 additions a step; the input
    # needs no gradient.
    flops = sum(row.flops for row in watched.operators if row.kind == "matrix")
    assert flops == 3 * (2 * 2 * 20_000 * 64 * 64 + 20_000 * 64)


def test_the_reading_prints(watched):
    assert watched.time_us > 0
    assert "wasteful" in str(watched)


def test_a_block_that_raises_is_still_read():
    seen = kernelwright.watch("broken", device="cpu")
    with pytest.raises(ValueError, match="stop"), seen:
        torch.ones(10) + 1
        raise ValueError("stop")
    assert "add" in [row.name for row in seen.diagnosis.operators]
