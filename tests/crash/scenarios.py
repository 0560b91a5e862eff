"""Small projects on disk that are killed and run again, and what must come out of them in the end."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import psycopg
import sqlalchemy as sa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from database_rows import duckdb_rows, postgres_rows, sqlite_rows
from delta_rs import rows_of
from oracle import Oracle, Row, canonical
from tallymark.config.load import load_project
from tallymark.ledger.schema import batch_files, batches, files, leases
from tallymark.model.marker import Marker
from tallymark.model.table import INGESTED_AT, SOURCE_FILE, SOURCE_FILE_HASH

DESTINATIONS = ("delta", "sqlite", "duckdb", "postgres")
KINDS = {
    "append": "merge_strategy: append_only",
    "merge": "merge_strategy: upsert\nunique_key: [id]",
    "replace": "merge_strategy: full_refresh",
    "slices": "merge_strategy: delete_insert\nunique_key: [id]",
    "scd2": "merge_strategy: scd2\nunique_key: [id]",
}
ORDER_FREE = {"append"}
# A harness kills the same batch many times over; the product would give up on it after three.
_PIPELINE = """
source: {{files: 'landing/{kind}/*.csv'}}
columns: [{{name: id, type: bigint}}, {{name: value, type: bigint}}]
table: {table}
retry: {{max_attempts: 100000}}
{strategy}
"""
_KEYS = 5


@dataclass(frozen=True)
class Found:
    """A marker of one content, read past the product."""

    content_hash: str
    position: int  # within its batch
    marker: Marker


@dataclass
class Scenario:
    root: Path
    destination: str
    kinds: tuple[str, ...]
    url: str = ""  # of PostgreSQL
    schema: str = "silver"
    ledger_url: str = ""
    count: dict[str, int] = field(default_factory=Counter)  # kind → files dropped

    @classmethod
    def build(
        cls,
        root: Path,
        destination: str,
        kinds: tuple[str, ...],
        *,
        postgres: str = "",
        ledger: str = "",
        file_count: int = 5,
        settings: str = "",
    ) -> Scenario:
        """`postgres` is the URL of a server; `settings` goes into each pipeline's config.yaml."""
        root.mkdir(parents=True, exist_ok=True)
        schema = f"s{uuid4().hex[:8]}" if destination == "postgres" else "silver"
        made = cls(root, destination, kinds, postgres, schema, ledger or f"sqlite:///{root}/ledger.db")
        made._write_project()
        for kind in kinds:
            folder = root / "pipelines" / kind
            folder.mkdir(parents=True)
            text = _PIPELINE.format(kind=kind, table=made.table(kind), strategy=KINDS[kind])
            (folder / "config.yaml").write_text(f"{text}{settings}\n")
            (root / "landing" / kind).mkdir(parents=True)
            for _ in range(file_count):
                made.drop(kind)
        return made

    def table(self, kind: str) -> str:
        return f"{self.schema}.{kind}"

    def drop(self, kind: str) -> Path:
        """One file more, after all others in order; every fifth comes a second time under another name."""
        number = self.count[kind]
        self.count[kind] += 1
        text = "id,value\n" + "".join(f"{row['id']},{row['value']}\n" for row in rows_of_file(number))
        folder = self.root / "landing" / kind
        path = folder / f"{number:04}.csv"
        _write_at_once(path, text)
        if number % 5 == 3:
            _write_at_once(folder / f"{number:04}_again.csv", text)
        return path

    def _write_project(self) -> None:
        place = {
            "delta": "{type: delta, path: warehouse}",
            "sqlite": "{type: sqlite, path: shop.db}",
            "duckdb": "{type: duckdb, path: shop.duckdb}",
            "postgres": f'{{type: postgres, url: "{self.url}"}}',
        }[self.destination]
        (self.root / "tallymark.yaml").write_text(
            f'name: crash\nledger: "{self.ledger_url}"\ndestinations: {{store: {place}}}\n'
            "defaults: {destination: store}\nspark: {master: 'local[2]'}\n"
        )

    def waiting(self, kind: str) -> int:
        """Files that the ledger does not have as committed."""
        query = sa.select(sa.func.count()).where(files.c.pipeline == kind, files.c.state == "COMMITTED")
        try:
            with self._ledger() as ledger:
                return self.count[kind] - int(ledger.execute(query).scalar_one())
        except sa.exc.DBAPIError:  # the first worker died before it made the tables
            return self.count[kind]

    # What came out

    def differences(self) -> list[str]:
        """Empty when every content was applied once, in order, and all records say so."""
        found: list[str] = []
        for kind in self.kinds:
            markers = self.markers(kind)
            found += [f"{self.destination} {kind}: {text}" for text in self._wrong(kind, markers)]
        found += [f"{self.destination}: {text}" for text in self._left_behind()]
        return found

    def _wrong(self, kind: str, markers: list[Found]) -> list[str]:
        hashes = [found.content_hash for found in sorted(markers, key=_applied_order)]
        expected = [_hash(self.root / "landing" / kind / f"{n:04}.csv") for n in range(self.count[kind])]
        wrong = []
        if sorted(hashes) != sorted(expected):
            more, less = Counter(hashes) - Counter(expected), Counter(expected) - Counter(hashes)
            return [f"markers: {sum(less.values())} missing, {sum(more.values())} too many"]
        if kind not in ORDER_FREE and hashes != expected:
            wrong.append(f"applied in another order: {[expected.index(h) for h in hashes]}")
        found, wanted = canonical(self.rows(kind)), canonical(self._expected(kind, markers))
        more, less = Counter(found) - Counter(wanted), Counter(wanted) - Counter(found)
        if more or less:
            wrong.append(f"rows too many: {list(more.elements())}, missing: {list(less.elements())}")
        return wrong + self._wrong_in_ledger(kind, markers)

    def _expected(self, kind: str, markers: list[Found]) -> list[Row]:
        """The oracle gets each file as one batch, at the time that its marker carries."""
        settings = load_project(self.root).pipelines[kind].settings
        oracle = Oracle(settings)
        as_of = {found.content_hash: found.marker.as_of for found in markers}
        for number in range(self.count[kind]):
            path = self.root / "landing" / kind / f"{number:04}.csv"
            at = _naive(as_of[_hash(path)])
            origin = {SOURCE_FILE: path.name, SOURCE_FILE_HASH: _hash(path), INGESTED_AT: at}
            oracle.load([{**row, **origin} for row in rows_of_file(number)], as_of=at)
        return oracle.rows

    def _wrong_in_ledger(self, kind: str, markers: list[Found]) -> list[str]:
        mine = batches.c.pipeline == kind
        with self._ledger() as ledger:
            states = Counter(ledger.scalars(sa.select(files.c.state).where(files.c.pipeline == kind)))
            recorded = ledger.execute(
                sa.select(batches.c.id, batches.c.sequence, files.c.content_hash, files.c.batch_id)
                .select_from(batches)
                .join(batch_files, batch_files.c.batch_id == batches.c.id)
                .join(files, files.c.id == batch_files.c.file_id)
                .where(mine, batches.c.state == "COMMITTED")
            ).all()
            unfinished = Counter(
                ledger.scalars(sa.select(batches.c.state).where(mine, batches.c.state == "PROCESSING"))
            )
        wrong = []
        wanted = {
            "COMMITTED": self.count[kind],
            "DUPLICATE": sum(n % 5 == 3 for n in range(self.count[kind])),
        }
        if states != Counter(wanted):
            wrong.append(f"ledger: files are {dict(states)}, not {wanted}")
        if unfinished:
            wrong.append(f"ledger: batches are {dict(unfinished)}")
        in_table = {(f.marker.batch_id, f.marker.sequence, f.content_hash) for f in markers}
        in_ledger = {(row.id, row.sequence, row.content_hash) for row in recorded}
        if in_table != in_ledger:
            wrong.append(f"ledger and markers: {in_table ^ in_ledger} only on one side")
        if any(row.batch_id != row.id for row in recorded):
            wrong.append("ledger: a file names another batch than the one that committed it")
        return wrong

    def _left_behind(self) -> list[str]:
        with self._ledger() as ledger:
            held = ledger.scalars(sa.select(leases.c.holder).where(leases.c.holder.is_not(None))).all()
        left = [f"lease held by {holder}" for holder in held]
        names = {self.table(kind) for kind in self.kinds}
        match self.destination:
            case "delta":
                folders = {f"{self.schema}.{path.name}" for path in self._warehouse().iterdir()}
                left += [f"folder {name}" for name in folders - names]
            case "sqlite":
                own = {"_tallymark_applied", "_tallymark_fence"}
                with closing(sqlite3.connect(self.root / "shop.db")) as database:
                    query = "SELECT name FROM sqlite_schema WHERE type = 'table'"
                    tables = {name for (name,) in database.execute(query)}
                left += [f"table {name}" for name in tables - names - own]
                left += [str(path) for path in self.root.glob("shop.db-*")]
            case "duckdb":
                with duckdb.connect(str(self.root / "shop.duckdb")) as database:
                    found = database.execute("SELECT schema_name || '.' || table_name FROM duckdb_tables()")
                    left += [f"table {name}" for (name,) in found.fetchall() if not self._is_own(name)]
                left += [str(path) for path in self.root.glob("shop.duckdb.*")]
            case "postgres":
                left += self._left_in_postgres()
        return left

    def _is_own(self, name: str) -> bool:
        markers = (f"{self.schema}._tallymark_applied", f"{self.schema}._tallymark_fence")
        return name in markers or name.removeprefix(f"{self.schema}.") in self.kinds

    def _left_in_postgres(self) -> list[str]:
        """A server notices the death of a client with some delay."""
        deadline = time.monotonic() + 10
        while True:
            with psycopg.connect(self.url) as connection:
                temporary = connection.execute(
                    "SELECT relname FROM pg_class WHERE relpersistence = 't' AND relname LIKE '\\_tm%'"
                ).fetchall()
                tables = connection.execute(
                    "SELECT schemaname || '.' || tablename FROM pg_tables WHERE schemaname = %s",
                    (self.schema,),
                ).fetchall()
            left = [f"temporary table {name}" for (name,) in temporary]
            left += [f"table {name}" for (name,) in tables if not self._is_own(name)]
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.2)

    def rows(self, kind: str) -> list[Row]:
        table = self.table(kind)
        match self.destination:
            case "delta":
                found = rows_of(self._warehouse() / kind)
            case "sqlite":
                found = sqlite_rows(self.root / "shop.db", table)
            case "duckdb":
                found = duckdb_rows(self.root / "shop.duckdb", table)
            case _:
                found = postgres_rows(self.url, table)
        return [_comparable(row) for row in found]

    def markers(self, kind: str) -> list[Found]:
        """Those of an absent table are none."""
        if self.destination == "delta":
            return self._delta_markers(kind)
        name = self.table(kind) if self.destination == "sqlite" else kind
        query = f"SELECT content_hash, position, marker FROM APPLIED WHERE table_name = '{name}'"
        applied = (
            "_tallymark_applied" if self.destination == "sqlite" else f"{self.schema}._tallymark_applied"
        )
        return [
            Found(content, position, _marker(text))
            for content, position, text in self._query(query.replace("APPLIED", applied))
        ]

    def _delta_markers(self, kind: str) -> list[Found]:
        try:
            commits = DeltaTable(str(self._warehouse() / kind)).history()
        except TableNotFoundError:
            return []
        carried = [_marker(c["userMetadata"]) for c in commits if "userMetadata" in c]
        return [
            Found(content, position, marker)
            for marker in carried
            for position, content in enumerate(marker.content_hashes)
        ]

    def _query(self, query: str) -> list[tuple[Any, ...]]:
        try:
            match self.destination:
                case "sqlite":
                    with closing(sqlite3.connect(self.root / "shop.db")) as database:
                        return database.execute(query).fetchall()
                case "duckdb":
                    with duckdb.connect(str(self.root / "shop.duckdb")) as database:
                        return database.execute(query).fetchall()
                case _:
                    with psycopg.connect(self.url) as connection:
                        return connection.execute(query).fetchall()  # type: ignore[call-overload,no-any-return]
        except (sqlite3.OperationalError, duckdb.CatalogException, psycopg.errors.UndefinedTable):
            return []

    def _warehouse(self) -> Path:
        return self.root / "warehouse" / self.schema

    def _ledger(self) -> sa.Connection:
        url = self.ledger_url.replace("postgresql://", "postgresql+psycopg://", 1)
        return sa.create_engine(url, poolclass=sa.NullPool).connect()

    def remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


def rows_of_file(number: int) -> list[Row]:
    """Keys that other files have too; one value that other files repeat, so that some rows do not change."""
    return [
        {"id": number % _KEYS, "value": number},
        {"id": (number + 1) % _KEYS, "value": number},
        {"id": (number + 2) % _KEYS, "value": -1},
    ]


def _write_at_once(path: Path, text: str) -> None:
    """A worker that runs already must not find half a file."""
    hidden = path.parent.parent / f".{path.parent.name}-{path.name}"
    hidden.write_text(text)
    hidden.rename(path)


def _applied_order(found: Found) -> tuple[int, int]:
    return found.marker.sequence, found.position


def _marker(text: str) -> Marker:
    marker = Marker.from_json(text)
    assert marker is not None, text
    assert json.loads(text)["tallymark"] == 1
    return marker


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _comparable(row: Row) -> Row:
    """Wall-clock times, and the file's name instead of its place."""
    plain = {name: _naive(value) if isinstance(value, datetime) else value for name, value in row.items()}
    return {**plain, SOURCE_FILE: Path(str(row[SOURCE_FILE])).name}


def _naive(value: datetime) -> datetime:
    return value if value.tzinfo is None else value.astimezone().replace(tzinfo=None)
