"""Hosts: the machines we may use, their import, cordon and health."""
