"""Losses: two tensors in, one number out.

They wait on memory: the answer needs one pass over the inputs, and written as operators each step stores a tensor of
their size. `GPU_SCALE` is the `scale` with which each one's inputs fill a GPU.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

GPU_SCALE = {
    "mean_squared_error": 16,
    "weighted_huber": 16,
    "kl_divergence": 1,
    "cross_entropy_by_hand": 32,
    "cross_entropy": 16,
    "smoothed_cross_entropy": 16,
    "focal_loss": 16,
    "cosine_embedding": 16,
    "hinge_mean": 32,
    "triplet_margin": 16,
    "weighted_bce_with_logits": 16,
    "contrastive": 4,
    "tiny_l1": 1,
}


def mean_squared_error(prediction: Tensor, target: Tensor) -> Tensor:
    """prediction, target: (M, N) -> ()."""
    return ((prediction - target) ** 2).mean()


def mean_squared_error_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(1024 * scale, 1024), torch.randn(1024 * scale, 1024)]


def weighted_huber(prediction: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """prediction, target, weight: (M, N) -> (): quadratic below one, linear above."""
    error = (prediction - target).abs()
    loss = torch.where(error < 1, 0.5 * error * error, error - 0.5)
    return (weight * loss).mean()


def weighted_huber_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(600 * scale, 1000) * 2, torch.randn(600 * scale, 1000), torch.rand(600 * scale, 1000)]


def kl_divergence(student: Tensor, teacher: Tensor) -> Tensor:
    """student, teacher: (M, N) logits -> (), of distillation at temperature 2."""
    logs = F.log_softmax(student / 2, dim=-1)
    return 4 * F.kl_div(logs, F.softmax(teacher / 2, dim=-1), reduction="batchmean")


def kl_divergence_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(32 * scale, 1000) * 2, torch.randn(32 * scale, 1000) * 2]


def cross_entropy_by_hand(logits: Tensor, target: Tensor) -> Tensor:
    """logits: (M, N), target: (M,) int64 below N -> ()."""
    chosen = logits.gather(1, target[:, None]).squeeze(1)
    return (torch.logsumexp(logits, dim=1) - chosen).mean()


def cross_entropy_by_hand_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(64 * scale, 32_000), torch.randint(0, 32_000, (64 * scale,))]


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """logits: (M, N), target: (M,) int64 below N -> ()."""
    return F.cross_entropy(logits, target)


def cross_entropy_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(48 * scale, 50_257) * 2, torch.randint(0, 50_257, (48 * scale,))]


def smoothed_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """logits: (M, 1000), target: (M,) int64 below 1000 -> (), a tenth of the weight spread over all classes."""
    logs = F.log_softmax(logits, dim=-1)
    right = -logs.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return (0.9 * right - 0.1 * logs.mean(dim=-1)).mean()


def smoothed_cross_entropy_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(2000 * scale, 1000), torch.randint(0, 1000, (2000 * scale,))]


def focal_loss(logits: Tensor, target: Tensor) -> Tensor:
    """logits, target: (B, A, C), target 0 or 1 -> (), of a detector's anchors."""
    probability = torch.sigmoid(logits)
    entropy = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    right = probability * target + (1 - probability) * (1 - target)
    weight = 0.25 * target + 0.75 * (1 - target)
    return (weight * (1 - right) ** 2 * entropy).mean()


def focal_loss_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(scale, 12_000, 80), (torch.rand(scale, 12_000, 80) < 0.1).float()]


def cosine_embedding(a: Tensor, b: Tensor) -> Tensor:
    """a, b: (M, N) pairs that belong together -> ()."""
    return (1 - F.cosine_similarity(a, b, dim=-1)).mean()


def cosine_embedding_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(1500 * scale, 768), torch.randn(1500 * scale, 768)]


def hinge_mean(score: Tensor, label: Tensor) -> Tensor:
    """score, label: (N,), label -1 or 1 -> ()."""
    return torch.clamp(1 - label * score, min=0).mean()


def hinge_mean_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(1_000_003 * scale), torch.randint(0, 2, (1_000_003 * scale,)).float() * 2 - 1]


def triplet_margin(anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """anchor, positive, negative: (M, N) -> ()."""
    near = ((anchor - positive).pow(2).sum(dim=1) + 1e-6).sqrt()
    far = ((anchor - negative).pow(2).sum(dim=1) + 1e-6).sqrt()
    return F.relu(near - far + 1.0).mean()


def triplet_margin_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(4000 * scale, 256) for _ in range(3)]


def weighted_bce_with_logits(logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """logits, target: (M, N), target between 0 and 1, weight: (N,), of the positive class -> ()."""
    softplus = torch.clamp(-logits, min=0) + torch.log1p(torch.exp(-logits.abs()))
    factor = 1 + (weight - 1) * target
    return ((1 - target) * logits + factor * softplus).mean()


def weighted_bce_with_logits_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(4096 * scale, 250), torch.rand(4096 * scale, 250), torch.rand(250) * 3 + 0.5]


def contrastive(similarity: Tensor) -> Tensor:
    """similarity: (N, N), of each picture with each text -> (), the mean over rows and columns, as in CLIP."""
    logits = similarity / 0.07
    rows = F.log_softmax(logits, dim=1).diagonal().mean()
    columns = F.log_softmax(logits, dim=0).diagonal().mean()
    return -(rows + columns) / 2


def contrastive_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.rand(1280 * scale, 1280 * scale) * 2 - 1]


def tiny_l1(prediction: Tensor, target: Tensor) -> Tensor:
    """prediction, target: (16 * scale, 24) -> ()."""
    return (prediction - target).abs().mean()


def tiny_l1_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(16 * scale, 24), torch.randn(16 * scale, 24)]
