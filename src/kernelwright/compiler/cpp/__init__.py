"""Prints regions as C++ for the CPU: vectors along one axis, threads over the rest."""
