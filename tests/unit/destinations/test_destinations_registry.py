"""Kinds of destinations that another distribution installs, by an entry point."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tallymark as tm
from database_rows import sqlite_rows
from tallymark.config.keys import PROJECT_SCHEMA, schemas
from tallymark.config.project_file import ProjectConfig, installed_model
from tallymark.destinations import registry
from tallymark.errors import ConfigError, TallymarkError, Unsupported
from tallymark.model.report import Outcome
from tallymark.project import validate

TOY = """
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from tallymark.destinations import sqlite
from tallymark.destinations.declaration import Capabilities, DestinationOptions, Gap, every_strategy
from tallymark.destinations.sqlite.engine import SqliteEngine
from tallymark.destinations.warehouse.destination import WarehouseDestination

CAPABILITIES = replace(
    sqlite.CAPABILITIES,
    name="toy",
    strategies=every_strategy(scd2=Gap("a toy keeps no versions of a row", "use upsert")),
    schema_evolution=Gap("a toy table never gets new columns"),
)


class ToyOptions(DestinationOptions):
    type: Literal["toy"]
    box: str


@dataclass(frozen=True)
class ToyEngine(SqliteEngine):
    capabilities: ClassVar[Capabilities] = CAPABILITIES


KIND = replace(
    sqlite.KIND,
    name="toy",
    title="Toy",
    options=ToyOptions,
    capabilities=CAPABILITIES,
    open=lambda options, spark, resolve: WarehouseDestination(ToyEngine(resolve(options.box))),
    location=lambda options, resolve: resolve(options.box),
)
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a distribution with one module and one entry point on the path, as pip does."""
    site = tmp_path / "site"
    modules = []

    def install(code: str, kind: str = "toy", distribution: str = "tallymark-toy") -> None:
        module = distribution.replace("-", "_")
        modules.append(module)
        facts = site / f"{module}-1.2.dist-info"
        facts.mkdir(parents=True)
        (site / f"{module}.py").write_text(code)
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
        (facts / "entry_points.txt").write_text(f"[tallymark.destinations]\n{kind} = {module}:KIND\n")

    monkeypatch.syspath_prepend(site)
    yield install
    for module in modules:
        sys.modules.pop(module, None)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    root = tmp_path / "shop"
    (root / "pipelines/orders").mkdir(parents=True)
    (root / "landing").mkdir()
    (root / "landing/1.csv").write_text("id,name\n1,a\n2,b\n")
    (root / "tallymark.yaml").write_text(
        "destinations:\n  box: {type: toy, box: box.db}\ndefaults: {destination: box}\n"
    )
    merged_by(root, "upsert")
    return root


def merged_by(root: Path, strategy: str, more: str = "") -> None:
    (root / "pipelines/orders/config.yaml").write_text(
        f"source: {{files: landing/*.csv}}\nmerge_strategy: {strategy}\nunique_key: [id]\n{more}"
    )


def test_a_kind_of_another_distribution_is_configured_and_loaded(
    install: Install, shop: Path, spark: SparkSession
) -> None:
    install(TOY)
    assert all(finding.ok for finding in validate(shop))
    with tm.Project(shop, spark=spark) as project:
        [plan] = project.plan()
        assert plan.counts.inserted == 2
        [report] = project.run().pipelines
        assert report.outcome is Outcome.LOADED, report.failures
        [again] = project.run().pipelines
        assert again.outcome is Outcome.NOTHING_NEW
    rows = sqlite_rows(shop / "box.db", "orders")
    assert sorted((row["id"], row["name"]) for row in rows) == [("1", "a"), ("2", "b")]


@pytest.mark.parametrize("command", ["validate", "plan", "run"])
def test_a_gap_is_refused_with_its_reason(
    install: Install, shop: Path, spark: SparkSession, command: str
) -> None:
    install(TOY)
    merged_by(shop, "scd2")
    expected = "merge_strategy: box: a toy keeps no versions of a row"
    if command == "validate":
        [wrong] = [finding for finding in validate(shop) if not finding.ok]
        assert (wrong.subject, wrong.detail) == ("pipelines/orders/config.yaml:2", expected)
        assert wrong.fix == "use upsert"
        return
    with pytest.raises(ConfigError, match=expected):
        getattr(tm.Project(shop, spark=spark), command)()
    assert not (shop / "box.db").exists()


@pytest.mark.parametrize(
    ("strategy", "more", "key", "reason"),
    [
        ("cdc", "cdc: {history: scd2}", "cdc", "a toy keeps no versions"),
        ("upsert", "schema_evolution: add", "schema_evolution", "a toy table never gets new columns"),
    ],
)
def test_a_setting_that_needs_a_gap_is_refused(
    install: Install, shop: Path, strategy: str, more: str, key: str, reason: str
) -> None:
    install(TOY)
    merged_by(shop, strategy, more)
    [wrong] = [finding for finding in validate(shop) if not finding.ok]
    assert wrong.detail.startswith(f"{key}: box: {reason}")


def test_the_library_refuses_a_gap_by_the_plan(install: Install, tmp_path: Path, spark: SparkSession) -> None:
    install(TOY)
    box = {"type": "toy", "box": str(tmp_path / "box.db")}
    rows = spark.createDataFrame([(1, "a")], "id bigint, name string")
    wider = spark.createDataFrame([(1, "a", 2)], "id bigint, name string, size bigint")
    with pytest.raises(Unsupported, match="people: a toy keeps no versions of a row"):
        tm.merge(rows, "people", strategy="scd2", unique_key="id", destination=box)
    tm.merge(rows, "people", unique_key="id", destination=box)
    with pytest.raises(Unsupported, match="people: a toy table never gets new columns"):
        tm.merge(wider, "people", unique_key="id", destination=box)
    assert len(sqlite_rows(tmp_path / "box.db", "people")) == 1


def test_options_are_checked_by_the_kinds_own_model(install: Install, shop: Path) -> None:
    install(TOY)
    text = (shop / "tallymark.yaml").read_text()
    (shop / "tallymark.yaml").write_text(text.replace("box: box.db", "bx: box.db"))
    details = [finding.detail for finding in validate(shop) if not finding.ok]
    assert details == ["destinations.box.box: missing", "destinations.box.bx: unknown key"]


def test_editors_know_installed_kinds(install: Install) -> None:
    assert installed_model() is ProjectConfig
    install(TOY)
    assert "ToyOptions" in schemas()[PROJECT_SCHEMA]["$defs"]
    assert "ToyOptions" not in ProjectConfig.model_json_schema()["$defs"]


BROKEN = {
    "its code fails": ("import no_such_module", "cannot be loaded: ModuleNotFoundError"),
    "something else": ("KIND = 1", "tallymark_toy:KIND is not a DestinationKind named toy"),
    "another name": (TOY.replace('name="toy"', 'name="game"'), "is not a DestinationKind named toy"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_kind_is_reported_with_its_distribution(install: Install, shop: Path, what: str) -> None:
    code, reason = BROKEN[what]
    install(code)
    [wrong] = [finding for finding in validate(shop) if not finding.ok]
    assert wrong.subject == "tallymark.yaml:2"
    assert wrong.detail.startswith("destinations.box.type: destination kind toy of tallymark-toy 1.2 cannot")
    assert reason in wrong.detail


def test_a_broken_kind_that_nobody_asks_for_does_no_harm(install: Install) -> None:
    install("import no_such_module")
    assert [kind.name for kind in registry.installed_kinds()] == list(registry.BUILT_IN)
    assert registry.find_kind("delta") is registry.DEFAULT


def test_one_kind_of_two_distributions_is_refused(install: Install) -> None:
    install(TOY)
    install(TOY, distribution="tallymark-game")
    with pytest.raises(ConfigError, match=r"toy is installed by tallymark-\w+ 1.2 and tallymark-\w+ 1.2"):
        registry.find_kind("toy")


def test_an_unknown_kind_gets_a_suggestion(install: Install) -> None:
    install(TOY)
    with pytest.raises(TallymarkError, match="toyy is not a kind of destination") as caught:
        registry.parse_options({"type": "toyy"})
    assert caught.value.hint == "did you mean toy?"


def test_spark_is_given_what_the_configured_kinds_need() -> None:
    sqlite = registry.parse_options({"type": "sqlite", "path": "a.db"})
    delta = registry.parse_options({"path": "lake"})
    assert [need.title for need in registry.spark_needs([sqlite, delta, delta])] == ["Delta"]
