"""Attention of transformers' modules: the backend that is measured as fastest, where it computes the same."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from kernelwright.models.patching import attention, backends
from kernelwright.models.patching.attention import match_attention

FLASH, CUDNN, EFFICIENT = backends.CANDIDATES


class Functions(dict):
    """As transformers' AttentionInterface."""

    def get_interface(self, name, default):
        return self.get(name, default)


def sdpa_attention(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, **kwargs):
    y = F.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, dropout_p=dropout, is_causal=attention_mask is None, scale=scaling
    )
    return y.transpose(1, 2).contiguous(), None


def other_attention(module, query, key, value, attention_mask, **kwargs):
    return value.transpose(1, 2), None


ALL_ATTENTION_FUNCTIONS = Functions(sdpa=sdpa_attention, other=other_attention)


class Attention(nn.Module):
    def __init__(self, implementation="sdpa"):
        super().__init__()
        self.implementation, self.is_causal = implementation, True

    def forward(self, x, mask=None, **kwargs):
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.implementation, None)
        heads = x.unflatten(-1, (4, 8)).transpose(1, 2)
        return attend(self, heads, 2 * heads, heads.sin(), mask, **kwargs)[0]


class IndexedAttention(Attention):
    """As in transformers 4."""

    def forward(self, x):
        return ALL_ATTENTION_FUNCTIONS[self.implementation](self, *[x.unflatten(-1, (4, 8)).transpose(1, 2)] * 3, None)[
            0
        ]


def patched(module):
    module.__class__ = type("Patched", (type(module),), {"forward": match_attention(module)(type(module).forward)})
    return module


@pytest.fixture
def selected(monkeypatch):
    """The calls that select a backend, on the CPU."""
    calls = []

    def prefer(attend, inputs, options):
        calls.append([one.shape for one in inputs])
        return sdpa_kernel(SDPBackend.MATH)

    monkeypatch.setattr(attention, "DEVICE_TYPE", "cpu")
    monkeypatch.setattr(attention, "prefer_fastest", prefer)
    return calls


@pytest.mark.parametrize("kind", [Attention, IndexedAttention])
def test_a_training_step_selects_a_backend(kind, selected):
    x, module = torch.randn(2, 5, 32), kind()
    want = module(x)
    torch.testing.assert_close(patched(module)(x), want)
    assert selected == [[(2, 4, 5, 8)] * 3]


def test_what_other_backends_would_compute_in_another_way_is_left_to_torch(selected):
    x, module = torch.randn(2, 5, 32), patched(Attention())
    module(x, torch.ones(5, 5, dtype=torch.bool))
    module(x, dropout=0.5)
    module(x, position_bias=torch.zeros(5, 5))
    module(x[:, :1])
    patched(Attention("other"))(x)
    module.eval()(x)
    torch.use_deterministic_algorithms(True)
    try:
        module.train()(x)
    finally:
        torch.use_deterministic_algorithms(False)
    assert not selected
    module(x)
    assert selected


def test_transforms_and_other_devices_are_left_to_torch(selected, monkeypatch):
    x, module = torch.randn(2, 5, 32), patched(Attention())
    torch.func.grad(lambda x: module(x).sum())(x)
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), Attention()(x))
    monkeypatch.setattr(attention, "DEVICE_TYPE", "cuda")
    module(x)
    assert not selected


def test_other_modules_are_not_matched():
    assert match_attention(nn.Linear(2, 2)) is None


@pytest.fixture(autouse=True)
def no_choices(monkeypatch):
    monkeypatch.setattr(backends, "_choices", {})
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)  # a CPU build does not have it


def attend(query, key, value):
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def heads(length=6):
    return [torch.randn(2, length, 4, 8).transpose(1, 2) for _ in range(3)]


@pytest.fixture
def timed(monkeypatch):
    """Sets the times of torch's own selection and of the backends; FLASH and MATH run on the CPU."""

    def set_times(own_us, **times_us):
        names = {None: own_us} | {getattr(SDPBackend, name): time_us for name, time_us in times_us.items()}
        monkeypatch.setattr(backends, "CANDIDATES", tuple(one for one in names if one))
        monkeypatch.setattr(backends._Trial, "time_us", lambda self, backend: names[backend])

    return set_times


ALL = FLASH, CUDNN, EFFICIENT, SDPBackend.MATH


