"""Capacity: who holds which host or slice, and where the next ask would go."""
