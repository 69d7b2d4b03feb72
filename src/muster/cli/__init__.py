"""The `muster` command: a thin command line over the sdk."""
