"""NOUNS: frozen data and legal moves. No I/O, no clock, no rule that needs either. Leans on errors only.

Every noun is a frozen msgspec struct; change is a new value (`msgspec.structs.replace`) with a raised version.
"""
