"""Linear layers of one input: the same results and gradients with one sum, and plain calls where more runs."""

import copy

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

from kernelwright.models.patching import projections
from kernelwright.models.patching.projections import match_projections

K = 16


class Attention(nn.Module):
    """As transformers', with fewer key and value heads."""

    def __init__(self, bias=False):
        super().__init__()
        self.q_proj, self.o_proj = nn.Linear(K, K, bias=bias), nn.Linear(K, K)
        self.k_proj, self.v_proj = nn.Linear(K, K // 2, bias=bias), nn.Linear(K, K // 2, bias=bias)

    def forward(self, hidden_states, position_embeddings, attention_mask=None, **kwargs):
        q, k, v = (
            one(hidden_states).unflatten(-1, (-1, 4)).transpose(1, 2) for one in (self.q_proj, self.k_proj, self.v_proj)
        )
        y = F.scaled_dot_product_attention(q * position_embeddings, k, v, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).flatten(-2))


class MLP(nn.Module):
    def __init__(self, bias=False):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(K, 2 * K, bias=bias), nn.Linear(K, 2 * K, bias=bias)
        self.down_proj = nn.Linear(2 * K, K)

    def forward(self, x, *_):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


def patched(module):
    forward = match_projections(module)(type(module).forward)
    other = copy.deepcopy(module)
    other.__class__ = type("Patched", (type(module),), {"forward": forward})
    return other


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture
def shared(monkeypatch):
    """The inputs of layers that were computed together."""
    inputs, project = [], projections.SharedInput._project_all
    monkeypatch.setattr(projections.SharedInput, "_project_all", lambda self, x: inputs.append(x) or project(self, x))
    return inputs


def results(module, x, run=lambda module, *args: module(*args)):
    """The result, and the gradients of the input and of all parameters."""
    x = x.clone().requires_grad_()
    module.zero_grad()
    y = run(module, x, 0.5)
    y.square().sum().backward()
    return [y, x.grad, *(one.grad for one in module.parameters())]


@pytest.mark.parametrize("kind", [Attention, MLP])
@pytest.mark.parametrize("bias", [False, True])
def test_results_and_gradients_are_the_same(kind, bias, shared):
    module, x = kind(bias), torch.randn(2, 5, K)
    want = results(module, x)
    torch.testing.assert_close(results(patched(module), x), want)
    assert len(shared) == 1


def test_in_16_bits_only_the_sum_is_rounded_in_another_way():
    module, x = MLP().bfloat16(), torch.randn(64, K, dtype=torch.bfloat16)
    exact = results(copy.deepcopy(module).double(), x.double())[1]
    (y, dx, *others), (y_shared, dx_shared, *others_shared) = results(module, x), results(patched(module), x)
    assert torch.equal(y_shared, y)
    assert all(map(torch.equal, others_shared, others))
    assert (dx_shared - exact).norm() <= 1.05 * (dx - exact).norm()


@pytest.mark.parametrize("frozen", [["q_proj"], ["k_proj", "v_proj"], ["q_proj", "k_proj", "v_proj"]], ids=str)
def test_frozen_layers_have_no_gradients(frozen, shared):
    module, x = Attention(bias=True), torch.randn(2, 5, K)
    for name in frozen:
        getattr(module, name).requires_grad_(False)
    want = results(module, x)
    torch.testing.assert_close(results(patched(module), x), want)
    assert len(shared) == 1


def test_an_unused_result_has_no_gradient():
    layers = {name: nn.Linear(K, 3) for name in "abc"}
    x = torch.randn(4, K, requires_grad=True)
    together = projections.SharedInput(layers)
    y = [together.project(name, x) for name in layers][1]
    y.sum().backward()
    torch.testing.assert_close(x.grad, layers["b"].weight.sum(0).expand(4, K))
    assert layers["a"].weight.grad is None
    assert layers["b"].bias.grad is not None


def test_gradients_of_gradients():
    module = patched(MLP(bias=True).double())
    x = torch.randn(2, 3, K, dtype=torch.float64, requires_grad=True)

    def run(x, weight):
        return torch.func.functional_call(module, {"up_proj.weight": weight}, (x,))

    assert torch.autograd.gradgradcheck(run, (x, module.up_proj.weight))


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoints(use_reentrant, shared):
    module, x = Attention(), torch.randn(2, 5, K)
    want = results(module, x)
    run = lambda module, *args: checkpoint(module, *args, use_reentrant=use_reentrant)  # noqa: E731
    torch.testing.assert_close(results(patched(module), x, run), want)
    assert shared


