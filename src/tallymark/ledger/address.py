"""Where a ledger is: its URL, parsed, and the name by which errors may call it (without secrets)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

from tallymark.errors import LedgerError

FORMS = "sqlite:///folder/ledger.db or postgresql://user:${PGPASSWORD}@host/database"
_POSTGRES = {"postgresql", "postgres", "postgresql+psycopg"}
_SQLITE = {"sqlite", "sqlite+pysqlite"}


@dataclass(frozen=True)
class Address:
    url: sa.URL = field(repr=False)
    place: str  # for messages

    @property
    def is_sqlite(self) -> bool:
        return self.url.get_backend_name() == "sqlite"

    @property
    def file(self) -> Path:
        return Path(self.url.database or "")

    def redact(self, text: str) -> str:
        """Drivers quote what they were given; a password must not travel in an error."""
        for secret in _secrets(self.url):
            text = text.replace(secret, "***")
        return text


def parse_address(text: str) -> Address:
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        # Neither the text nor the parser's message is repeated: both may hold a part of the password.
        raise _refuse("the address of the ledger is not a database URL") from None
    if url.drivername in _SQLITE:
        return _sqlite(url)
    if url.drivername in _POSTGRES:
        return _postgres(url)
    raise _refuse(f"the ledger cannot be kept in {url.get_backend_name()}")


def _sqlite(url: sa.URL) -> Address:
    if url.host or not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        raise _refuse("the ledger must be a file: what lives in memory proves nothing after a crash")
    return Address(url, url.database)


def _postgres(url: sa.URL) -> Address:
    if "@" in (url.host or "") or "/" in (url.username or ""):
        raise _refuse(
            "the address of the ledger cannot be split into user, password and host",
            hint="percent-encode special characters of the password: @ is %40, / is %2F, : is %3A",
        )
    user = f"{url.username}@" if url.username else ""
    host = url.host or _first(url.query.get("host")) or "localhost"
    port = f":{url.port}" if url.port else ""
    return Address(
        url.set(drivername="postgresql+psycopg"), f"postgresql://{user}{host}{port}/{url.database or ''}"
    )


def _first(value: str | tuple[str, ...] | None) -> str:
    return value[0] if isinstance(value, tuple) else value or ""


def _secrets(url: sa.URL) -> list[str]:
    named = [value for key, value in url.query.items() if "pass" in key.lower()]
    flat = [_first(value) for value in named] + [str(url.password or "")]
    return sorted((secret for secret in flat if secret), key=len, reverse=True)


def _refuse(message: str, *, hint: str = "") -> LedgerError:
    return LedgerError(message, hint=hint or f"set `ledger:` in tallymark.yaml to {FORMS}")
