"""Adapters: one outside thing per file, none importing another."""
