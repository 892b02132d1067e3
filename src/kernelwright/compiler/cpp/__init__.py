"""Generates C++ for regions on the CPU: vectors along one axis, threads over the rest."""
