"""Kernels of the library in models of other packages."""
