"""Iceberg tables, in a catalog that the options describe."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from tallymark.destinations.declaration import (
    Capabilities,
    DestinationKind,
    DestinationOptions,
    Gap,
    Resolve,
)
from tallymark.model.section import Section
from tallymark.spark.jars import MavenPackage
from tallymark.spark.launch_settings import SparkNeeds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tallymark.destinations.iceberg.catalog import IcebergLocator
    from tallymark.destinations.iceberg.table import IcebergDestination

ICEBERG_PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
_SQLITE_PACKAGE = "org.xerial:sqlite-jdbc:3.50.3.0"
_POSTGRES_PACKAGE = "org.postgresql:postgresql:42.7.8"
_AWS_PACKAGE = "org.apache.iceberg:iceberg-aws-bundle:1.12.0"

CAPABILITIES = Capabilities(
    "iceberg",
    nested_types=True,
    time_travel=True,
    sees_foreign_commits=True,
    locks_while_loading=False,
    views=Gap(
        "views in an Iceberg catalog are not built",
        "set materialized: table, or a destination that is a database",
    ),
)


def _as_texts(value: object) -> object:
    """Properties are texts, yet people write `write.object-storage.enabled: true`."""
    if not isinstance(value, dict):
        return value
    return {
        key: str(item).lower() if isinstance(item, bool | int | float) else item
        for key, item in value.items()
    }


Texts = Annotated[
    dict[str, str],
    BeforeValidator(_as_texts, json_schema_input_type=dict[str, str | int | float | bool]),
]


class IcebergTableLayout(Section):
    """How one table is laid out when a load creates it."""

    partition_by: list[str] = Field(
        default_factory=list,
        description="Columns or transforms, such as days(at), bucket(16, id) or truncate(4, name)",
    )
    sort_by: list[str] = Field(
        default_factory=list, description="Columns, each with asc or desc if wanted, that files are sorted by"
    )
    properties: Texts = Field(default_factory=dict, description="Table properties of this table")


class IcebergDestinationConfig(DestinationOptions):
    """Iceberg tables, in a catalog that the options describe."""

    type: Literal["iceberg"]
    catalog: Literal["hadoop", "jdbc", "rest", "hive", "glue"] = Field(
        "hadoop", description="iceberg: the kind of catalog; hadoop keeps everything in the warehouse folder"
    )
    name: str = Field(
        "iceberg",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="The catalog's name in Spark SQL, and in the tables of a jdbc catalog",
    )
    uri: str | None = Field(
        None,
        min_length=1,
        description="Where the catalog is: a database (sqlite:///…, postgresql://…, jdbc:…), a REST server "
        "(https://…) or a metastore (thrift://…)",
    )
    warehouse: str | None = Field(
        None, min_length=1, description="Root folder or URL of the tables; of a rest catalog, its warehouse"
    )
    catalog_properties: Texts = Field(
        default_factory=dict, description="Further settings of the catalog, such as credential or io-impl"
    )
    properties: Texts = Field(
        default_factory=dict, description="Iceberg table properties for tables that Tallymark creates"
    )
    format_version: Literal[2, 3] = Field(
        3, description="Of new tables; 3 has deletion vectors, 2 is known to more readers"
    )
    write_mode: Literal["merge-on-read", "copy-on-write"] = Field(
        "merge-on-read",
        description="Of new tables: whether changed rows are marked as deleted, or their files rewritten",
    )
    tables: dict[str, IcebergTableLayout] = Field(
        default_factory=dict, description="Layout of single tables, by their names"
    )

    @model_validator(mode="after")
    def _knows_where(self) -> Self:
        if self.catalog in ("hadoop", "jdbc", "glue") and self.warehouse is None:
            raise ValueError(f"a {self.catalog} catalog needs warehouse (a folder or URL)")
        if self.catalog in ("jdbc", "rest") and self.uri is None:
            raise ValueError(f"a {self.catalog} catalog needs uri")
        if self.catalog == "hadoop" and self.uri is not None:
            raise ValueError("a hadoop catalog has no uri; its tables are in warehouse")
        return self


def _locator(options: IcebergDestinationConfig, resolve: Resolve) -> IcebergLocator:
    from tallymark.destinations.iceberg.catalog import IcebergLocator

    return IcebergLocator.of(options, resolve)


def _open(
    options: IcebergDestinationConfig, spark: Callable[[], SparkSession], resolve: Resolve
) -> IcebergDestination:
    from tallymark.destinations.iceberg.table import IcebergDestination

    return IcebergDestination(spark, _locator(options, resolve), options)


def _location(options: IcebergDestinationConfig, resolve: Resolve) -> str:
    return _locator(options, resolve).place


def _needs(options: IcebergDestinationConfig | None = None) -> SparkNeeds:
    """The driver of a jdbc catalog's database comes along."""
    packages = [MavenPackage(ICEBERG_PACKAGE, shown_as="Iceberg 1.12.0 (about 50 MB)")]
    uri = "" if options is None or options.catalog != "jdbc" else str(options.uri)
    if "sqlite:" in uri:
        packages.append(MavenPackage(_SQLITE_PACKAGE, shown_as="the SQLite driver (about 14 MB)"))
    if "postgresql:" in uri:
        packages.append(MavenPackage(_POSTGRES_PACKAGE, shown_as="the PostgreSQL driver (about 1 MB)"))
    if options is not None and options.catalog == "glue":
        packages.append(MavenPackage(_AWS_PACKAGE, shown_as="Iceberg's AWS bundle"))
    return SparkNeeds(
        title="Iceberg",
        packages=tuple(packages),
        extensions=("org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",),
        # They send what we write to another branch, or to none.
        never_inherited=frozenset({"spark.wap.branch", "spark.wap.id"}),
    )


KIND = DestinationKind(
    name="iceberg",
    title="Iceberg",
    options=IcebergDestinationConfig,
    capabilities=CAPABILITIES,
    open=_open,
    location=_location,
    folder=lambda options, resolve, table: _locator(options, resolve).home(table),
    locate=_locator,
    spark_needs=_needs(),
    spark_needs_with=_needs,
)
