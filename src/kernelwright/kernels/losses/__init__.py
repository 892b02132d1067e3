"""Cross-entropy from logits, forward and backward."""
