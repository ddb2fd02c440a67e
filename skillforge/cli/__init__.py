"""The command line: the only place that chooses adapters."""
