"""Evolve a library of agent skills on evidence."""

__version__ = "0.1.0"
