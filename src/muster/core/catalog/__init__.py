"""The catalogue: what can be had, edited by the operator."""
