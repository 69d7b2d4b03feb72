"""Slurm and Kubernetes clusters that only remember: both types, every feature, believable durations.

Leans on contracts/world.py, which it is handed; it does not know who keeps that world.
"""

from muster.orchestrators.simulated.orchestrator import SimulatedOrchestrator

__all__ = ["SimulatedOrchestrator"]
