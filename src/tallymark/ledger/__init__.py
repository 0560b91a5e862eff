"""The audit database: what should happen, and what is known to have happened. Never in the destination."""

from tallymark.ledger.facts import Lease, PipelineSummary, Registration, WaitingFile
from tallymark.ledger.ledger import Ledger, open_ledger, reading_ledger, temporary_ledger

__all__ = [
    "Lease",
    "Ledger",
    "PipelineSummary",
    "Registration",
    "WaitingFile",
    "open_ledger",
    "reading_ledger",
    "temporary_ledger",
]
