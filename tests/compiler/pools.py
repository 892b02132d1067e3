"""Programs of pooling and padding: windows of all kinds, with elementwise computation before and after them."""

import torch
import torch.nn.functional as F


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


ROW, IMAGE, VOLUME = normal(2, 3, 29), normal(2, 3, 17, 19), normal(1, 2, 7, 9, 8)
LAST = IMAGE.to(memory_format=torch.channels_last)
ODD = IMAGE.clone()
ODD[0, 0, 3, 4], ODD[1, 2], ODD[1, 1, 5] = float("nan"), float("-inf"), float("inf")
EVEN = normal(2, 3, 16, 24)
PROGRAMS = {
    "pool_max": (lambda x: F.max_pool2d(x, 3, 2, 1), ODD),
    "pool_max_row": (lambda x: F.max_pool1d(x, 8, 1, 4, 3) + 1, ROW),
    "pool_max_volume": (lambda x: F.max_pool3d(x, 3, 2, 1, 2, True), VOLUME),
    "pool_max_last": (lambda x: F.max_pool2d(x, 3, 2, 1) * 2, LAST),
    "pool_max_large": (lambda x: F.max_pool2d(x, 7, 2, 3) * 2, ODD),
    "pool_max_relu": (lambda x: F.max_pool2d(x.relu(), 3, 2, 1) * 2, ODD),
    "pool_max_sum": (lambda x: F.max_pool2d(x, 2).sum(1), IMAGE),
    "pool_max_bf16": (lambda x: F.max_pool2d(x, 3, 2, 1) * 2, IMAGE.bfloat16()),
    "pool_max_whole": (lambda x: F.max_pool2d(x, 3, 2, 1) + 1, (IMAGE * 100).long()),
    "pool_max_int8": (lambda x: F.max_pool2d(x, 3, 2, 1) + 1, (IMAGE * 50).to(torch.int8)),
    "pool_mean": (lambda x: F.avg_pool2d(x, 3, 2, 1) * 2, IMAGE),
    "pool_mean_row": (lambda x: F.avg_pool1d(x, 4, 3, 2, True, False) + 1, ROW),
    "pool_mean_volume": (lambda x: F.avg_pool3d(x, 2, 2, 1, True, False), VOLUME),
    "pool_mean_divisor": (lambda x: F.avg_pool3d(x, 3, 2, 1, divisor_override=5), VOLUME),
    "pool_mean_large": (lambda x: F.avg_pool2d(x, 7, 2, 3, True, False) * 2, IMAGE),
    "pool_mean_tiles": (lambda x: F.avg_pool2d(x.exp(), 8) * 2, EVEN),
    "pool_mean_half": (lambda x: F.avg_pool2d(x, 3, 2, 1) * 2, IMAGE.half()),
    "pool_mean_affine": (lambda x, w: F.avg_pool2d(x * w + 1, 3, 2, 1, False, False), IMAGE, normal(3, 1, 1)),
    "pool_mean_narrow": (lambda x: F.avg_pool2d(x[:, :, :1].exp(), 3, (1, 2), 1) + 1, IMAGE),
    "pool_adaptive": (lambda x: (F.adaptive_avg_pool2d(x, (4, 12)) * 2, F.adaptive_max_pool2d(x, 1) + 1), EVEN),
    "pool_both": (lambda x: (F.max_pool2d(x, 3, 1, 1), F.avg_pool2d(x, 3, 1, 1) + x, x.relu()), IMAGE),
    "pool_shared": (lambda x: ((y := x.relu()).sum(1), F.max_pool2d(y, 2), F.max_pool2d((x * 2).tanh(), 2)), IMAGE),
    "pool_softmax": (lambda x: F.max_pool2d(F.max_pool2d(x.softmax(1), 2), 2), IMAGE),
    "pool_padded": (lambda x: F.avg_pool2d(F.pad(x, (1, 2, 0, 1)).relu(), 3, 1, 1) * 2, IMAGE),
    "padded": (lambda x: F.pad(x, (-1, 2, 3, -4), value=7) * 2, IMAGE),
    "padded_twice": (lambda x: F.pad(F.pad(x, (1, 2, 0, 1)), (1, 1)) * 2, IMAGE),
    "padded_rows": (lambda x: F.pad(x, (1, 2), value=0.1).softmax(-1), IMAGE),
    "padded_slice": (
        lambda x: F.pad(x, (1, 2, 3, 4), value=7)[:, 1, ::2, 1:-1].transpose(1, 2).unsqueeze(1) * 2,
        IMAGE,
    ),
    "padded_bf16": (lambda x: F.pad(x, (1, 2, 3, 4), value=0.1) * 2, IMAGE.bfloat16()),
    "padded_bytes": (lambda x: F.pad(x, (1, 2, 3, 4), value=200) + 1, (IMAGE.abs() * 50).to(torch.uint8)),
    "padded_truths": (lambda x: F.pad(x, (1, 2, 3, 4), value=True) ^ True, IMAGE > 0),
    "padded_repeated": (lambda x: F.pad(x[:, :1].expand(2, 3, 17, 19), (1, 2, 3, 4, 1, 1), value=0.1) * 2, IMAGE),
}  # fmt: skip
