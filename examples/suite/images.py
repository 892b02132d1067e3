"""Pictures: colour, brightness and blending of batches in NCHW or NHWC, bytes or floats from 0 to 1.

They wait on memory, at few operations for each byte. `GPU_SCALE` is the `scale` with which each one's inputs fill a
GPU; it grows the batch.
"""

import torch
from torch import Tensor

GPU_SCALE = {
    "rgb_to_grey": 16,
    "normalise_channels": 16,
    "bytes_to_normalised": 32,
    "gamma_from_bytes": 32,
    "rgb_to_yuv": 16,
    "alpha_blend": 16,
    "brightness_contrast": 16,
    "saturation": 16,
    "tone_map": 16,
    "crop_and_centre": 16,
    "edge_strength": 16,
}


def rgb_to_grey(image: Tensor) -> Tensor:
    """image: (B, 3, H, W) -> (B, 1, H, W)."""
    red, green, blue = image[:, 0:1], image[:, 1:2], image[:, 2:3]
    return 0.299 * red + 0.587 * green + 0.114 * blue


def rgb_to_grey_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.rand(8 * scale, 3, 256, 256)]


def normalise_channels(image: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    """image: (B, 3, H, W), mean, spread: (3,) -> the same shape as image."""
    return (image - mean.view(1, 3, 1, 1)) / spread.view(1, 3, 1, 1)


def normalise_channels_inputs(scale: int = 1) -> list[Tensor]:
    mean, spread = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return [torch.rand(12 * scale, 3, 224, 224), mean, spread]


def bytes_to_normalised(image: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    """image: (B, H, W, 3) in uint8, mean, spread: (3,) -> (B, 3, H, W) in float32: what a loader hands a network."""
    floats = image.permute(0, 3, 1, 2).float() / 255
    return (floats - mean[:, None, None]) / spread[:, None, None]


def bytes_to_normalised_inputs(scale: int = 1) -> list[Tensor]:
    mean, spread = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return [torch.randint(0, 256, (28 * scale, 224, 224, 3), dtype=torch.uint8), mean, spread]


def gamma_from_bytes(image: Tensor) -> Tensor:
    """image: (B, 3, H, W) in uint8 -> the same shape in float32, gamma 2.2 undone, a little exposure."""
    linear = (image.to(torch.float32) / 255.0) ** 2.2
    return (linear * 1.2).clamp(0, 1)


def gamma_from_bytes_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.randint(0, 256, (6 * scale, 3, 480, 500), dtype=torch.uint8)]


def rgb_to_yuv(image: Tensor) -> Tensor:
    """image: (B, 3, H, W) -> (B, 3, H, W)."""
    red, green, blue = image.unbind(dim=1)
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    return torch.stack((luma, 0.492 * (blue - luma), 0.877 * (red - luma)), dim=1)


def rgb_to_yuv_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.rand(4 * scale, 3, 360, 360)]


def alpha_blend(front: Tensor, back: Tensor) -> Tensor:
    """front: (B, 4, H, W), colour and opacity, back: (B, 3, H, W) -> (B, 3, H, W)."""
    colour, opacity = front[:, :3], front[:, 3:]
    return opacity * colour + (1 - opacity) * back


def alpha_blend_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.rand(4 * scale, 4, 270, 270), torch.rand(4 * scale, 3, 270, 270)]


def brightness_contrast(image: Tensor, brightness: Tensor, contrast: Tensor) -> Tensor:
    """image: (B, 3, H, W), brightness, contrast: (B,), a factor for each picture -> the same shape as image."""
    brighter = image * brightness[:, None, None, None]
    middle = brighter.mean(dim=(1, 2, 3), keepdim=True)
    return ((brighter - middle) * contrast[:, None, None, None] + middle).clamp(0, 1)


def brightness_contrast_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.rand(8 * scale, 3, 256, 256), torch.rand(8 * scale) + 0.5, torch.rand(8 * scale) + 0.5]


def saturation(image: Tensor, weight: Tensor) -> Tensor:
    """image: (B, 3, H, W), weight: (3,), of the channels in grey -> the same shape, colours half as strong again."""
    grey = (image * weight[None, :, None, None]).sum(dim=1, keepdim=True)
    return torch.clamp(1.5 * image - 0.5 * grey, 0.0, 1.0)


def saturation_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.rand(6 * scale, 3, 300, 300), torch.tensor([0.299, 0.587, 0.114])]


def tone_map(image: Tensor) -> Tensor:
    """image: (B, H, W, 3), linear light, not negative -> the same shape from 0 to 1, gamma applied."""
    mapped = image / (1 + image)
    low = mapped * 12.92
    high = 1.055 * mapped.clamp(min=1e-4) ** (1 / 2.4) - 0.055
    return torch.where(mapped <= 0.0031308, low, high)


def tone_map_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.rand(4 * scale, 320, 320, 3) * 4]


def crop_and_centre(image: Tensor) -> Tensor:
    """image: (B, C, H, W) -> (B, C, H - 32, W - 32), mirrored, each picture's mean taken away."""
    crop = image[:, :, 16:-16, 16:-16].flip(-1)
    return crop - crop.mean(dim=(2, 3), keepdim=True)


def crop_and_centre_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.rand(8 * scale, 3, 256, 256)]


def edge_strength(image: Tensor) -> Tensor:
    """image: (B, H, W) -> (B, H - 1, W - 1), the length of the difference to the right and below."""
    right = image[:, :-1, 1:] - image[:, :-1, :-1]
    below = image[:, 1:, :-1] - image[:, :-1, :-1]
    return torch.sqrt(right * right + below * below + 1e-8)


def edge_strength_inputs(scale: int = 1) -> list[Tensor]:
    return [torch.rand(6 * scale, 513, 513)]
