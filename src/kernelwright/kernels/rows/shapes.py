"""Where operators over rows are measured."""

from __future__ import annotations

SHAPES = (
    (16384, 4096), (8192, 8192), (131072, 128), (32768, 1024), (4096, 16384), (8192, 65536), (4096, 131072),
    (4096, 2560), (2048, 5120), (1, 4096), (64, 128256), (7, 13), (100003, 33),
)  # fmt: skip
"""(M, N): those at which the peers' figures were taken, then models' own, short, tiny and odd ones."""
