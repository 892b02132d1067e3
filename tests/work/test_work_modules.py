"""Which module made a call, in forward, in backward, and in code that is not shaped like a tree of modules."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from kernelwright import work


class Block(torch.nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.attn = torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU())

    def forward(self, x):
        return self.mlp(self.attn(x)) + x


class Net(torch.nn.Module):
    def __init__(self, recompute=False):
        super().__init__()
        self.layers = torch.nn.ModuleList([Block(), Block()])
        self.recompute = recompute

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x)
        return x.exp()


def modules_of(seen, name):
    return [operator.module for operator in seen.operators if operator.name == name]


def test_forward_paths_are_those_of_named_modules():
    net, x = Net(), torch.ones(2, 8)
    seen = work.count_work(lambda x: net(x) * 2, (x,))
    assert modules_of(seen, "addmm") == [f"layers.{i}.{part}" for i in (0, 1) for part in ("attn", "mlp.0")]
    assert modules_of(seen, "gelu") == ["layers.0.mlp.1", "layers.1.mlp.1"]
    assert modules_of(seen, "add") == ["layers.0", "layers.1"]
    assert modules_of(seen, "exp") == ["Net"]
    assert modules_of(seen, "mul") == [""]


def test_backward_belongs_to_the_module_that_made_the_node():
    net, x = Net(), torch.ones(2, 8, requires_grad=True)
    seen = work.count_work(lambda x: net(x).sum().backward(), (x,))
    assert modules_of(seen, "gelu_backward") == ["layers.1.mlp.1", "layers.0.mlp.1"]
    products = modules_of(seen, "mm")
    expected = ["layers.1.mlp.0", "layers.1.attn", "layers.0.mlp.0", "layers.0.attn"]
    assert products == [path for path in expected for _ in range(2)]
    assert modules_of(seen, "ones_like") == [""]


def test_recomputed_forward_keeps_its_path():
    net, x = Net(recompute=True), torch.ones(2, 8, requires_grad=True)
    seen = work.count_work(lambda x: net(x).sum().backward(), (x,))
    forward = [f"layers.{i}.{part}" for i in (0, 1) for part in ("attn", "mlp.0")]
    assert modules_of(seen, "addmm") == forward + forward[2:] + forward[:2]


def test_module_called_outside_a_tree_goes_by_its_class():
    layer = torch.nn.Linear(8, 8)
    seen = work.count_work(lambda x: F.relu(layer(x)), (torch.ones(2, 8),))
    assert modules_of(seen, "addmm") == ["Linear"]
    assert modules_of(seen, "relu") == [""]


def test_second_model_is_told_apart():
    first, second = Net(), Block()
    seen = work.count_work(lambda x: second(first(x)), (torch.ones(2, 8),))
    assert modules_of(seen, "addmm")[-2:] == ["Block.attn", "Block.mlp.0"]


def test_module_that_calls_itself():
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(8, 8)

        def forward(self, x, again=True):
            x = self.inner(x)
            return self(x, again=False).relu() if again else x.exp()

    seen = work.count_work(Twice(), (torch.ones(2, 8),))
    assert modules_of(seen, "addmm") == ["inner", "inner"]
    assert modules_of(seen, "relu") == ["Twice"]


def test_shared_module_that_is_made_on_the_way():
    class Lazy(torch.nn.Module):
        def forward(self, x):
            return torch.nn.Softmax(-1)(x) + 1

    seen = work.count_work(Lazy(), (torch.ones(2, 8),))
    assert modules_of(seen, "softmax") == ["Softmax"]
    assert modules_of(seen, "add") == ["Lazy"]


def test_exception_inside_a_module_leaves_the_stack_clean():
    class Broken(torch.nn.Module):
        def forward(self, x):
            raise ValueError("no")

    class Careful(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.broken = Broken()

        def forward(self, x):
            try:
                return self.broken(x)
            except ValueError:
                return x.exp()

    seen = work.count_work(lambda x: Careful()(x) * 2, (torch.ones(2),))
    assert modules_of(seen, "exp") == ["Careful"]
    assert modules_of(seen, "mul") == [""]


def test_functional_call_and_vmap():
    net = Net()
    parameters = dict(net.named_parameters())
    seen = work.count_work(lambda x: torch.func.functional_call(net, parameters, (x,)), (torch.ones(2, 8),))
    assert modules_of(seen, "gelu") == ["layers.0.mlp.1", "layers.1.mlp.1"]
    seen = work.count_work(torch.func.vmap(lambda x: x.sin().sum()), (torch.ones(3, 4),))
    assert seen.as_written.flops["vector/float32"] > 0
