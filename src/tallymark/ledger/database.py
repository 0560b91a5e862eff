"""The ledger's database: one short transaction per call, on SQLite or PostgreSQL.

Writers take turns. SQLite has one writer per file (BEGIN IMMEDIATE). In PostgreSQL, what writes the
files and batches of a table first takes that table's advisory lock (`Tx.lock_tables`): a statement that
runs behind the lock sees everything that the writer before it committed.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from tallymark.errors import LedgerError

BUSY_SECONDS = 60
MOST_RACES = 10
CHUNK = 500  # parameters in one IN list: SQLite allows 999 before 3.32
_WRITES = "tallymark_writes"

T = TypeVar("T")
Row = sa.Row[*tuple[Any, ...]]
Result = sa.CursorResult[*tuple[Any, ...]]


def utc_now() -> datetime:
    return datetime.now(UTC)


def chunks(items: Iterable[T], size: int = CHUNK) -> Iterator[Sequence[T]]:
    ordered = list(items)
    for start in range(0, len(ordered), size):
        yield ordered[start : start + size]


@dataclass(frozen=True)
class Tx:
    """An open transaction and its time: all that one call writes bears the same moment."""

    connection: sa.Connection
    now: datetime

    @property
    def is_postgres(self) -> bool:
        return self.connection.dialect.name == "postgresql"

    def execute(
        self, statement: sa.Executable, values: dict[str, Any] | Sequence[dict[str, Any]] | None = None
    ) -> Result:
        return self.connection.execute(statement, values)

    def lock_tables(self, *table_keys: str) -> None:
        if self.is_postgres:
            for key in sorted(table_keys):  # in one order, so that two writers cannot block each other
                self.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(key, 0))))


class Database:
    def __init__(self, address: Address, clock: Callable[[], datetime], *, durable: bool = True):
        self.address = address
        self._clock = clock
        try:
            self._engine = _sqlite(address, durable) if address.is_sqlite else _postgres(address)
        except (sa.exc.SQLAlchemyError, ImportError) as error:
            raise refusal(error, address) from None

    def read(self, work: Callable[[Tx], T]) -> T:
        """All statements of one call see the same state."""
        return self._run(work, self._options(writes=False))

    def write(self, work: Callable[[Tx], T]) -> T:
        return self._run(work, self._options(writes=True))

    def probe(self, work: Callable[[Tx], T]) -> T:
        """Like `write`, but everything is rolled back."""

        def and_back(tx: Tx) -> T:
            result = work(tx)
            tx.connection.get_transaction().rollback()  # type: ignore[union-attr]
            return result

        return self._run(and_back, self._options(writes=True))

    def close(self) -> None:
        self._engine.dispose()

    def _options(self, *, writes: bool) -> dict[str, object]:
        if self.address.is_sqlite:
            return {_WRITES: writes}
        return {"isolation_level": "READ COMMITTED" if writes else "REPEATABLE READ"}

    def _run(self, work: Callable[[Tx], T], options: dict[str, object]) -> T:
        for race in range(MOST_RACES + 1):
            try:
                with self._engine.connect() as connection:
                    connection.execution_options(**options)
                    with connection.begin():
                        return work(Tx(connection, self._clock().astimezone(UTC)))
            except (sa.exc.SQLAlchemyError, UnicodeEncodeError) as error:
                if race == MOST_RACES or not is_race(error):
                    # `from None`: the driver's own message may repeat a part of the address.
                    raise refusal(error, self.address) from None
        raise AssertionError("the last race was raised")


class OneTransaction(Database):
    """A database whose calls all run in one transaction, which somebody else ends."""

    def __init__(self, address: Address, tx: Tx):
        self.address = address
        self._tx = tx

    def read(self, work: Callable[[Tx], T]) -> T:
        return work(self._tx)

    def write(self, work: Callable[[Tx], T]) -> T:
        return work(self._tx)

    def close(self) -> None:
        """Its owner closes it."""


def _sqlite(address: Address, durable: bool) -> sa.Engine:
    engine = sa.create_engine(
        address.url,
        connect_args={"timeout": BUSY_SECONDS},
        max_overflow=-1,
        hide_parameters=True,
        json_serializer=to_json,
    )

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # the driver must not begin transactions of its own
        connection.execute("PRAGMA foreign_keys = ON")
        # The intent must survive a power cut, also where there is no WAL but a rollback journal.
        connection.execute(f"PRAGMA synchronous = {'EXTRA' if durable else 'OFF'}")
        _use_wal(connection)

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        # A transaction that reads first and then writes fails at once when another writer came in
        # between. IMMEDIATE waits for its turn instead.
        writes = connection.get_execution_options().get(_WRITES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _use_wal(connection: Any) -> None:
    """Readers and the writer do not wait for each other. The change itself ignores the busy timeout when
    two processes open a fresh file at once, so it waits here. Where WAL cannot be (some network disks),
    SQLite stays with its rollback journal, which is slower and as safe."""
    import sqlite3

    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _postgres(address: Address) -> sa.Engine:
    wanted = {"connect_timeout": "10", "application_name": "tallymark"}
    engine = sa.create_engine(
        address.url,
        connect_args={key: value for key, value in wanted.items() if key not in address.url.query},
        max_overflow=-1,
        pool_pre_ping=True,  # the server may have been restarted since the last call
        hide_parameters=True,
        json_serializer=to_json,
    )

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        # The intent must survive a crash of the server, also where it may answer before it has written.
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) "
            "WHERE current_setting('synchronous_commit') = 'off'"
        )
        connection.commit()

    return engine


def to_json(value: object) -> str:
    """Facts of an error hold anything (paths, times, NaN); recording it must not fail for that."""
    return json.dumps(_plain(value), allow_nan=False)


def _plain(value: object) -> object:
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case str():
            return storable(value)
        case dict():
            return {storable(str(key)): _plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(item) for item in value]
        case _:
            return storable(str(value))


def storable(text: str) -> str:
    """PostgreSQL keeps no NUL, and neither database keeps half a surrogate pair; raw rows in error texts
    have both."""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")


# What the drivers' errors mean to the user: no exception of a driver leaves the ledger as it is

_REBUILD = "move the file away and run again: the records are rebuilt from the markers in the tables"
_RACES = {"23505", "40001", "40P01"}  # unique violation, serialization failure, deadlock

# Result code of SQLite (or the start of it) → what it means, what to do.
_SQLITE: tuple[tuple[str, str, str], ...] = (
    ("SQLITE_NOTADB", "is not a SQLite database", _REBUILD),
    ("SQLITE_CORRUPT", "is damaged", _REBUILD),
    (
        "SQLITE_CANTOPEN",
        "cannot be opened",
        "check that its folder exists and that this user may write there",
    ),
    (
        "SQLITE_READONLY",
        "is read-only",
        "let this user write the file and its folder, or set another `ledger:`",
    ),
    ("SQLITE_BUSY", "is locked by another process", "wait until that process is done, then run again"),
    ("SQLITE_FULL", "cannot grow: the disk is full", "free some space on its disk, then run again"),
    ("SQLITE_IOERR", "cannot be read or written", "check its disk, then run again"),
)

# Part of the message of libpq or the server → what it means, what to do.
_POSTGRES: tuple[tuple[str, str, str], ...] = (
    ("password authentication failed", "refuses the password", "check user and password in `ledger:`"),
    ("no password supplied", "asks for a password", "write postgresql://user:${PGPASSWORD}@host/database"),
    ("no pg_hba.conf entry", "does not let this user in from here", "ask its administrator for access"),
    (
        "permission denied",
        "lets this user in, but not create or write tables",
        "grant it CREATE on the schema",
    ),
    ("read-only transaction", "is read-only", "use the address of the primary server"),
    ("does not exist", "has no such database or user", "create it, or correct `ledger:`"),
    ("resolve host", "cannot be found by its host name", "check the host in `ledger:`"),
    ("No space left", "has no space left", "free some space on the server, then run again"),
)
_UNREACHABLE = (
    "cannot be reached",
    "check that the server runs and the address in `ledger:`, then run again",
)


def is_race(error: Exception) -> bool:
    """Two processes met; the loser may try again and will see what the winner wrote."""
    return isinstance(error, sa.exc.DBAPIError) and getattr(error.orig, "sqlstate", None) in _RACES


def refusal(error: Exception, address: Address) -> LedgerError:
    cause: BaseException = getattr(error, "orig", None) or error
    text = address.redact(" ".join(str(cause).split()))
    meaning, hint = _meaning(cause, error)
    return LedgerError(
        f"the ledger {address.place} {meaning} ({text})",
        hint=hint,
        facts={"ledger": address.place, "cause": type(cause).__name__},
    )


def _meaning(cause: BaseException, error: Exception) -> tuple[str, str]:
    if isinstance(cause, ModuleNotFoundError):
        return "needs a driver that is not installed", "install it: pip install 'tallymark[postgres]'"
    if isinstance(cause, UnicodeEncodeError):
        return "cannot keep a text that is not valid Unicode", "rename the file whose name is not UTF-8"
    code = getattr(cause, "sqlite_errorname", None)
    if code:
        for start, meaning, hint in _SQLITE:
            if code.startswith(start):
                return meaning, hint
    else:
        for part, meaning, hint in _POSTGRES:
            if part in str(cause):
                return meaning, hint
        if isinstance(error, sa.exc.OperationalError):
            return _UNREACHABLE
    return "refuses", "run `tallymark doctor` to check it; if it is sound, please report this as a bug"


FORMS = "sqlite:///folder/ledger.db or postgresql://user:${PGPASSWORD}@host/database"
_POSTGRES_DRIVERS = {"postgresql", "postgres", "postgresql+psycopg"}
_SQLITE_DRIVERS = {"sqlite", "sqlite+pysqlite"}


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
    if url.drivername in _SQLITE_DRIVERS:
        return _sqlite_address(url)
    if url.drivername in _POSTGRES_DRIVERS:
        return _postgres_address(url)
    raise _refuse(f"the ledger cannot be kept in {url.get_backend_name()}")


def _sqlite_address(url: sa.URL) -> Address:
    if url.host or not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        raise _refuse("the ledger must be a file: what lives in memory proves nothing after a crash")
    return Address(url, url.database)


def _postgres_address(url: sa.URL) -> Address:
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