def test_a_compiled_module_is_one_graph_of_plain_layers(shared):
    module, x = Attention(), torch.randn(2, 5, K)
    compiled = torch.compile(patched(module), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(results(compiled, x), results(module, x))
    assert not shared


def test_autocast_has_its_own_casts(shared):
    module, x = Attention(), torch.randn(2, 5, K)
    with torch.autocast("cpu", torch.bfloat16):
        want, got = results(module, x), results(patched(module), x)
    assert all(map(torch.equal, got, want))
    assert not shared


def test_without_gradients_layers_run_by_themselves(shared):
    module, x = Attention(), torch.randn(2, 5, K)
    with torch.no_grad():
        assert torch.equal(patched(module)(x, 0.5), module(x, 0.5))
    patched(module)(x, 0.5)  # the input needs no gradient: there is nothing to add
    torch.func.grad(lambda x: patched(module)(x, 0.5).sum())(x)
    assert not shared


class LoraLinear(nn.Linear):
    def forward(self, x):
        return super().forward(x) + x.sum(-1, keepdim=True)


def hooked(layer):
    layer.register_forward_hook(lambda module, args, output: 2 * output)


def parametrized(layer):
    parametrize.register_parametrization(layer, "weight", nn.Tanh())


def replaced(layer):
    layer.forward = lambda x: F.linear(x, 2 * layer.weight)


def adapted(layer):
    layer.__class__ = LoraLinear


@pytest.mark.parametrize("change", [hooked, parametrized, replaced, adapted])
def test_a_layer_that_changed_after_the_patch_is_called(change, shared):
    module, other, x = Attention(), patched(Attention()), torch.randn(2, 5, K)
    other.load_state_dict(module.state_dict())
    for one in (module, other):
        change(one.k_proj)
    torch.testing.assert_close(results(other, x), results(module, x))
    assert not shared


@pytest.fixture
def one_process():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def full_results(module, x):
    return [one.full_tensor() if isinstance(one, DTensor) else one for one in results(module, x)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")  # o_proj returns a view, patched or not
def test_distributed_modules(one_process, shared):
    module, x = Attention(), torch.randn(2, 5, K)
    want, mesh = results(module, x), init_device_mesh("cpu", (1,))
    torch.testing.assert_close(results(DistributedDataParallel(patched(module)), x), want)
    torch.testing.assert_close(full_results(fully_shard(patched(module), mesh=mesh), x), want)
    assert len(shared) == 2
    other = patched(module)
    fully_shard(other.q_proj, mesh=mesh)
    torch.testing.assert_close(full_results(fully_shard(other, mesh=mesh), x), want)
    assert len(shared) == 2, "a layer whose weights are sharded by themselves is called"


class CrossAttention(Attention):
    def forward(self, hidden_states, encoder_states=None):
        states = hidden_states if encoder_states is None else encoder_states
        return self.q_proj(hidden_states), self.k_proj(states), self.v_proj(states)


def test_another_input_is_projected_by_itself():
    module = CrossAttention()
    x, other = torch.randn(2, 5, K, requires_grad=True), torch.randn(2, 3, K)
    assert all(map(torch.equal, patched(module)(x, other), module(x, other)))


class ScaledAttention(Attention):
    def forward(self, hidden_states):
        return self.q_proj(hidden_states), self.k_proj(2 * hidden_states), self.v_proj(hidden_states)


def test_modules_that_are_not_matched():
    lora = Attention()
    lora.v_proj.__class__ = LoraLinear
    for module in (ScaledAttention(), lora, nn.Linear(2, 2)):
        assert match_projections(module) is None


def test_attributes_of_layers_are_those_of_the_layers():
    class Typed(MLP):
        def forward(self, x):
            return super().forward(x.to(self.gate_proj.weight.dtype))

    module = MLP()
    module.__class__ = Typed
    x = torch.randn(2, K, requires_grad=True)
    forward = projections._share_projections(("gate_proj", "up_proj"))(Typed.forward)
    torch.testing.assert_close(forward(module, x), module(x))
