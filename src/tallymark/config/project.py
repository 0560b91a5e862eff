"""`tallymark.yaml`: ledger, Spark settings, named destinations. Every line has a default."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

STRICT = ConfigDict(extra="forbid", frozen=True)


class SparkConfig(BaseModel):
    model_config = STRICT

    master: str = Field(
        "local[*]",
        description="local[N], spark://host:port, yarn, k8s://…, or sc://host:port for Spark Connect",
    )
    conf: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="Any Spark setting; it wins over Tallymark's own"
    )
    packages: list[str] = Field(
        default_factory=list, description="Further Maven coordinates, such as a cloud storage connector"
    )


class DeltaDestinationConfig(BaseModel):
    model_config = STRICT

    type: Literal["delta"] = "delta"
    path: str | None = Field(
        None, description="Root folder or URL: table silver.orders lives in <path>/silver/orders"
    )
    catalog: str | None = Field(
        None, description="Instead of path: tables of this Spark catalog (spark_catalog is the built-in one)"
    )
    properties: dict[str, str] = Field(
        default_factory=dict, description="Delta table properties for tables that Tallymark creates"
    )


DestinationConfig = Annotated[DeltaDestinationConfig, Field(discriminator="type")]


class ProjectDefaults(BaseModel):
    model_config = STRICT

    destination: str = "lake"
    strict: bool = Field(False, description="A missing required field is an error, never a full_refresh")


class ProjectConfig(BaseModel):
    model_config = STRICT

    name: str | None = Field(None, description="Default: the name of the folder")
    ledger: str = Field(
        "sqlite:///.tallymark/ledger.db",
        description="The audit database: sqlite:///file (relative to the project) or postgresql://user:${PGPASSWORD}@host/db",
    )
    spark: SparkConfig = SparkConfig()
    destinations: dict[str, DeltaDestinationConfig] = Field(
        default_factory=lambda: {"lake": DeltaDestinationConfig(path="warehouse")}
    )
    defaults: ProjectDefaults = ProjectDefaults()
    quarantine_path: str | None = Field(
        None, description="Where bad rows are kept; default: _tallymark/quarantine in the first Delta path"
    )
    parallel: int = Field(2, ge=1, le=64, description="How many pipelines run at the same time")
