"""Sources: which files are new, and their rows as one DataFrame."""
