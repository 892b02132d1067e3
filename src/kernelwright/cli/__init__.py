"""The command line: one module per verb that parses, calls and prints."""
