"""Recurrences of torch's modules are captured as one call, whatever torch's version makes of them."""

import pytest
import torch
from torch import fx, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from kernelwright.compiler.capture.capture import capture
from kernelwright.compiler.capture.recurrences import OPERATORS, TORCH_OPERATORS, kept_recurrences
from kernelwright.compiler.reference import bind_placeholders

KINDS = {"LSTM": "aten.lstm.input", "GRU": "aten.gru.input", "RNN": "aten.rnn_tanh.input"}
OPTIONS = {
    "one layer": {},
    "two layers": {"num_layers": 2, "dropout": 0.5},
    "three layers, no bias": {"num_layers": 3, "bias": False},
    "both directions": {"num_layers": 2, "bidirectional": True},
    "batch first": {"batch_first": True},
}


class Last(nn.Module):
    """A recurrence, and a step after it."""

    def __init__(self, kind, **options):
        super().__init__()
        self.recurrence = getattr(nn, kind)(5, 6, **options)

    def forward(self, x):
        output, state = self.recurrence(x)
        return output * 2, state


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrence = nn.GRU(5, 6)

    def forward(self, x):
        packed = pack_padded_sequence(x, torch.tensor([7, 5, 2]))
        return pad_packed_sequence(self.recurrence(packed)[0])[0]


def called(captured):
    return [str(node.target) for node in captured.graph.nodes if node.op == "call_function"]


def run(captured, program, args):
    return fx.GraphModule(nn.Module(), captured.graph)(*bind_placeholders(captured, program, args, {}))


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_recurrence_is_one_call_with_the_layout_of_torch(kind, options):
    program, x = Last(kind, **options).eval(), torch.randn(7, 3, 5)
    with torch.no_grad():
        captured = capture(program, [x], {})
        assert called(captured).count(KINDS[kind]) == 1
        assert not any("kernelwright" in name for name in called(captured))
        assert not any(node.target in TORCH_OPERATORS for node in captured.exported.graph.nodes)
        (call,) = [node for node in captured.graph.nodes if str(node.target) == KINDS[kind]]
        eager = program.recurrence(x)
        expected = [eager[0], *(eager[1] if kind == "LSTM" else [eager[1]])]
        layouts = [(one.shape, one.stride(), one.dtype) for one in call.meta["val"]]
        assert layouts == [(one.shape, one.stride(), one.dtype) for one in expected]
        torch.testing.assert_close(run(captured, program, [x])[0], eager[0] * 2)


def test_long_sequences_are_not_unrolled():
    program = Last("LSTM", num_layers=2)
    with torch.no_grad():
        captured = capture(program, [torch.randn(2000, 1, 5)], {})
    assert len(captured.graph.nodes) < 30


@pytest.mark.parametrize(
    "program",
    [Last("LSTM", proj_size=3), Last("GRU", num_layers=2, dropout=0.5).train()],
    ids=["projection", "dropout"],
)
def test_other_calls_stay_with_torch(program, monkeypatch):
    for name in OPERATORS:
        monkeypatch.setitem(OPERATORS, name, None)
    with torch.no_grad():
        capture(program, [torch.randn(4, 3, 5)], {})


def test_packed_sequences_stay_with_torch(monkeypatch):
    program, x = Packed(), torch.randn(7, 3, 5)
    expected = program(x)
    monkeypatch.setitem(OPERATORS, "gru", None)
    with kept_recurrences():
        torch.testing.assert_close(program(x), expected)


def test_gradients_are_those_of_torch():
    program, x = Last("LSTM"), torch.randn(4, 3, 5)
    with kept_recurrences():
        program(x)[0].sum().backward()
    assert program.recurrence.weight_ih_l0.grad is not None


def test_the_functions_of_torch_are_put_back():
    before = dict(vars(torch._VF))
    with pytest.raises(ZeroDivisionError), kept_recurrences():
        assert vars(torch._VF) != before
        raise ZeroDivisionError
    assert vars(torch._VF) == before
