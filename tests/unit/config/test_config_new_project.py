"""What `init` makes: a project that loads, and never at the cost of a file that was there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from tallymark.config.load_project import LoadedProject, load_project
from tallymark.config.new_project import scaffold_pipeline, scaffold_project
from tallymark.config.pipeline_file import ColumnConfig, Format
from tallymark.errors import ConfigError
from tallymark.model.settings import Strategy
from unit.config.project_folder import source_of


def test_a_new_project_loads(tmp_path: Path) -> None:
    root = tmp_path / "new/shop"
    written = scaffold_project(root, "shop")
    assert sorted(path.relative_to(root).as_posix() for path in written) == [
        ".gitignore",
        ".tallymark/schema/pipeline.schema.json",
        ".tallymark/schema/tallymark.schema.json",
        "README.md",
        "landing/orders/2026-11-01.csv",
        "pipelines/silver/orders/config.yaml",
        "tallymark.yaml",
    ]
    project = load_project(root, {})
    pipeline = project.pipelines["silver.orders"]
    assert project.name == "shop"
    assert pipeline.settings.strategy is Strategy.UPSERT
    assert pipeline.settings.unique_key == ("order_id",)
    header = (root / "landing/orders/2026-11-01.csv").read_text().splitlines()[0].split(",")
    assert {column.name for column in pipeline.config.columns} <= set(header)
    assert len((root / "README.md").read_text().splitlines()) == 5


def test_editors_find_the_schemas(tmp_path: Path) -> None:
    scaffold_project(tmp_path, "shop")
    for file in ("tallymark.yaml", "pipelines/silver/orders/config.yaml"):
        first, *_ = (tmp_path / file).read_text().splitlines()
        mark, _, schema = first.partition("$schema=")
        assert mark == "# yaml-language-server: "
        path = (tmp_path / file).parent / schema
        data = YAML(typ="safe", pure=True).load((tmp_path / file).read_text())
        Draft202012Validator(json.loads(path.read_text())).validate(data)


@pytest.mark.parametrize("taken", ["tallymark.yaml", "tallymark.yml"])
def test_a_project_is_not_made_twice(tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).write_text("name: mine")
    with pytest.raises(ConfigError, match="is a project already"):
        scaffold_project(tmp_path, "shop")
    assert [path.name for path in tmp_path.iterdir()] == [taken]


def test_no_file_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    written = scaffold_project(tmp_path, "shop")
    assert (tmp_path / "README.md").read_text() == "mine"
    assert tmp_path / "README.md" not in written


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "shop").write_text("")
    with pytest.raises(ConfigError, match=r"is not a folder|cannot be written"):
        scaffold_project(tmp_path / "shop", "shop")
    (tmp_path / "landing").write_text("")
    with pytest.raises(ConfigError, match=r"landing.*(is not a folder|cannot be written)"):
        scaffold_project(tmp_path, "shop")
    assert not (tmp_path / "tallymark.yaml").exists()


@pytest.fixture
def shop(tmp_path: Path) -> LoadedProject:
    scaffold_project(tmp_path, "shop")
    return load_project(tmp_path, {})


def test_a_new_pipeline_loads(shop: LoadedProject) -> None:
    columns = [
        ColumnConfig(name="id", type="bigint", required=True),
        ColumnConfig(name="amount", source="Amt, net", type="decimal(12,2)"),
        ColumnConfig(name="day", type="date", format="dd/MM/yyyy"),
    ]
    path = scaffold_pipeline(shop, "bronze.pay", "in/*.csv", columns, Strategy.UPSERT, ["id"], Format.CSV)
    assert path == shop.root / "pipelines/bronze/pay/config.yaml"
    pipeline = load_project(shop.root, {}).pipelines["bronze.pay"]
    assert pipeline.config.columns == columns
    assert source_of(pipeline).files == "in/*.csv"
    assert source_of(pipeline).format is Format.CSV
    assert pipeline.settings.unique_key == ("id",)
    assert "# quarantine:" in path.read_text()


def test_a_new_pipeline_without_columns_key_and_format(shop: LoadedProject) -> None:
    scaffold_pipeline(shop, "raw", "s3a://b/in/*", [], Strategy.APPEND_ONLY)
    pipeline = load_project(shop.root, {}).pipelines["raw"]
    assert source_of(pipeline).format is None
    assert pipeline.settings.strategy is Strategy.APPEND_ONLY


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("my orders", "letters, digits"),
        ("../x", "letters, digits"),
        ("", "letters, digits"),
        ("_tallymark.x", "Tallymark's own"),
        ("silver.orders", "writes table silver.orders already"),
        ("Silver.Orders", "writes table silver.orders already"),
    ],
)
def test_names_that_cannot_be(shop: LoadedProject, name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        scaffold_pipeline(shop, name, "in/*", [], Strategy.APPEND_ONLY)


def test_a_pipeline_is_not_overwritten(shop: LoadedProject) -> None:
    scaffold_pipeline(shop, "raw", "a", [], Strategy.APPEND_ONLY)
    with pytest.raises(ConfigError, match="exists already"):
        scaffold_pipeline(shop, "raw", "b", [], Strategy.APPEND_ONLY)
    assert source_of(load_project(shop.root, {}).pipelines["raw"]).files == "a"


anything = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(source=anything, name=anything.filter(str.strip), files=anything.filter(str.strip))
def test_any_text_survives_the_file(shop: LoadedProject, source: str, name: str, files: str) -> None:
    columns = [ColumnConfig(name=name, source=source, format=source)]
    path = scaffold_pipeline(shop, "any", files, columns, Strategy.UPSERT, [name])
    try:
        pipeline = load_project(shop.root, {}).pipelines["any"]
    finally:
        path.unlink()
    assert (pipeline.config.columns, source_of(pipeline).files) == (columns, files)
    assert pipeline.config.unique_key == [name]
