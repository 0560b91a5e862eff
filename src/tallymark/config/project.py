"""`tallymark.yaml`: ledger, Spark settings, named destinations. Every line has a default."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from tallymark.config.template_vars import TemplateVars
from tallymark.model.section import Section
from tallymark.spark.options import SparkConfig


def _as_texts(value: object) -> object:
    """Delta's properties are texts, yet people write `delta.enableChangeDataFeed: true`."""
    if not isinstance(value, dict):
        return value
    return {
        key: str(item).lower() if isinstance(item, bool | int | float) else item
        for key, item in value.items()
    }


Properties = Annotated[
    dict[str, str],
    BeforeValidator(_as_texts, json_schema_input_type=dict[str, str | int | float | bool]),
]


class DeltaDestinationConfig(Section):
    """Delta tables, in a folder or in a Spark catalog."""

    type: Literal["delta"] = "delta"
    path: str | None = Field(
        None,
        min_length=1,
        description="delta: root folder or URL; table silver.orders lives in <path>/silver/orders",
    )
    catalog: str | None = Field(
        None,
        min_length=1,
        description="Instead of path: tables of this Spark catalog (spark_catalog is the built-in one)",
    )
    properties: Properties = Field(
        default_factory=dict, description="Delta table properties for tables that Tallymark creates"
    )

    @model_validator(mode="after")
    def _in_one_place(self) -> Self:
        if self.path is None and self.catalog is None:
            raise ValueError("needs path (a folder or URL) or catalog (the name of a Spark catalog)")
        if self.path is not None and self.catalog is not None:
            raise ValueError("has both path and catalog; keep one")
        return self


class PostgresDestinationConfig(Section):
    """Tables of PostgreSQL 14 or newer; silver.orders is table orders of schema silver."""

    type: Literal["postgres"]
    url: str = Field(min_length=1, description="postgres only: postgresql://user:${PGPASSWORD}@host/db")


class SqliteDestinationConfig(Section):
    """Tables of a SQLite file. SQLite has no schemas: table silver.orders has this whole name there."""

    type: Literal["sqlite"]
    path: str = Field(
        min_length=1, description="sqlite and duckdb: the database file; its folder must be there"
    )


class DuckDbDestinationConfig(Section):
    """Tables of a DuckDB file; silver.orders is table orders of schema silver."""

    type: Literal["duckdb"]
    path: str = Field(
        min_length=1, description="sqlite and duckdb: the database file; its folder must be there"
    )


def _destination_type(value: Any) -> Any:
    kind = value.get("type", "delta") if isinstance(value, dict) else getattr(value, "type", "delta")
    return kind if isinstance(kind, str) else repr(kind)


DestinationConfig = Annotated[
    Annotated[DeltaDestinationConfig, Tag("delta")]
    | Annotated[SqliteDestinationConfig, Tag("sqlite")]
    | Annotated[DuckDbDestinationConfig, Tag("duckdb")]
    | Annotated[PostgresDestinationConfig, Tag("postgres")],
    Discriminator(_destination_type),
]


def _a_lake() -> dict[str, DestinationConfig]:
    return {"lake": DeltaDestinationConfig(path="warehouse")}


class ProjectDefaults(Section):
    destination: str = Field("lake", description="For pipelines that name none")
    strict: bool = Field(False, description="A missing required field is an error, never a full_refresh")


class ProjectConfig(Section):
    name: str | None = Field(None, min_length=1, description="Default: the name of the folder")
    ledger: str = Field(
        "sqlite:///.tallymark/ledger.db",
        description="The audit database: sqlite:///file (relative to the project) "
        "or postgresql://user:${PGPASSWORD}@host/db",
    )
    spark: SparkConfig = Field(default_factory=SparkConfig, description="Where Spark runs, and how")
    destinations: dict[str, DestinationConfig] = Field(
        default_factory=_a_lake,
        description="Where tables live, by a name of your choice; default: lake, Delta tables in warehouse/",
    )
    defaults: ProjectDefaults = Field(
        default_factory=ProjectDefaults, description="For pipelines that do not say otherwise"
    )
    vars: TemplateVars = Field(
        default_factory=dict, description="Values for var('name') in templates; a pipeline's own win"
    )
    landing_zones: str = Field(
        "landing",
        min_length=1,
        description="The folder or URL whose folders are the zones of landing_zone('name') in transforms",
    )
    quarantine_path: str | None = Field(
        None,
        min_length=1,
        description="Where bad rows are kept; default: _tallymark/quarantine in the first Delta path, "
        "else .tallymark/quarantine",
    )
    parallel: int = Field(2, ge=1, le=64, description="How many pipelines run at the same time")

    @field_validator("ledger")
    @classmethod
    def _a_database_that_lasts(cls, url: str) -> str:
        if re.match(r"(postgresql|postgres|postgresql\+psycopg)://.", url):
            return url
        if re.match(r"sqlite:///(?!:memory:)[^?]", url):
            return url
        raise ValueError("expected sqlite:///path/to/file.db or postgresql://user@host/database")
