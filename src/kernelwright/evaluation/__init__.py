"""Evaluation of suites of problems with many candidates."""
