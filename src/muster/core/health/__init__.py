"""Health: repairs of nodes, asked for by people or proposed by the house, approved, carried out and recorded."""
