"""Comparison of predictions with the hardware: layouts, access costs, and emulated counts of ladders."""
