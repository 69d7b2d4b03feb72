"""E2E Networks' TIR wire: training clusters, and what creating one needs, as its API and SDK know them.

Leans on the house's services. Translation only: no store, no house rule. Total: every phase and error code has a wire
form. Everything has an integer id here: the number that the store gave it.
"""

from muster.dialects.tir.routes import Tir

__all__ = ["Tir"]
