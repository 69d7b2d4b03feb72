"""HOSTD: the only root process. It makes nodes, fabrics and volumes real on this machine, and nothing else.

Leans on contracts, model and errors; never on core, web or dialects: nobody who parses strangers' JSON is root.
Its callers are the `local` substrate's client and nobody else, over a Unix socket that only they may open.
"""
