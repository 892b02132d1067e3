"""From a program to the graph that regions are cut out of: captured, taken apart, put in order."""
