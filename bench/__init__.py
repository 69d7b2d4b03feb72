"""Measurements; see bench/run."""
