"""Kernels of the library inside models of other packages."""
