"""LOCAL: real nodes in Linux namespaces on this machine, made by hostd; this side is unprivileged."""

from muster.substrates.local.substrate import LocalSubstrate

__all__ = ["LocalSubstrate"]
