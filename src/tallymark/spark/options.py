"""The `spark` section of `tallymark.yaml`: where Spark runs, and how."""

from __future__ import annotations

from pydantic import Field

from tallymark.model.section import Section


class SparkConfig(Section):
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
