"""Capture of a program as one graph of core ATen operators."""
