"""Activations, plain and gated, with bias, dropout and residual."""
