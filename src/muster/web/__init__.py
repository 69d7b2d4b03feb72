"""The web server: one route table, plain ASGI, limits, metrics, logs."""
