"""Muster: run your own GPU cloud."""

__version__ = "0.1.0"
