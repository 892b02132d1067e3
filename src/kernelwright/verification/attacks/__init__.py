"""Checks against candidates that do not do the work: whose code ran, stale outputs, writes out of bounds."""
