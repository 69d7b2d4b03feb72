"""DECISIONS: one room per noun, each with at most service.py (use cases), plan.py (pure), reconcile.py (effects).

Leans on engine, contracts, model and errors. Order between rooms (right may see left), checked by import-linter:
accounts < catalog < hosts < capacity < volumes < access < clusters. No room has heard of any dialect.
"""
