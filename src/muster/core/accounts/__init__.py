"""Who pays, who may act, and how a client proves it."""
