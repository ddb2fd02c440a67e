"""Use cases, written over the ports."""
