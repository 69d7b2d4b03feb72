"""A fleet that only remembers: believable phases and durations from a seed, and trouble on demand.

Leans on contracts and model. The world is one SQLite file that all processes of a home share and that outlives them.
"""

from muster.substrates.simulated.desk import SimulatedFaultDesk
from muster.substrates.simulated.substrate import SimulatedSubstrate
from muster.substrates.simulated.world import SimulatedWorld

__all__ = ["SimulatedFaultDesk", "SimulatedSubstrate", "SimulatedWorld"]
