"""Rotary position embedding of queries and keys in one launch."""
