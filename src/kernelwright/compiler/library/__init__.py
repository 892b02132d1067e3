"""Implementations of torch's own and of the kernel library as candidates for a region next to generated kernels."""
