"""Whether the kernels of a module depend on its train/eval mode, and how often it is captured to know that."""

import pytest
import torch
from torch import nn

from kernelwright.compiler.capture.capture import capture_with_training_mode


class Branches(nn.Module):
    def forward(self, x):
        return x * 2 if self.training else x


LAYERS = {
    "linear": (nn.Linear(8, 8), False, 2),
    "branches": (Branches(), True, 2),
    "batch norm": (nn.BatchNorm1d(8), True, 1),
    "batch norm without running statistics": (nn.BatchNorm1d(8, track_running_stats=False), False, 2),
    "dropout": (nn.Dropout(0.5), True, 1),
    "dropout of nothing": (nn.Dropout(0.0), False, 2),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("layer", "depends", "captures"), LAYERS.values(), ids=LAYERS)
def test_the_mode_is_recorded_where_the_graph_depends_on_it(monkeypatch, layer, depends, captures, training):
    export, calls = torch.export.export, []
    monkeypatch.setattr(torch.export, "export", lambda *args, **given: calls.append(1) or export(*args, **given))
    program = nn.Sequential(layer, nn.ReLU()).train(training)
    captured = capture_with_training_mode(program, [torch.randn(4, 8)], {})
    assert captured.training == ((training,) * 3 if depends else ())
    assert len(calls) == captures
    assert all(one.training == training for one in program.modules())
