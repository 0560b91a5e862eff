"""Discover and read: which files are new, and their rows as one DataFrame."""

from tallymark.sources.discover import Found, discover, order_files, recheck
from tallymark.sources.failures import unreadable_from
from tallymark.sources.infer import infer_columns
from tallymark.sources.read import CORRUPT, SourceFrame, read_files

__all__ = [
    "CORRUPT",
    "Found",
    "SourceFrame",
    "discover",
    "infer_columns",
    "order_files",
    "read_files",
    "recheck",
    "unreadable_from",
]
