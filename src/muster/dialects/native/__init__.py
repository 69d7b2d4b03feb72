"""The native dialect: everything Muster can do, under /muster/v1."""
