"""RMSNorm and LayerNorm, forward and backward, with a residual added before."""
