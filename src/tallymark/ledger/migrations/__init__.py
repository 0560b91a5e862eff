"""Alembic migrations of the ledger: run by `tallymark.ledger.migrate`, without an ini file."""
