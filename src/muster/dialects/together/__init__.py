"""Together AI's wire, current and legacy, as its own SDK and command line speak it.

Leans on the house's services. Translation only: no store, no clock, no house rule. Total: every phase, condition,
error code and field has a wire form, and `fields.py` says of every field what becomes of it.
"""

from muster.dialects.together.routes import Together

__all__ = ["Together"]
