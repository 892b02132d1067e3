"""Sound: signals of (B, T) samples from -1 to 1, and spectra of (B, F, T).

They wait on memory, but for those whose logarithm or power costs a CPU more. `GPU_SCALE` is the `scale` with which
each one's inputs fill a GPU; it grows the batch.
"""

import math

import torch
from torch import Tensor

GPU_SCALE = {
    "pre_emphasis": 32,
    "log_mel": 1,
    "normalise_utterance": 16,
    "mu_law": 16,
    "frame_energy": 16,
    "mix_with_gains": 16,
    "mid_and_side": 16,
    "fade_and_limit": 16,
    "tiny_decibels": 1,
}


def pre_emphasis(signal: Tensor) -> Tensor:
    """signal: (B, T) -> (B, T - 1): each sample less most of the one before."""
    return signal[:, 1:] - 0.97 * signal[:, :-1]


def pre_emphasis_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.rand(8 * scale, 160_000) * 2 - 1]


def log_mel(power: Tensor) -> Tensor:
    """power: (B, F, T), not negative -> the same shape: logarithms, at most eight below each utterance's largest."""
    logs = torch.log10(torch.clamp(power, min=1e-10))
    logs = torch.maximum(logs, logs.amax(dim=(1, 2), keepdim=True) - 8.0)
    return (logs + 4.0) / 4.0


def log_mel_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.rand(scale, 80, 300) ** 4]


def normalise_utterance(features: Tensor) -> Tensor:
    """features: (B, T, F) -> the same shape, each feature with mean 0 and variance 1 over its utterance."""
    mean = features.mean(dim=1, keepdim=True)
    variance = features.var(dim=1, keepdim=True)
    return (features - mean) / torch.sqrt(variance + 1e-5)


def normalise_utterance_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(16 * scale, 1199, 80) * 2 - 3]


def mu_law(signal: Tensor) -> Tensor:
    """signal: (B, T) -> (B, T), companded with mu = 255; rounding it is left to the caller."""
    return torch.sign(signal) * torch.log1p(255.0 * signal.abs()) / math.log1p(255.0)


def mu_law_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.rand(10 * scale, 132_300) * 2 - 1]


def frame_energy(signal: Tensor, window: Tensor) -> Tensor:
    """signal: (B, 400 n), window: (400,) -> (B, n), the logarithm of each frame's windowed energy."""
    frames = signal.reshape(signal.shape[0], -1, 400)
    return torch.log((frames * window).square().sum(dim=-1) + 1e-6)


def frame_energy_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(8 * scale, 400 * 401) / 8, torch.hann_window(400)]


def mix_with_gains(tracks: Tensor, gains: Tensor) -> Tensor:
    """tracks: (B, K, T), gains: (K,) in decibels -> (B, T), the mix, softly limited."""
    factors = 10 ** (gains / 20)
    return torch.tanh((tracks * factors[:, None]).sum(dim=1))


def mix_with_gains_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.rand(4 * scale, 6, 65_536) * 2 - 1, -12 * torch.rand(6)]


def mid_and_side(stereo: Tensor) -> Tensor:
    """stereo: (B, 2, T), left and right -> (B, 2, T), half the sum and half the difference."""
    left, right = stereo[:, 0], stereo[:, 1]
    return torch.stack(((left + right) / 2, (left - right) / 2), dim=1)


def mid_and_side_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.rand(8 * scale, 2, 96_001) * 2 - 1]


def fade_and_limit(signal: Tensor) -> Tensor:
    """signal: (B, T) -> (B, T): a straight fade out, then the largest sample of each signal made 0.9."""
    samples = signal.shape[-1]
    position = torch.arange(samples, device=signal.device, dtype=signal.dtype)
    faded = signal * (1 - position / samples)
    return 0.9 * faded / faded.abs().amax(dim=-1, keepdim=True).clamp(min=1e-5)


def fade_and_limit_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randn(8 * scale, 180_001)]


def tiny_decibels(magnitude: Tensor) -> Tensor:
    """magnitude: (4 * scale, 129), positive -> the same shape in decibels below the largest of all."""
    return 20 * torch.log10(magnitude / magnitude.max())


def tiny_decibels_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.rand(4 * scale, 129) + 1e-3]
