"""SLURM: nodes become a Slurm cluster with munge, slurmctld, slurmd and sshd, real daemons all of them."""

from muster.orchestrators.slurm.orchestrator import SlurmOrchestrator

__all__ = ["SlurmOrchestrator"]
