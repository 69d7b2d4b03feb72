"""Object storage: who may use it, and with which keys."""
