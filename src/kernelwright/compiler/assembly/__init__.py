"""The output file: the original program, and layers of classes that run it faster."""
