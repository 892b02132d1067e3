"""Graph rewrites that run before partitioning into regions."""
