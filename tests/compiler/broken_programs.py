"""Programs that are no single graph: each as the text of a problem, with the inputs that take another path."""

from typing import NamedTuple

import torch

HEAD = "import numpy\nimport torch\nfrom torch import nn\n\n\n"
TAIL = "\n\n\ndef get_inputs():\n    return [torch.randn(9, 16)]\n\n\ndef get_init_inputs():\n    return []\n"


class Broken(NamedTuple):
    """A program that breaks into graphs.

    Attributes:
        text: of the problem.
        name: of the function; empty for a module.
        num_graphs: what Dynamo captures for the inputs of the problem.
        cause: what the note says.
    """

    text: str
    name: str
    num_graphs: int
    cause: str

    def write(self, folder):
        """Write the problem, and return it as a target."""
        path = folder / "problem.py"
        path.write_text(HEAD + self.text.strip() + TAIL)
        return f"{path}:{self.name}" if self.name else str(path)


X = torch.randn(9, 16, generator=torch.Generator().manual_seed(0))
OTHERS = (X, -X.abs(), X.abs() * 3, X * 0, torch.cat([X, X]), X.double(), X.t().contiguous().t())
"""Other values, and other layouts: they take other paths through the programs."""
PROGRAMS = {
    "print": Broken(
        """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)

    def forward(self, x):
        y = torch.relu(self.norm(x)) * 2
        print(f"{float(y.mean()):.3f}")
        return torch.sigmoid(y) + 1, y
""",
        "",
        2,
        "Tensor.item()",
    ),
    "branch": Broken(
        """
def work(x):
    y = torch.relu(x) * 2 - 0.5
    if y.sum() > 0:
        return torch.tanh(y) + 1
    return torch.sigmoid(y) * 3
""",
        "work",
        2,
        "data-dependent control flow (problem.py:8)",
    ),
    "pool": Broken(
        """
def work(x):
    y = torch.relu(nn.functional.max_pool1d(x, 3, 1, 1)) * 0.5
    if y.mean().item() > 0.1:
        return torch.tanh(y) + 1
    return torch.sigmoid(y) * 3
""",
        "work",
        2,
        "Tensor.item()",
    ),
    "item": Broken(
        """
def work(x):
    y = torch.relu(x) * 2
    count = int((y > 1).sum().item()) % 4 + 1
    return torch.tanh(y[:count]) + 1
""",
        "work",
        2,
        "Tensor.item()",
    ),
    "custom_op": Broken(
        """
@torch.library.custom_op("broken_programs::scaled", mutates_args=())
def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor


def work(x):
    return torch.relu(scaled(torch.tanh(x) * 2, 0.5)) + 1
""",
        "work",
        2,
        "the operator broken_programs.scaled has no fake implementation",
    ),
    "numpy": Broken(
        """
def work(x):
    y = torch.relu(x) * 2
    order = numpy.lexsort([y[:, 0].numpy()])
    return torch.sigmoid(y[torch.from_numpy(order)]) + 1
""",
        "work",
        2,
        "problem.py:8",
    ),
    "disabled": Broken(
        """
class Opaque(nn.Module):
    @torch.compiler.disable
    def forward(self, x):
        return x * 3 if x.sum() > 0 else x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.opaque = nn.LayerNorm(16), Opaque()

    def forward(self, x):
        q, k = (self.norm(x) * 2).chunk(2, -1)
        return torch.sigmoid(self.opaque(q)) * 2 + k
""",
        "",
        2,
        "torch.compiler.disable",
    ),
    "loop": Broken(
        """
def work(x):
    x = torch.sigmoid(x) * 4
    while x.max() > 0.4:
        x = torch.relu(x) * 0.5 - 0.01
    return torch.tanh(x) + 1
""",
        "work",
        3,
        "data-dependent control flow (problem.py:8)",
    ),
    "blocks": Broken(
        """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(16), nn.Linear(16, 16)

    def forward(self, x):
        return x + torch.relu(self.linear(self.norm(x))) * 2


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
            if x.isnan().any():
                raise ValueError("NaN")
        return x
""",
        "",
        1,
        "data-dependent control flow",
    ),
    "counter": Broken(
        """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(16))

    def forward(self, x):
        y = torch.relu(x) * 2
        if y.sum() > 0:
            y = y.clone()
        self.calls.add_(1)
        return torch.tanh(y) * self.calls
""",
        "",
        2,
        "data-dependent control flow",
    ),
}
