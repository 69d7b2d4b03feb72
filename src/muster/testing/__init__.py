"""Importable test tools: contract suites, the simulated world under a virtual clock, a server fixture."""
