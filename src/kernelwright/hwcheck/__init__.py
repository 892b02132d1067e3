"""Predictions held against the hardware: layouts, and emulated counts of ladders."""
