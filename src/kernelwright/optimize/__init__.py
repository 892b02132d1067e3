"""From a slow program to faster code that its owner keeps: capture, regions, generated kernels."""
