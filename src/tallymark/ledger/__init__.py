"""The audit database: what should happen, and what is known to have happened. Never in the destination."""

from tallymark.ledger.contents import Registration, WaitingContent
from tallymark.ledger.leases import Lease
from tallymark.ledger.ledger import Ledger, open_ledger, reading_ledger, temporary_ledger
from tallymark.ledger.reading import PipelineSummary

__all__ = [
    "Lease",
    "Ledger",
    "PipelineSummary",
    "Registration",
    "WaitingContent",
    "open_ledger",
    "reading_ledger",
    "temporary_ledger",
]
