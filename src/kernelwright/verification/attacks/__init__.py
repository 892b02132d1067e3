"""Checks against candidates that do not do the work: code attribution, stale outputs, out-of-bounds writes."""
