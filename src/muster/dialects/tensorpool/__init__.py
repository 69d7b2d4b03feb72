"""TensorPool's wire, as its command line `tp` speaks it.

Leans on the house's services. Translation only: no store, no house rule. Total: every phase, request, error code and
field has a wire form, and `fields.py` says of every field what becomes of it.
"""

from muster.dialects.tensorpool.routes import TensorPool

__all__ = ["TensorPool"]
