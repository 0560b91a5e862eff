"""Delta tables, in a folder or in a Spark catalog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from tallymark.destinations.declaration import (
    Capabilities,
    Caution,
    DestinationKind,
    DestinationOptions,
    Gap,
    Resolve,
)
from tallymark.spark.jars import MavenPackage
from tallymark.spark.launch_settings import SparkNeeds
from tallymark.spark.session_settings import Pinned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tallymark.destinations.delta.location import DeltaLocator
    from tallymark.destinations.delta.table import DeltaDestination

DELTA_PACKAGE = "io.delta:delta-spark_4.1_2.13:4.4.0"
_TABLE_INSTEAD = "set materialized: table, or a destination that is a database"

_REQUIRED = {
    "schema.autoMerge.enabled": ("false", "columns would be added that the plan does not have"),
    "stalenessLimit": ("0ms", "a load would be planned on an older version of the table"),
    "history.metricsEnabled": ("true", "counts could not be compared with those of the commit"),
    "replaceWhere.dataColumns.enabled": ("true", "the quarantine could not replace a batch"),
    "replaceWhere.constraintCheck.enabled": ("true", "rows of other batches could be written"),
    "replaceUsing.dataframe.writer.enabled": ("true", "rows could not be replaced by key"),
    "replaceOn.dataframe.writer.enabled": ("true", "slices could not be replaced"),
    "merge.materializeSource": ("auto", "rows that are computed twice could differ"),
    "insertReplaceOnOrUsing.materializeSource": ("auto", "rows that are computed twice could differ"),
    "legacy.storeOptionsAsProperties": ("false", "options of one write would stay with the table"),
    "write.txnVersion.autoReset.enabled": ("false", "a late writer would not be refused"),
    "timeTravel.resolveOnIdentifier.enabled": (
        "false",
        "a table named `t@v1` would be an old version of `t`",
    ),
}

CAPABILITIES = Capabilities(
    "delta",
    nested_types=True,
    time_travel=True,
    sees_foreign_commits=True,
    locks_while_loading=False,
    views=Gap(
        "Delta tables in folders have no views, since there is no catalog to keep them", _TABLE_INSTEAD
    ),
)


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


class DeltaDestinationConfig(DestinationOptions):
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

    durable: bool = Field(
        True,
        description="Tables in local folders: a load is recorded only once its files survive a power loss. "
        "false is faster, and a power loss may take the newest loads; their files then wait again",
    )

    single_writer: bool = Field(
        False,
        description="Tables on S3: true says that one process at a time writes them, and nothing but "
        "Tallymark. Without it, every load warns that Delta loses commits there",
    )

    @model_validator(mode="after")
    def _in_one_place(self) -> Self:
        if self.path is None and self.catalog is None:
            raise ValueError("needs path (a folder or URL) or catalog (the name of a Spark catalog)")
        if self.path is not None and self.catalog is not None:
            raise ValueError("has both path and catalog; keep one")
        return self


def _open(
    options: DeltaDestinationConfig, spark: Callable[[], SparkSession], resolve: Resolve
) -> DeltaDestination:
    from tallymark.destinations.delta.table import DeltaDestination

    root = _root(options, resolve)
    return DeltaDestination(
        spark,
        root=root,
        catalog=options.catalog,
        properties=options.properties,
        durable=options.durable,
        single_writer=options.single_writer,
    )


def _open_target(target: str, spark: Callable[[], SparkSession]) -> DeltaDestination:
    """`silver.orders` is a table of the session's catalog; anything with a slash is a folder or URL."""
    from tallymark.destinations.delta.table import DeltaDestination

    return DeltaDestination(spark) if "/" in target else DeltaDestination(spark, catalog="spark_catalog")


def _locate(options: DeltaDestinationConfig, resolve: Resolve) -> DeltaLocator:
    from tallymark.destinations.delta.location import DeltaLocator

    return DeltaLocator(_root(options, resolve), options.catalog)


def _root(options: DeltaDestinationConfig, resolve: Resolve) -> str | None:
    return None if options.path is None else resolve(options.path)


def _location(options: DeltaDestinationConfig, resolve: Resolve) -> str:
    root = _root(options, resolve)
    return f"catalog {options.catalog}" if root is None else root.rstrip("/")


def _cautions(options: DeltaDestinationConfig, resolve: Resolve) -> tuple[Caution, ...]:
    from tallymark.destinations.delta.location import cautions_for

    return cautions_for(_root(options, resolve) or "", single_writer=options.single_writer)


def _folder(options: DeltaDestinationConfig, resolve: Resolve, table: str) -> str | None:
    root = _root(options, resolve)
    return None if root is None else f"{root.rstrip('/')}/{table.replace('.', '/')}"


def _quarantine_root(options: DeltaDestinationConfig, resolve: Resolve) -> str | None:
    root = _root(options, resolve)
    return None if root is None else f"{root.rstrip('/')}/_tallymark/quarantine"


def _capabilities(options: DeltaDestinationConfig) -> Capabilities:
    if options.catalog is None:
        return CAPABILITIES
    return replace(CAPABILITIES, views=Gap("views in a Spark catalog are not built", _TABLE_INSTEAD))


KIND = DestinationKind(
    name="delta",
    title="Delta",
    options=DeltaDestinationConfig,
    capabilities=CAPABILITIES,
    open=_open,
    location=_location,
    cautions=_cautions,
    folder=_folder,
    locate=_locate,
    capabilities_with=_capabilities,
    quarantine_root=_quarantine_root,
    open_target=_open_target,
    spark_needs=SparkNeeds(
        title="Delta",
        packages=(MavenPackage(DELTA_PACKAGE, shown_as="Delta 4.4.0 (about 13 MB)"),),
        extensions=("io.delta.sql.DeltaSparkSessionExtension",),
        settings={"spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog"},
        embedded_settings={"spark.databricks.delta.snapshotPartitions": "1"},
        # They mark a commit as the caller's: Delta would skip or mislabel our own commits.
        never_inherited=frozenset(
            {
                "spark.databricks.delta.write.txnAppId",
                "spark.databricks.delta.write.txnVersion",
                "spark.databricks.delta.commitInfo.userMetadata",
                "spark.databricks.delta.lastCommitVersionInSession",
            }
        ),
        required={
            f"spark.databricks.delta.{name}": Pinned(value, why) for name, (value, why) in _REQUIRED.items()
        },
    ),
)
