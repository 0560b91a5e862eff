"""Small projects on disk that are killed and run again, and what must come out of them in the end."""

from __future__ import annotations

import hashlib
import itertools
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import sqlalchemy as sa

from crash.store import DUCKDB_FILE, SQLITE_FILE, Found, Store, naive
from oracle import Oracle, Row, canonical
from tallymark.config.load_project import load_project
from tallymark.ledger.schema import batch_members, batches, contents, leases
from tallymark.model.table import INGESTED_AT, SOURCE_FILE, SOURCE_FILE_HASH

DATABASES = ("sqlite", "duckdb", "postgres")
DESTINATIONS = ("delta", "iceberg", *DATABASES)
SLICE = ("delta", "iceberg", "a database")  # in `make test-slow`; which database, the seed says
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
        write_project(root, destination, postgres, made.ledger_url)
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
        path = self._file(kind, number)
        _write_at_once(path, text)
        if number % 5 == 3:
            _write_at_once(path.with_name(f"{number:04}_again.csv"), text)
        return path

    def waiting(self, kind: str) -> int:
        """Files that the ledger does not have as committed."""
        query = sa.select(sa.func.count()).where(contents.c.pipeline == kind, contents.c.state == "COMMITTED")
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
        expected = [_hash(self._file(kind, n)) for n in range(self.count[kind])]
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
        """The oracle gets the batches that the markers tell of: a value that changes and changes back within
        one batch is unchanged, so that which files share a batch shows in the provenance of the rows."""
        oracle = Oracle(load_project(self.root).pipelines[kind].settings)
        names = {_hash(self._file(kind, number)): number for number in range(self.count[kind])}
        in_order = sorted(markers, key=_applied_order)
        for _, batch in itertools.groupby(in_order, key=lambda found: found.marker.sequence):
            rows: list[Row] = []
            for found in batch:
                number, at = names[found.content_hash], naive(found.marker.as_of)
                origin = {SOURCE_FILE: self._file(kind, number).name, SOURCE_FILE_HASH: found.content_hash}
                rows += [{**row, **origin, INGESTED_AT: at} for row in rows_of_file(number)]
            oracle.load(rows, as_of=at)
        return oracle.rows

    def _file(self, kind: str, number: int) -> Path:
        return self.root / "landing" / kind / f"{number:04}.csv"

    def _wrong_in_ledger(self, kind: str, markers: list[Found]) -> list[str]:
        mine = batches.c.pipeline == kind
        with self._ledger() as ledger:
            states = Counter(ledger.scalars(sa.select(contents.c.state).where(contents.c.pipeline == kind)))
            recorded = ledger.execute(
                sa.select(batches.c.id, batches.c.sequence, contents.c.content_hash, contents.c.batch_id)
                .select_from(batches)
                .join(batch_members, batch_members.c.batch_id == batches.c.id)
                .join(contents, contents.c.id == batch_members.c.file_id)
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
        return left + self._store.left_behind(self.kinds)

    def rows(self, kind: str) -> list[Row]:
        return self._store.rows(kind)

    def markers(self, kind: str) -> list[Found]:
        return self._store.markers(kind)

    @property
    def _store(self) -> Store:
        return Store(self.destination, self.root, self.url, self.schema)

    def _ledger(self) -> sa.Connection:
        url = self.ledger_url.replace("postgresql://", "postgresql+psycopg://", 1)
        return sa.create_engine(url, poolclass=sa.NullPool).connect()

    def remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


def in_slice(place: str, seed: int) -> str:
    return place if place in DESTINATIONS else DATABASES[seed % len(DATABASES)]


def write_project(root: Path, destination: str, postgres: str, ledger: str) -> None:
    place = {
        "delta": "{type: delta, path: warehouse}",
        "iceberg": f"{{type: iceberg, name: {catalog_name(root)}, warehouse: warehouse}}",
        "sqlite": f"{{type: sqlite, path: {SQLITE_FILE}}}",
        "duckdb": f"{{type: duckdb, path: {DUCKDB_FILE}}}",
        "postgres": f'{{type: postgres, url: "{postgres}"}}',
    }[destination]
    (root / "tallymark.yaml").write_text(
        f'name: crash\nledger: "{ledger}"\ndestinations: {{store: {place}}}\n'
        "defaults: {destination: store}\nspark: {master: 'local[2]'}\n"
    )


def catalog_name(root: Path) -> str:
    """Projects of one process share a session's settings."""
    return f"ice_{hashlib.sha256(str(root).encode()).hexdigest()[:12]}"


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


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
