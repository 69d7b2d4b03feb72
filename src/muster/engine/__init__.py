"""MOTION: claim, run one reconcile, apply its outcome, release. Generic: knows no noun."""
