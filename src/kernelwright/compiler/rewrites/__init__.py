"""Graph rewrites before a graph is partitioned into regions."""
