"""Softmax and log-softmax with scale and mask, forward and backward."""
