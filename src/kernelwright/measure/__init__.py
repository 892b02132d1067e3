"""Clocks, statistics, paired comparison, and the conditions under which samples are taken."""
