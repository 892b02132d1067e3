"""Programs of depthwise convolutions: windows of all kinds, with elementwise computation before and after them."""

import torch
import torch.nn.functional as F


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


ROW, IMAGE, VOLUME = normal(2, 6, 29), normal(2, 6, 17, 19), normal(1, 4, 7, 9, 8)
LAST = IMAGE.to(memory_format=torch.channels_last)
KERNEL, DOUBLE, LARGE = normal(6, 1, 3, 3, seed=1), normal(12, 1, 3, 2, seed=2), normal(6, 1, 7, 7, seed=3) / 7
SHIFT, FACTOR = normal(6, seed=4), normal(6, 1, 1, seed=5)
BATCH_NORM = (normal(6, seed=6), normal(6, seed=7).abs() + 0.5, normal(6, seed=8), normal(6, seed=9))


def fused(x, w, mean, variance, weight, bias):
    """Convolution, batch norm in eval mode, ReLU6."""
    return F.relu6(F.batch_norm(F.conv2d(x, w, None, 2, 1, 1, 6), mean, variance, weight, bias))


PROGRAMS = {
    "depthwise": (lambda x, w, b: F.conv2d(x, w, b, 1, 1, 1, 6), IMAGE, KERNEL, SHIFT),
    "depthwise_row": (lambda x, w: F.conv1d(x, w, None, 2, 3, 2, 6).relu(), ROW, KERNEL[:, :, 0]),
    "depthwise_volume": (lambda x, w: F.conv3d(x, w, None, (1, 2, 1), 1, 1, 4), VOLUME, normal(4, 1, 3, 2, 3)),
    "depthwise_double": (lambda x, w: F.conv2d(x, w, None, (2, 1), (0, 2), (3, 1), 6) * 2, IMAGE, DOUBLE),
    "depthwise_last": (lambda x, w, b: F.conv2d(x, w, b, 2, 1, 1, 6).sigmoid(), LAST, KERNEL, SHIFT),
    "depthwise_large": (lambda x, w: F.gelu(F.conv2d(x, w, None, 1, 3, 1, 6)), IMAGE, LARGE),
    "depthwise_same": (lambda x, w: F.conv2d(x, w, None, 1, "same", 2, 6) + 1, IMAGE, DOUBLE[:6]),
    "depthwise_fused": (fused, IMAGE, KERNEL, *BATCH_NORM),
    "depthwise_fused_last": (fused, LAST, KERNEL, *BATCH_NORM),
    "depthwise_relu": (lambda x, w: F.conv2d(x.relu(), w, None, 1, 1, 1, 6) * 2, IMAGE, KERNEL),
    "depthwise_affine": (lambda x, w, f: F.conv2d(x * f + 1, w[..., :1], None, 1, 1, 1, 6), IMAGE, KERNEL, FACTOR),
    "depthwise_column": (
        lambda x, w: F.conv2d(x.relu().maximum(x[..., :1]), w[..., :1], None, 1, 1, 1, 6), IMAGE, KERNEL,
    ),
    "depthwise_narrow": (lambda x, w: F.conv2d(x[..., :1].relu(), w, None, 1, 1, 1, 6), IMAGE, KERNEL),
    "depthwise_residual": (lambda x, w: F.silu(F.conv2d(x, w, None, 1, 1, 1, 6)) + x, IMAGE, KERNEL),
    "depthwise_mean": (lambda x, w, b: F.conv2d(x, w, b, 1, 1, 1, 6).relu().mean((2, 3)), IMAGE, KERNEL, SHIFT),
    "depthwise_half": (lambda x, w: F.conv2d(x, w, None, 1, 1, 1, 6).relu(), IMAGE.half(), KERNEL.half()),
}  # fmt: skip
