"""Discover and read: which files are new, and their rows as one DataFrame."""
