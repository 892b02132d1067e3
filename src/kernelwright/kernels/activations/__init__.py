"""Activations, gated and plain, with bias, dropout and a residual."""
