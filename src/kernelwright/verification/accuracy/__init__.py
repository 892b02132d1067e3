"""How far results may be from FP64, and on which inputs."""
