"""PROMISES: the Protocols between rooms, each with its laws in the docstring. The fifteen-minute tour.

Leans on model and errors. Whoever implements a contract passes its importable suite in `muster.testing`.
"""
