"""The catalog that a destination's options describe, and what identifies its tables, without Spark.

Spark reads a catalog's settings when a session first uses its name, so they are set on each session that
needs the catalog: nobody writes `spark.sql.catalog.…`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from tallymark.destinations.iceberg.metadata import (
    HadoopFiles,
    MetadataFile,
    MetadataFiles,
    TableMetadata,
    local_path,
)
from tallymark.errors import ConfigError
from tallymark.model.receipt import Receipt
from tallymark.model.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tallymark.destinations.declaration import Resolve

_PREFIX = "spark.sql.catalog."
_SQLITE = "jdbc:sqlite:"
_WAIT_MILLISECONDS = "30000"  # for another writer of a SQLite catalog


class _Options(Protocol):
    """The part of a destination's options that describes its catalog."""

    @property
    def catalog(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uri(self) -> str | None: ...
    @property
    def warehouse(self) -> str | None: ...
    @property
    def catalog_properties(self) -> dict[str, str]: ...


@dataclass(frozen=True)
class IcebergLocator:
    kind: str
    name: str
    uri: str  # as Spark takes it, without secrets; empty if the catalog has none
    warehouse: str  # likewise
    settings: Mapping[str, str] = field(repr=False)  # of the catalog, with secrets

    @classmethod
    def of(cls, options: _Options, resolve: Resolve) -> IcebergLocator:
        is_place = options.catalog != "rest"  # there it is a name that the server knows
        warehouse = options.warehouse or ""
        if warehouse and is_place:
            warehouse = resolve(warehouse).rstrip("/")
        uri, connection = options.uri or "", dict[str, str]()
        if options.catalog == "jdbc":
            uri, connection = _jdbc(uri, resolve)
        settings = {
            "type": options.catalog,
            "cache-enabled": "false",  # a cached table would not show the commits of others
            **({"warehouse": warehouse} if warehouse else {}),
            **({"uri": uri} if uri else {}),
            **connection,
            **options.catalog_properties,
        }
        return cls(options.catalog, options.name, uri, warehouse, settings)

    @property
    def place(self) -> str:
        """The same text for two destinations that hold the same tables."""
        match self.kind:
            case "hadoop":
                return self.warehouse
            case "jdbc":
                return f"{self.uri} {self.name}"
            case _:
                return " ".join(filter(None, (self.kind, self.uri, self.warehouse)))

    def key(self, table: str) -> str:
        return f"iceberg:{self.place}/{table}"

    def was_rolled_back(self, table: str, last: Receipt) -> bool:
        files = self.files(table)
        if files is None or not files.is_reachable():
            return False
        now = files.latest()
        if now is None:
            return True
        held = last.version in {str(snapshot.id) for snapshot in now.ancestors}
        return not held and (now.reaches_its_root or int(last.version) in now.snapshots)

    def files(self, table: str) -> MetadataFiles | None:
        """Where this process reads the metadata of the table by itself; None if only Spark can."""
        warehouse = local_path(self.warehouse)
        if self.kind == "hadoop" and warehouse is not None:
            return HadoopFiles(warehouse, warehouse.joinpath(*table.split(".")))
        if self.kind == "jdbc" and self.uri.startswith(_SQLITE) and warehouse is not None:
            return SqliteCatalog(Path(self.uri.removeprefix(_SQLITE)), self.name, table)
        return None

    def home(self, table: str) -> str | None:
        """Where a table that is not there yet will be; None if only the catalog knows."""
        if self.kind not in ("hadoop", "jdbc"):
            return None
        return "/".join([self.warehouse, *table.split(".")])

    def sql(self, table: str) -> str:
        return ".".join(quoted(part) for part in [self.name, *table.split(".")])

    def namespaces(self, table: str) -> list[str]:
        """All that the table is in, outermost first."""
        parts = table.split(".")[:-1]
        return [self.sql(".".join(parts[: number + 1])) for number in range(len(parts))]

    def configure(self, spark: SparkSession) -> None:
        """Raises ConfigError if the session has another catalog of this name."""
        own = f"{_PREFIX}{self.name}"
        wanted = {own: "org.apache.iceberg.spark.SparkCatalog"} | {
            f"{own}.{key}": value for key, value in self.settings.items()
        }
        for key, value in wanted.items():
            found = spark.conf.get(key, None)
            if found == value:
                continue
            if found is not None and key in (own, f"{own}.type", f"{own}.uri", f"{own}.warehouse"):
                raise ConfigError(
                    f"this Spark has another catalog {self.name}: {key} is {found}",
                    hint="give the destination another `name`, or remove that setting",
                )
            spark.conf.set(key, value)


def _jdbc(uri: str, resolve: Resolve) -> tuple[str, dict[str, str]]:
    """The address as JDBC takes it, and what else the connection needs."""
    settings = {"jdbc.schema-version": "V1"}
    address = urlsplit(uri)
    match address.scheme:
        case "sqlite":
            uri = f"{_SQLITE}{resolve(unquote(address.path)[1:])}"
        case "postgresql" | "postgres":
            given = dict(parse_qsl(address.query))
            host = address.hostname or given.pop("host", "localhost")
            port = f":{address.port}" if address.port else ""
            uri = f"jdbc:postgresql://{host}{port}/{quote(unquote(address.path[1:]))}"
            settings |= {f"jdbc.{key}": value for key, value in given.items()}
            if address.username:
                settings["jdbc.user"] = unquote(address.username)
            if address.password:
                settings["jdbc.password"] = unquote(address.password)
        case _:
            pass
    if uri.startswith(_SQLITE):
        settings["jdbc.busy_timeout"] = _WAIT_MILLISECONDS
    return uri, settings


@dataclass(frozen=True)
class SqliteCatalog:
    """A jdbc catalog in a local SQLite file knows where each table's metadata is."""

    path: Path
    catalog: str
    table: str

    def is_reachable(self) -> bool:
        return self.path.is_file()

    def file(self) -> MetadataFile | None:
        if not self.is_reachable():
            return None
        namespace, _, name = self.table.rpartition(".")
        query = (
            "SELECT metadata_location FROM iceberg_tables "
            "WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"
        )
        with closing(
            sqlite3.connect(f"file:{quote(str(self.path))}?mode=ro", uri=True, timeout=30)
        ) as database:
            try:
                row = database.execute(query, (self.catalog, namespace, name)).fetchone()
            except sqlite3.OperationalError as error:
                if "no such table" not in str(error):
                    raise
                return None
        place = None if row is None else local_path(row[0])
        return None if place is None else MetadataFile.at(place)

    def latest(self) -> TableMetadata | None:
        file = self.file()
        return None if file is None else file.read()
