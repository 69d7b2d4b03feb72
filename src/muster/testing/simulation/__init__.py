"""The whole control plane under a virtual clock: real engine, core, dialects and SQLite files; one seed, one history.

A crash drops the process image (every task, every cache) and opens the files again. Always-invariants are checked as
history unfolds, eventually-invariants when the dust has settled. A failure prints its seed and a readable trace.
"""
