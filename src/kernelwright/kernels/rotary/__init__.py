"""Rotary position embedding, forward and backward."""
