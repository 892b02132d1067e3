"""What one kernel computes: from the nodes of a graph to regions that people read and generators print."""
