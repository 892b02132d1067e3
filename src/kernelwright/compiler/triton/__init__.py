"""Generates Triton for regions on NVIDIA GPUs."""
