"""SSH keys, security groups and reserved addresses, as data."""
