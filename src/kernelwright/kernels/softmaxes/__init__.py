"""Softmax and log-softmax, scaled and masked, forward and backward."""
