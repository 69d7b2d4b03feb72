"""WHERE HOSTS COME FROM: simulated, and later local namespaces and real machines over ssh."""
