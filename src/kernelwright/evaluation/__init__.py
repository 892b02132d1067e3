"""Suites of problems with many candidates, and what came of them."""
