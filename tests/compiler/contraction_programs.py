"""Programs whose graphs have contractions, with small inputs, and their plans as for a GPU."""

from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernelwright.compiler.capture.target_device import capturing_for
from kernelwright.compiler.planning import plan_program
from kernelwright.compiler.regions import contraction_planning
from kernelwright.compiler.regions.contraction import ContractionRegion


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


class Layer(nn.Module):
    """A layer and what follows it."""

    def __init__(self, layer, after=lambda x, scale: x, channels=1):
        super().__init__()
        self.layer, self.after = layer, after
        self.scale = nn.Parameter(normal(channels, seed=3))
        for at, parameter in enumerate(layer.parameters()):
            parameter.data = normal(*parameter.shape, seed=at)

    def forward(self, x):
        return self.after(self.layer(x), self.scale)


def image_scale(x, scale):
    return F.hardswish(x) * scale[:, None, None]


def volume_scale(x, scale):
    return torch.tanh(x) * scale[:, None, None, None]


class ResidualLayer(nn.Module):
    """A layer to whose result a tensor of its shape is added."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        for at, parameter in enumerate(layer.parameters()):
            parameter.data = normal(*parameter.shape, seed=at)
        self.other = nn.Parameter(normal(1, 6, 10, 12))

    def forward(self, x):
        return torch.relu(self.layer(x) + self.other.expand(2, -1, -1, -1))


def linear(x, w):
    return F.linear(x, w)


def product(a, b):
    return a @ b


X, Y, ROW, WEIGHT = normal(20, 40), normal(40, 30), normal(30), normal(30, 40)
PRODUCTS = {
    "linear": (linear, X, WEIGHT),
    "linear_bias": (lambda x, w, b: F.linear(x, w, b), normal(33, 40), WEIGHT, ROW),
    "linear_batches": (linear, normal(3, 11, 40), WEIGHT),
    "mm": (lambda a, b: torch.mm(a, b), X, Y),
    "matmul": (product, X, Y),
    "matmul_batches": (product, normal(2, 3, 5, 40), Y),
    "bmm": (lambda a, b: torch.bmm(a, b), normal(3, 20, 40), normal(3, 40, 30)),
    "bmm_four": (lambda a, b: a @ b.transpose(-1, -2), normal(2, 3, 20, 40), normal(2, 3, 30, 40)),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b), ROW, X, Y),
    "transposed": (lambda a, b: a.T @ b.T, normal(40, 20), normal(30, 40)),
    "sliced": (lambda a, b: a[3:17, 5:40:2] @ b[1:19, 2:26:3], X, Y),
    "flipped": (lambda a, b: a.flip(1) @ b.flip(0, 1), X, Y),
    "expanded_rows": (lambda a, b: a[:1].expand(9, 40) @ b, X, Y),
    "expanded_batches": (lambda a, b: torch.bmm(a.expand(3, 20, 40), b), X, normal(3, 40, 30)),
    "permuted_batches": (lambda a, b: torch.bmm(a.permute(1, 0, 2), b.permute(1, 2, 0)), X[:, None].expand(20, 3, 40)
                         .contiguous(), normal(30, 3, 40)),
    "batches_of_heads": (lambda a, b: a.transpose(1, 2) @ b.permute(0, 2, 3, 1), normal(2, 20, 3, 40),
                         normal(2, 30, 3, 40)),
    "expanded_heads": (lambda a, b: a.transpose(1, 2) @ b[:, None].expand(2, 3, 40, 30), normal(2, 20, 3, 40),
                       normal(2, 40, 30)),
    "permuted_heads": (lambda a, b: a.permute(1, 2, 0, 3, 4) @ b.permute(0, 2, 1, 3, 4), normal(3, 2, 2, 17, 40),
                       normal(2, 3, 2, 40, 18)),
    "of_itself": (lambda a: a @ a.T, X),
    "of_a_square": (lambda a: a @ a, normal(17, 17)),
    "odd": (product, normal(67, 13), normal(13, 71)),
    "one_deep": (product, normal(20, 1), normal(1, 30)),
    "two_rows": (product, normal(2, 40), Y),
    "two_columns": (product, X, normal(40, 2)),
    "long_k": (product, normal(5, 300), normal(300, 6)),
}  # fmt: skip
"""Each has one output, which is linear in each operand."""
EPILOGUES = {
    "scaled": (lambda x, w, b, s: torch.relu(F.linear(x, w, b) * s) + 1, normal(33, 40), WEIGHT, ROW, normal(30)),
    "kept": (lambda a, b: (a @ b, (a @ b).relu()), X, Y),
    "kept_by_a_sum": (lambda a, b: ((p := a @ b).relu() * 2, p.sum()), X, Y),
    "outputs": (lambda a, b: ((p := a @ b).sigmoid(), p > 0, (p * 3).to(torch.float16), p.to(torch.int32)), X, Y),
    "rows_and_columns": (lambda a, b, c, d: (a @ b) * c + d, X, Y, normal(20, 1), normal(1, 30)),
    "residual": (lambda a, b, c: a @ b + c.T, X, Y, normal(30, 20)),
    "number": (lambda a, b, c: (a @ b) * c, X, Y, torch.tensor(0.3)),
    "mask": (lambda a, b, c: torch.where(c, a @ b, 0.0), X, Y, normal(20, 30) > 0),
    "masked_rows": (lambda a, b, c: (a @ b).masked_fill(c[:, None], 7.0), X, Y, normal(20) > 0),
    "positions": (lambda a, b: (a @ b).tril(2), X, Y),
    "positions_of_images": (lambda a, b: (a @ b).tril(), normal(3, 20, 40), normal(3, 40, 30)),
    "permuted": (lambda a, b, c: ((a @ b) * c).reshape(4, 5, 30).permute(0, 2, 1) + 1.0, X, Y, normal(20, 1)),
    "heads": (lambda x, w: (F.linear(x, w) * 2).view(4, 5, 3, 10).transpose(1, 2).contiguous(), X.view(4, 5, 40),
              WEIGHT),
    "halves": (lambda a, b: (a @ b).relu() * 0.5, X.half(), Y.half()),
    "named": (lambda left_hi, right_scale, acc, mask: (left_hi @ right_scale) * acc + mask, X, Y, normal(20, 30),
              normal(30)),
    "chain": (lambda a, b, c: torch.tanh(torch.relu(a @ b) @ c * 0.01), X, Y, normal(30, 21)),
}  # fmt: skip


def conv(kind, *options, after=lambda x, scale: x, image, **named):
    return Layer(kind(*options, **named), after, options[1]).eval(), normal(*image)


CONVOLUTIONS = {
    "plain": conv(nn.Conv2d, 3, 20, 3, image=(2, 3, 14, 15)),
    "scale": conv(nn.Conv2d, 3, 20, 3, after=image_scale, image=(2, 3, 14, 15)),
    "every_option": conv(nn.Conv2d, 5, 20, (3, 5), stride=2, padding=(1, 2), dilation=(1, 2), image=(2, 5, 14, 19)),
    "pointwise": conv(nn.Conv2d, 5, 20, 1, bias=False, image=(2, 5, 14, 19)),
    "one_channel": conv(nn.Conv2d, 1, 6, 3, padding=1, image=(2, 1, 9, 8)),
    "four_channels": conv(nn.Conv2d, 4, 6, 3, image=(2, 4, 7, 8)),
    "eight_channels": conv(nn.Conv2d, 8, 17, (1, 3), image=(1, 8, 7, 8)),
    "sixteen_channels": conv(nn.Conv2d, 16, 5, (3, 1), stride=(1, 2), image=(2, 16, 6, 7)),
    "seventeen_channels": conv(nn.Conv2d, 17, 33, 2, padding=1, image=(2, 17, 5, 6)),
    "forty_channels": conv(nn.Conv2d, 40, 9, 3, image=(2, 40, 5, 6)),
    "two_pixels": conv(nn.Conv2d, 3, 8, 3, image=(3, 3, 3, 4)),
    "volume": conv(nn.Conv3d, 3, 18, 3, padding=1, image=(2, 3, 5, 6, 7)),
    "signal": conv(nn.Conv1d, 3, 18, 3, padding=2, dilation=2, image=(2, 3, 50)),
    "groups": conv(nn.Conv2d, 12, 20, (3, 2), padding=1, groups=4, after=image_scale, image=(2, 12, 6, 7)),
    "groups_of_forty": conv(nn.Conv1d, 80, 18, 3, stride=2, groups=2, image=(2, 80, 30)),
    "sliced_image": (Layer(nn.Sequential(nn.Identity(), nn.Conv2d(3, 8, 3)), channels=8).eval(),
                     normal(4, 6, 20, 14)[::2, 1::2, 2:18:2]),
}  # fmt: skip
TRANSPOSED = {
    "t_plain": conv(nn.ConvTranspose2d, 5, 18, 3, image=(2, 5, 7, 9)),
    "t_phases": conv(nn.ConvTranspose2d, 5, 18, 4, stride=2, padding=1, output_padding=1, image=(2, 5, 7, 9)),
    "t_volume": conv(
        nn.ConvTranspose3d, 5, 18, (3, 5, 7), stride=(2, 2, 1), padding=(1, 2, 3), output_padding=(1, 1, 0),
        image=(2, 5, 4, 5, 6),
    ),
    "t_dilated": conv(nn.ConvTranspose2d, 5, 18, 3, dilation=2, padding=1, image=(2, 5, 7, 9)),
    "t_gaps": conv(nn.ConvTranspose2d, 3, 6, (5, 3), stride=(3, 5), padding=(1, 0), image=(2, 3, 5, 4)),
    "t_signal": conv(nn.ConvTranspose1d, 4, 7, 3, stride=2, image=(3, 4, 9)),
    "t_sixteen": conv(nn.ConvTranspose2d, 16, 7, 2, stride=2, image=(2, 16, 3, 4)),
    "t_strided_dilated": conv(nn.ConvTranspose2d, 5, 18, 3, stride=2, padding=1, dilation=2, image=(2, 5, 4, 5)),
    "t_empty_phases": conv(
        nn.ConvTranspose2d, 5, 7, 3, stride=5, padding=1, dilation=2, after=image_scale, image=(2, 5, 3, 4)
    ),
    "t_spread_taps": conv(
        nn.ConvTranspose3d, 3, 5, (2, 1, 4), stride=(1, 3, 2), padding=(0, 0, 2), dilation=(1, 1, 3),
        output_padding=(0, 1, 1), image=(2, 3, 2, 3, 5),
    ),
    "t_groups": conv(
        nn.ConvTranspose3d, 12, 9, 3, stride=2, padding=1, groups=3, after=volume_scale, image=(2, 12, 3, 2, 4)
    ),
    "t_residual": (ResidualLayer(nn.ConvTranspose2d(5, 6, 3, stride=2, output_padding=1)).eval(), normal(2, 5, 4, 5)),
    "t_seventeen": conv(nn.ConvTranspose2d, 17, 5, 3, stride=2, padding=1, image=(2, 17, 3, 4)),
}  # fmt: skip
ALL = PRODUCTS | EPILOGUES | CONVOLUTIONS | TRANSPOSED


@contextmanager
def planned_for_gpu(*, tf32=False, any_size=True):
    """Graphs are captured as for a GPU; contractions of any size are planned."""
    with pytest.MonkeyPatch.context() as patch, capturing_for("cuda"), torch.no_grad():
        patch.setattr(torch.backends.cudnn, "allow_tf32", tf32)
        patch.setattr(torch.backends.cuda.matmul, "allow_tf32", tf32)
        if any_size:
            patch.setattr(contraction_planning, "MIN_FLOPS", 0)
            patch.setattr(contraction_planning, "MIN_SIZE", 1)
        yield


def plan(program, *args, **options):
    """The plan of a program as for a GPU."""
    with planned_for_gpu(**options):
        return plan_program(program, args, {})


def contractions(plan):
    """The regions of a plan that are contractions."""
    return [part for part in plan.regions if isinstance(part.region, ContractionRegion)]
