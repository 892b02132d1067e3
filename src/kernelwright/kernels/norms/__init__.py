"""RMSNorm and LayerNorm with residual, forward and backward."""
