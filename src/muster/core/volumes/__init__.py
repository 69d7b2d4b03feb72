"""Volumes: shared storage that outlives clusters."""
