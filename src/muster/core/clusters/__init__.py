"""Clusters: the tenant's wish, accepted once and then moved along the table of phases until it is true."""