def test_the_fastest_backend_is_chosen(timed):
    timed(10.0, FLASH_ATTENTION=9.0, MATH=8.0)
    assert backends.choose_backend(attend, heads(), ALL) is SDPBackend.MATH
    assert backends.choose_backend(attend, heads(), [FLASH]) is FLASH, "among those that are enabled"


def test_a_backend_that_is_hardly_faster_is_not_chosen(timed):
    timed(10.0, FLASH_ATTENTION=9.9, MATH=11.0)
    assert backends.choose_backend(attend, heads(), ALL) is None


def test_a_backend_that_does_not_run_is_not_chosen(timed):
    timed(10.0, EFFICIENT_ATTENTION=1.0, FLASH_ATTENTION=9.0)
    assert backends.choose_backend(attend, heads(), ALL) is FLASH


def test_a_backend_with_another_result_is_not_chosen(timed, monkeypatch):
    timed(10.0, MATH=1.0)
    run = backends._Trial.run

    def run_wrong(self, backend=None):
        y, *gradients = run(self, backend)
        return [y, *gradients[:2], gradients[2] * (float("nan") if backend else 1.0)]

    monkeypatch.setattr(backends._Trial, "run", run_wrong)
    assert backends.choose_backend(attend, heads(), ALL) is None


def test_an_error_of_torchs_own_selection_keeps_it(timed):
    timed(10.0, MATH=1.0)

    def fail(*_):
        raise torch.OutOfMemoryError("no memory")

    assert backends.choose_backend(fail, heads(), ALL) is None


def test_a_measurement_leaves_no_trace(timed):
    timed(10.0, MATH=1.0)
    inputs, state = heads(), torch.get_rng_state()
    before = [one.clone() for one in inputs]
    with torch.no_grad():
        assert backends.choose_backend(attend, inputs, ALL) is SDPBackend.MATH
        assert not torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), state)
    assert all(map(torch.equal, inputs, before))
    assert not any(one.requires_grad for one in inputs)


def test_a_choice_is_measured_once_for_each_key(monkeypatch):
    measured = []
    monkeypatch.setattr(backends, "choose_backend", lambda *_: measured.append(1) or SDPBackend.MATH)
    for inputs, options in [(heads(), 1), (heads(), 1), (heads(), 2), (heads(7), 1), (heads(7), 1)]:
        backends.prefer_fastest(attend, inputs, options)
    assert len(measured) == 3
    with torch.autocast("cpu", torch.bfloat16):
        backends.prefer_fastest(attend, heads(), 1)
    assert len(measured) == 4
    monkeypatch.setattr(backends, "MAX_CHOICES", 4)
    with backends.prefer_fastest(attend, heads(8), 1):
        pass
    assert len(measured) == 4, "further shapes are left to torch"


def test_nothing_is_measured_while_a_graph_is_captured(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(backends, "choose_backend", lambda *_: pytest.fail("measured"))
    with backends.prefer_fastest(attend, heads(), 1):
        assert not backends._choices


def test_a_choice_has_priority_and_the_others_stay_enabled(monkeypatch):
    monkeypatch.setattr(backends, "choose_backend", lambda *_: EFFICIENT)
    order = torch._C._get_sdp_priority_order()
    with sdpa_kernel([FLASH, EFFICIENT]), backends.prefer_fastest(attend, heads(), 1):
        assert torch._C._get_sdp_priority_order()[0] == int(EFFICIENT)
        assert torch.backends.cuda.flash_sdp_enabled()
        assert not torch.backends.cuda.cudnn_sdp_enabled(), "as the caller has it"
    assert sorted(torch._C._get_sdp_priority_order()) == sorted(order)
    assert torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_measurement_within_a_checkpoint_does_not_count(timed, monkeypatch, use_reentrant):
    timed(10.0, MATH=1.0)
    monkeypatch.setattr(attention, "DEVICE_TYPE", "cpu")
    module, x = patched(Attention()), torch.randn(2, 5, 32, requires_grad=True)
    (want,) = torch.autograd.grad(Attention()(x).square().sum(), x)
    checkpoint(module, x, use_reentrant=use_reentrant).square().sum().backward()
    torch.testing.assert_close(x.grad, want)
    assert list(backends._choices.values()) == [SDPBackend.MATH]
