"""BILLING: prices become charges, charges become entries, entries become a balance. Listens; is called by none."""
