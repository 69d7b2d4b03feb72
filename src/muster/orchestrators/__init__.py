"""WHAT HOSTS BECOME: simulated clusters, and later real Slurm and Kubernetes."""
