"""Error metrics, error budget, FP64 expected values and input distributions."""
