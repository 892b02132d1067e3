"""Programs that every printer has to print right: a function and its arguments, by name."""

import depthwise_programs
import narrow_integers
import pools
import torch
import torch.nn.functional as F


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


X = normal(37, 1000)
Y, W, B = normal(37, 1000, seed=1), normal(1000, seed=2), normal(1000, seed=3)
ODD = torch.tensor([[float("nan"), 1.0, -1.0], [float("inf"), 0.0, 1e-40], [float("-inf"), 3.0, 88.8]])
IMAGES, CLASSES = normal(3, 16, 9, 7), torch.arange(37) * 27 % 1000
LABELS = torch.arange(600).reshape(3, 4, 50) % 7
LOWER = torch.arange(64)[None, :] <= torch.arange(64)[:, None]


def centred_by_group(x):
    groups = x.reshape(3, 4, -1)
    return (groups - groups.mean(-1, keepdim=True)).view(x.shape)


def moving_rms(x):
    sums = (x * x).cumsum(-1)
    return x[:, 64:] / ((sums[:, 64:] - sums[:, :-64]).clamp(min=0) / 64 + 1e-3).sqrt()


PROGRAMS = {
    "pointwise": (lambda x, y, s, b: torch.relu((x + y) * s + b), X, Y, normal(1), normal(1)),
    "softmax": (lambda x: torch.softmax(x, -1), X),
    "log_softmax": (lambda x: torch.log_softmax(x, -1), X),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (1000,), w, b), X, W, B),
    "rms_norm": (lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w, X, W),
    "activations": (lambda x: (F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.mish(x), F.elu(x)), X * 3),
    "more_activations": (lambda x: (F.softplus(x * 10), F.hardswish(x), F.leaky_relu(x), torch.sign(x), x.abs()), X),
    "special": (lambda x: (torch.erf(x), torch.expm1(x * 0.1), torch.log1p(x.abs()), x.sin(), x.tanh()), X * 2),
    "powers": (lambda x: (x**3, x.abs() ** 1.7, x.abs() ** -0.5, x**2), X),
    "columns": (lambda x: torch.softmax(x, 0), X),
    "statistics": (lambda x: (x.var(-1), x.mean(-1), x.std(-1, unbiased=False), x.amax(-1)), X),
    "losses": (lambda x, y: (F.mse_loss(x, y), F.huber_loss(x, y), F.l1_loss(x, y)), X, Y),
    "divergence": (lambda x, y: F.kl_div(F.log_softmax(x, -1), F.softmax(y, -1), reduction="batchmean"), X, Y),
    "group_norm": (lambda x, w, b: F.silu(F.group_norm(x, 4, w, b)), normal(3, 16, 9, 7), normal(16), normal(16)),
    "by_hand": (centred_by_group, normal(3, 16, 9)),
    "channels": (lambda x: x[:, 0] * 0.3 + x[:, 1] * 0.5 + x[:, 2] * 0.2, normal(2, 3, 33, 65)),
    "transposed": (lambda x, y: x.exp().t() + y, X, normal(1000, 37)),
    "bfloat16": (lambda x, w: F.rms_norm(x, (1000,), w), X.bfloat16(), W.bfloat16()),
    "float16": (lambda x: torch.sigmoid(x) * x + 1, X.half()),
    "float64": (lambda x: torch.softmax(x, -1), X.double()),
    "whole_numbers": (lambda x: (x * 3 + 1, x > 2, x.float() / 7), torch.arange(-300, 300).reshape(20, 30)),
    "choice": (lambda x, m: torch.where(m, x, -1.0).sum(-1), X, X > 0.3),
    "positions": (lambda x: torch.softmax(torch.where(torch.arange(64) <= 40, x, float("-inf")), -1), normal(3, 7, 64)),
    "masked": (lambda x, m: torch.softmax(x.masked_fill(~m, float("-inf")), -1), normal(2, 64, 64), LOWER),
    "clamped": (lambda x: x.clamp(-0.5, 0.5) + x.clamp(min=0.1) + x.clamp(max=0.2), X),
    "not_a_number": (lambda x: torch.relu(x) + x.amax(-1, keepdim=True), ODD),
    "infinite": (lambda x: (torch.exp(x), torch.log(x), torch.sigmoid(x)), ODD),
    "two_rows": (lambda x: (x.sum(-1), x.sum(0)), X),
    "both_means": (lambda x: x - x.mean(0) - x.mean(1, keepdim=True), X),
    "odd_slice": (lambda x: torch.softmax(x[:, 1:] * 2, -1), normal(5, 18)),
    "long_row": (lambda x: torch.softmax(x, -1), normal(2, 50_001)),
    "cosine": (lambda x, y: F.cosine_similarity(x, y), X, Y),
    "places": (lambda x: (x.argmax(-1), x.argmin(-1), x.argmax(0), *x.max(-1), *x.min(0)), (X * 3).round()),
    "places_odd": (lambda x: (x.argmax(-1), *x.min(-1), x.argmax(0)), ODD),
    "places_of_nothing": (lambda x: (x.argmax(-1), *x.max(0)), torch.full((5, 40), float("-inf"))),
    "places_in_all": (lambda x: x.argmax(), (normal(2, 3, 3000) * 2).round()),
    "places_whole": (lambda x: (x.argmin(-1), *x.max(1)), torch.arange(3000).reshape(20, 150) % 7),
    "running": (lambda x: (x.cumsum(-1), x.cumsum(0), torch.cumprod(x.abs() + 0.5, -1)), normal(9, 333)),
    "running_columns": (lambda x: x.cumsum(1) * 2 + torch.cumprod(x, 1), normal(5, 33, 70)),
    "running_whole": (lambda x: (x.cumsum(-1), (x > 3).cumsum(-1)), torch.arange(600).reshape(4, 150) % 7),
    "running_mean": (lambda x: x.cumsum(-1) / torch.arange(1, 1001) - x.cumsum(-1).amax(-1, keepdim=True), X),
    "running_back": (lambda x: torch.flip(torch.cumsum(torch.flip(x.exp(), [-1]), -1), [-1]) + x, normal(4, 203)),
    "running_both": (lambda x: x.flip(0).cumsum(0).flip(0) + x.cumsum(0), normal(40, 70)),
    "running_window": (moving_rms, X),
    "running_halves": (lambda x: (x.cumsum(0)[:9] * 2, x.cumsum(0)[9:] + x[9:]), X),
    "turned": (lambda x: (x.flip(-1) * 2, x.flip([0, 1]).cumsum(-1), x[:, 2:].flip(-1) + 1), normal(4, 203)),
    "cross_entropy": (lambda x, t: F.cross_entropy(x, t), X, CLASSES),
    "cross_entropies": (lambda x, *a: F.cross_entropy(x, *a, ignore_index=54, reduction="none"), X, CLASSES, W.abs()),
    "cross_entropy_images": (lambda x, t: F.cross_entropy(x, t, reduction="sum"), normal(3, 7, 4, 50), LABELS),
    "picked": (lambda x, t: (x * 2).gather(1, t[:, None]).squeeze(1) + x.logsumexp(1), X.half(), CLASSES),
    "picked_by_place": (
        lambda x, at: torch.where(torch.arange(300) == at[:, None], x, 0.0).sum(1),
        X[:4, :300],
        torch.tensor([7, 2**32 + 7, -1, 2**40]),
    ),
    "picked_alone": (lambda x, at: x.gather(1, at).squeeze(1) * 2, X, CLASSES[:, None]),
    "picked_in_all": (
        lambda t, at, x: (t.expand(7, 300) - x.amax(1, keepdim=True)).gather(1, at.expand(7, 1))[:, 0],
        X[0, :300],
        torch.tensor([[5]]),
        X[:7, :300],
    ),
    "picked_columns": (
        lambda x, at: x.logsumexp(0) - x.gather(0, at[None]).squeeze(0),
        X[:, :37].bfloat16(),
        CLASSES % 37,
    ),
    "batch_norm": (lambda x, *p: F.relu(F.batch_norm(x, *p)), IMAGES, normal(16), *(normal(16).abs(),) * 3),
    "batch_norm_training": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), IMAGES, normal(16), normal(16)),
    "batch_norm_half": (lambda x, *p: F.batch_norm(x, *p), IMAGES.bfloat16(), normal(16), normal(16).abs()),
    "instance_norm": (lambda x: F.instance_norm(x), IMAGES),
    "group_norm_half": (lambda x, w, b: F.group_norm(x, 4, w, b), IMAGES.half(), normal(16).half(), normal(16).half()),
    "gated": (lambda x: (F.glu(x), F.glu(x, 0)), normal(38, 1000)),
    "pieces": (lambda x: x.chunk(3, 1)[1] * x.split([2, 3, 4], 1)[1][:, :3] + x.unbind(1)[2][:, None], normal(5, 9)),
    "strided_pieces": (lambda x: x[:, ::2].t() * 2 + x.view(6, 3, 8)[:, 1, 4:].mT[:1], normal(6, 24)),
    "tall": (lambda x: (x.sum(0), x.mean(0), torch.softmax(x, 0)), normal(9000, 3)),
    "tall_pairs": (lambda x: x.var((0, 2)), normal(70, 5, 129)),
    "taken_names": (lambda row, i0, new, load: (row + i0).amax(-1) * new + load.sum(-1), X, Y, normal(37), X),
    "divided": (lambda x, y: (x % y, x // y, torch.fmod(x, y), x.div(y, rounding_mode="trunc")), X * 9, Y.ceil()),
    "divided_whole": (lambda x: (x % 7, x // -7, torch.fmod(x, 5), x % -3), torch.arange(-300, 300)),
    "least": (lambda x, y: (torch.fmin(x, y), torch.fmax(x, y), x.isinf(), x.sgn()), ODD, ODD.flip(0)),
    "both_ways": (lambda x: (torch.log_softmax(x / 0.07, 1), torch.log_softmax(x / 0.07, 0)), X),
    "matched": (
        lambda x: (torch.log_softmax(x, 1).diagonal().mean(), torch.log_softmax(x, 0).diagonal(), x.diagonal() * 2),
        X[:, :37].contiguous(),
    ),
    "distilled": (
        lambda x, y: F.kl_div(torch.log_softmax(x / 2, 1), torch.softmax(y / 2, 1), reduction="batchmean") * 4,
        X,
        Y,
    ),
    "spread": (lambda x: (x - x.mean(-1, keepdim=True)).pow(2).mean(), X),
    "spread_columns": (lambda x: (x - x.mean(0)).abs().sum((0, 1)), X.t().contiguous()),
    "picked_twice": (
        lambda x, at: x.log_softmax(-1).exp().gather(1, at).squeeze(1) * x.log_softmax(-1).gather(1, at).squeeze(1),
        X,
        CLASSES[:, None],
    ),
    "picked_after": (
        lambda x, at: (F.softmax(x, -1).mul(2).gather(1, at), F.softmax(x, -1).gather(1, at)),
        X,
        CLASSES[:, None],
    ),
    "copied": (lambda x, y: (x * 2).copy_(y) + x, X, Y),
    "apart": (lambda x: x[:, -1].amax(0) * 2, X),
    "bytes": (lambda x: (x.float() / 255 - 0.5, x > 100, x.to(torch.int16)), torch.arange(1000).to(torch.uint8)),
    "powers_of_bytes": (lambda x: ((x.float() / 255) ** 2.2 * 1.2).clamp(0, 1), torch.arange(1000).to(torch.uint8)),
    "rows_of_bytes": (
        lambda x, y: (torch.softmax((x / 9).tanh() * 3, -1), x.float().log1p(), (x / 9).tanh() * y),
        torch.arange(-128, 128).to(torch.int8).repeat(6, 3)[:, :700].contiguous(),
        normal(6, 700),
    ),
    "numbers_that_wrap": (
        lambda x, y: (x > -1, x == -6, x < 300, x.clamp(-5, 40), torch.where(x > 4, x, -1).float(), y > 200, y == 200),
        torch.arange(256).to(torch.uint8),
        torch.arange(-128, 128).to(torch.int8),
    ),
    "narrowed": (
        lambda x: (x.to(torch.uint8).float() * 2, x.to(torch.int8).float() * 2, (x * 999).to(torch.int16).float() * 2),
        torch.arange(-300, 300).to(torch.int32),
    ),
    "beside_a_number": (
        lambda x, y, z: (x.to(torch.uint8) > y, x > z),
        X.abs() * 3,
        torch.tensor(-1),
        X[0, 0].abs().double() * 3 + 1e-9,
    ),
    "truths_as_numbers": (
        lambda a, b: (a + b, a * b, torch.maximum(a, b), torch.fmin(a, b), a < b, a <= b, a >= b, a != b, a + True),
        X[:5] > 0.3,
        X[5:10] > -0.3,
    ),
    "largest_truths": (
        lambda a: (a.amax(-1), a.amin(-1), *torch.max(a, -1), *torch.min(a, -1)),
        torch.stack([X[0] > 2, X[1] > -3, X[2] > 9, X[3] > -9])[:, :203],
    ),
    "any_byte": (
        lambda x: (x.any(-1), x.all(-1), x.any(-1).float() + 1),
        torch.arange(600).reshape(4, 150).to(torch.uint8),
    ),
    "exclusive": (lambda x: torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1].cumsum(1)), 1), normal(7, 203)),
    "edges": (
        lambda x: torch.cat((x.sum(1, keepdim=True), x.softmax(1), torch.ones(7, 1), x[:, :1]), 1),
        normal(7, 203),
    ),
    "edges_of_columns": (lambda x: torch.cat((torch.zeros(1, 70), x.softmax(0)), 0), normal(33, 70)),
    "put_together": (lambda x, y: (torch.cat([x * 2, y + 1], -1), torch.stack([x, y], 0)), X, Y),
    "on_the_way": (lambda x, w: (x * w.mul(2).unsqueeze(0) + 1, w * 2), X, W),
    "rows_alike": (lambda x, y: (x.sum(-1), (y * 2).amax(-1), x.mean(-1)), X, Y),
    "side_by_side": (lambda x, y: (x.sum(), y.mean()), X, Y),
    **narrow_integers.PROGRAMS,
    **pools.PROGRAMS,
    **depthwise_programs.PROGRAMS,
}  # fmt: skip
