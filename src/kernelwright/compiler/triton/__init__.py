"""Prints regions as Triton for NVIDIA GPUs."""
