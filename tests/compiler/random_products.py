"""Random products with random epilogues, and the inputs of each."""

import random

import torch
import torch.nn.functional as F

SIZES = (1, 2, 3, 5, 8, 13, 16, 17, 24, 32, 33, 40)
MOST_STEPS = 5
ACTIVATIONS = (
    torch.relu,
    F.gelu,
    lambda y: F.gelu(y, approximate="tanh"),
    F.silu,
    torch.tanh,
    torch.sigmoid,
    lambda y: y * torch.sigmoid(y),
    lambda y: y.clamp(-0.5, 0.5),
)


class RandomProduct(torch.nn.Module):
    """A product of operands in some layout, and elementwise steps on it; each reads inputs of its own."""

    def __init__(self, seed):
        super().__init__()
        self.rng, self.generator = random.Random(seed), torch.Generator().manual_seed(seed)
        self.dtype = torch.float16 if self.rng.random() < 0.2 else torch.float32
        self.inputs, self.steps = [], []
        m, k, n = (self.rng.choice(SIZES) for _ in range(3))
        batch = self.rng.choice([(), (), (2,), (2, 3)])
        self.multiply = self._operands(batch, m, k, n)
        self.shape = (*batch, m, n)
        for _ in range(self.rng.randrange(MOST_STEPS + 1)):
            self.steps.append(self._step())

    def forward(self, *tensors):
        y = self.multiply(*tensors)
        for step in self.steps:
            y = step(y, *tensors)
        return y

    def _new(self, *shape):
        self.inputs.append(torch.randn(shape, generator=self.generator).to(self.dtype))
        return len(self.inputs) - 1

    def _operands(self, batch, m, k, n):
        if self.rng.random() < 0.3:  # a layer, with the rows of all batches
            at = self._new(*batch, m, k), self._new(n, k), self._new(n)
            return lambda *given: F.linear(*(given[one] for one in at))
        left, right = self._operand(batch, m, k), self._operand(batch, k, n)
        factor = self.rng.choice([1.0, 1.0, 0.125])
        return lambda *given: (left(given) @ right(given)) * factor

    def _operand(self, batch, rows, columns):
        layout = self.rng.choice(["plain", "transposed", "sliced", "heads"])
        if layout == "transposed":
            at = self._new(*batch, columns, rows)
            return lambda given: given[at].mT
        if layout == "sliced":
            at = self._new(*batch, rows + 3, 2 * columns)
            return lambda given: given[at][..., 2 : rows + 2, ::2]
        if layout == "heads" and batch:
            at = self._new(*batch[:-1], rows, batch[-1], columns)
            return lambda given: given[at].transpose(-3, -2)
        at = self._new(*batch, rows, columns)
        return lambda given: given[at]

    def _step(self):
        kind, number = self.rng.randrange(8), self.rng.choice([-2.0, -0.5, 0.5, 1.5, 3.0])
        shape = self.rng.choice([self.shape, self.shape[-1:], (*self.shape[:-1], 1), ()])
        if kind == 0:
            return lambda y, *given: y * number
        if kind == 1:
            return lambda y, *given: y / number
        if kind == 2:
            return self.rng.choice([lambda y, *given: y + number, lambda y, *given: number - y])
        if kind <= 5:
            at, factor = self._new(*shape), self.rng.choice([1.0, 1.0, 0.25])
            plus, minus = lambda y, *given: y + given[at] * factor, lambda y, *given: given[at] - y
            return self.rng.choice([plus, plus, minus, lambda y, *given: y * given[at]])
        activation = self.rng.choice(ACTIVATIONS)
        if kind == 6:
            return lambda y, *given: activation(y)
        return self.rng.choice([lambda y, *given: y + activation(y), lambda y, *given: activation(y) * number])
