"""Shared by all row kernels: on-chip layouts, device helpers and launchers."""
