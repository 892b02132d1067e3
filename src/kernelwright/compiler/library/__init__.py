"""Implementations of torch's own as candidates for a region next to generated kernels."""
