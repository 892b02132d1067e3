"""A program as one graph of core ATen operators."""
