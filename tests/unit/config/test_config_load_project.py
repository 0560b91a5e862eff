"""What a right project loads as, and what the files of a project must be to each other."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tallymark.config.load_project import find_project, load_project
from tallymark.config.pipeline_file import BatchConfig, ColumnConfig
from tallymark.destinations.delta import DeltaDestinationConfig
from tallymark.destinations.postgres import PostgresDestinationConfig
from tallymark.errors import ConfigError
from tallymark.model.settings import MergeSettings, Strategy
from unit.config.project_folder import Folder, Problems, problems_of, source_of

SOURCE = "source: {files: in/*.csv}\n"

# The examples of the design, word for word.
DESIGN_PROJECT = """\
# tallymark.yaml — every line has a default: an empty file is a valid project
name: shop
ledger: sqlite:///.tallymark/ledger.db      # or postgresql://user:${PGPASSWORD}@host/db
spark:
  master: local[*]                          # spark://…, yarn, k8s://…, or sc://host:15002 for Spark Connect
  conf: {spark.driver.memory: 4g}
destinations:
  lake: {type: delta, path: warehouse}      # the default; table silver.orders lives in warehouse/silver/orders
  pg: {type: postgres, url: "postgresql://…"}
defaults: {destination: lake, strict: false}
"""
DESIGN_PIPELINE = """\
# pipelines/silver/orders/config.yaml — the pipeline's name is its folder: silver.orders
description: Orders as the shop exports them
source:
  files: landing/orders/*.csv               # a glob, local or any fsspec/Hadoop URL
  format: csv                               # csv, ndjson, json, parquet, orc, avro, xml, text, excel, fixed_width
  options: {header: true}
  order: name                               # or modified: the order in which files apply
columns:                                    # optional: rename, cast, require; what is not named passes through
  - {name: order_id, type: bigint, required: true}
  - {from: Amt, name: amount, type: "decimal(12,2)"}
destination: lake
table: silver.orders                        # default: the pipeline's name
merge_strategy: incremental
unique_key: [order_id]
watermark_column: updated_at
# partition_column, scd_valid_from, scd_valid_to, scd_effective_from, scd_close_absent, dedup_order_by,
# compare_columns, schema_evolution, on_target_duplicates, materialized, archive_landing_zones, provenance
# cdc: {operation_column: op, sequence_by: lsn, operations: {insert: [I], update: [U], delete: [D]}}
batch: {max_files: 500, max_bytes: 4GiB}
quarantine: {max_fraction: 0.01, max_rows: 1000}
guards: {max_delete_fraction: 0.5}
retry: {max_attempts: 3}
"""


def test_the_design_loads(folder: Folder) -> None:
    folder.write({"tallymark.yaml": DESIGN_PROJECT, "pipelines/silver/orders/config.yaml": DESIGN_PIPELINE})
    project = folder.load()
    pipeline = project.pipelines["silver.orders"]
    assert project.config.spark.conf == {"spark.driver.memory": "4g"}
    assert project.config.destinations == {
        "lake": DeltaDestinationConfig(path="warehouse"),
        "pg": PostgresDestinationConfig(type="postgres", url="postgresql://…"),
    }
    assert pipeline.folder == folder.root / "pipelines/silver/orders"
    assert (pipeline.destination, pipeline.table) == ("lake", "silver.orders")
    assert pipeline.settings == MergeSettings(
        Strategy.INCREMENTAL,
        unique_key=("order_id",),
        watermark_column="updated_at",
        max_delete_fraction=0.5,
    )
    assert pipeline.config.columns[1] == ColumnConfig(name="amount", source="Amt", type="decimal(12,2)")
    assert source_of(pipeline).options == {"header": True}
    assert pipeline.config.batch.max_bytes_value == 4 * 1024**3


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "\ufeff", "name: shop\r\n"])
def test_an_empty_project_file_is_valid(folder: Folder, text: str) -> None:
    project = folder.write({"tallymark.yaml": text}).load()
    assert project.name == "shop"
    assert project.pipelines == {}
    assert project.ledger_url == f"sqlite:///{folder.root}/.tallymark/ledger.db"
    earlier = f"{folder.root}/warehouse/_tallymark/quarantine"
    assert project.quarantine_roots == (f"{folder.root}/.tallymark/quarantine", earlier)


def test_pipelines_are_sorted_and_take_their_names_from_folders(folder: Folder) -> None:
    names = ["z/config.yaml", "a/b/c/config.yaml", "a/d/config.yaml", ".hidden/config.yaml"]
    folder.write({f"pipelines/{name}": SOURCE for name in names})
    project = folder.load()
    assert list(project.pipelines) == ["a.b.c", "a.d", "z"]
    assert project.pipelines["a.b.c"].table == "a.b.c"
    assert project.pipelines["a.d"].settings.strategy is Strategy.FULL_REFRESH


def test_a_pipeline_may_differ_from_the_project_in_strictness(folder: Folder) -> None:
    folder.write(
        {
            "tallymark.yaml": "defaults: {strict: true}",
            "pipelines/a/config.yaml": SOURCE,
            "pipelines/b/config.yaml": SOURCE + "strict: false",
        }
    )
    project = folder.load()
    assert project.pipelines["a"].settings.strict is True
    assert project.pipelines["b"].settings.strict is False


def test_paths_are_relative_to_the_project_and_urls_are_left(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = folder.load()
    monkeypatch.chdir("/")
    assert project.resolve("landing/*.csv") == f"{folder.root}/landing/*.csv"
    assert project.resolve("../x") == f"{folder.root.parent}/x"
    assert project.resolve("/data/x") == "/data/x"
    for url in ("s3a://bucket/x", "file:/x", "hdfs:/x", "abfss://c@a.dfs.core.windows.net/x"):
        assert project.resolve(url) == url


@pytest.mark.parametrize(
    ("written", "loaded"),
    [
        ("sqlite:///l.db", "sqlite:///{root}/l.db"),
        ("sqlite:////var/l.db?timeout=5", "sqlite:////var/l.db?timeout=5"),
        ("postgresql://u@h/db", "postgresql://u@h/db"),
    ],
)
def test_ledger_url(folder: Folder, written: str, loaded: str) -> None:
    folder.write({"tallymark.yaml": f"ledger: {written}"})
    assert folder.load().ledger_url == loaded.format(root=folder.root)


@pytest.mark.parametrize(
    ("written", "loaded"),
    [
        ("quarantine_path: bad", "{root}/bad"),
        ("quarantine_path: s3a://b/bad", "s3a://b/bad"),
        ("destinations: {lake: {path: s3a://b/lake/}}", "s3a://b/lake_quarantine"),
        ("destinations: {lake: {path: 's3a://b'}}", "s3a://b/_tallymark/quarantine"),
        ("destinations: {lake: {path: 'dbfs:/mnt'}}", "dbfs:/mnt_quarantine"),
        ("spark: {master: 'spark://host:7077'}", "{root}/warehouse_quarantine"),
        ("destinations: {lake: {catalog: spark_catalog}}", "{root}/.tallymark/quarantine"),
    ],
)
def test_quarantine_root(folder: Folder, written: str, loaded: str) -> None:
    folder.write({"tallymark.yaml": written})
    assert folder.load().quarantine_roots[0] == loaded.format(root=folder.root)


@pytest.mark.parametrize(
    ("size", "value"),
    [
        ("4GiB", 4 * 1024**3),
        ("500MB", 500_000_000),
        ("1.5 kb", 1500),
        (77, 77),
        ("77", 77),
        ("1tib", 1024**4),
    ],
)
def test_sizes(size: int | str, value: int) -> None:
    assert BatchConfig(max_bytes=size).max_bytes_value == value


def test_delta_properties_become_texts(folder: Folder) -> None:
    properties = "{delta.enableChangeDataFeed: true, a: 1}"
    folder.write({"tallymark.yaml": f"destinations: {{lake: {{path: w, properties: {properties}}}}}"})
    lake = folder.load().config.destinations["lake"]
    assert isinstance(lake, DeltaDestinationConfig)
    assert lake.properties == {"delta.enableChangeDataFeed": "true", "a": "1"}


def test_aliases_are_followed(folder: Folder) -> None:
    folder.write({"pipelines/a/config.yaml": SOURCE + "unique_key: &k [a, b]\ncompare_columns: *k\n"})
    config = folder.load().pipelines["a"].config
    assert config.unique_key == config.compare_columns == ["a", "b"]


def test_find_project_here_and_above(folder: Folder) -> None:
    below = folder.root / "pipelines/silver"
    below.mkdir(parents=True)
    assert find_project(below) == folder.root
    assert find_project(folder.root) == folder.root


def test_no_project(tmp_path: Path) -> None:
    for find in (find_project, load_project):
        with pytest.raises(ConfigError, match=r"no tallymark\.yaml in .*") as caught:
            find(tmp_path)
        assert "tallymark init" in caught.value.hint


def test_project_file_with_another_ending(tmp_path: Path) -> None:
    (tmp_path / "tallymark.yml").touch()
    for find in (find_project, load_project):
        with pytest.raises(ConfigError, match=r"must be called tallymark\.yaml"):
            find(tmp_path)


def test_problems_of_all_files_come_at_once_and_as_data(folder: Folder) -> None:
    folder.write(
        {
            "tallymark.yaml": "name: shop\nparralel: 3\n",
            "pipelines/a/config.yaml": SOURCE + "merge_stratgy: upsert\n",
            "pipelines/b/config.yaml": "source:\n  fils: x\n",
        }
    )
    error = folder.error()
    assert error.message.splitlines() == [
        "tallymark.yaml:2: parralel: unknown key; did you mean parallel?",
        "pipelines/a/config.yaml:2: merge_stratgy: unknown key; did you mean merge_strategy?",
        "pipelines/b/config.yaml:1: source.files: missing; say where the rows come from, "
        "such as source: {files: landing/orders/*.csv}",
        "pipelines/b/config.yaml:2: source.fils: unknown key; did you mean files?",
    ]
    assert "tallymark validate" in error.hint
    assert problems_of(error)[1] == {
        "file": "pipelines/a/config.yaml",
        "line": 2,
        "column": 1,
        "key": "merge_stratgy",
        "message": "unknown key",
        "suggestion": "did you mean merge_strategy?",
    }


def test_a_long_list_of_problems_is_cut_in_the_message_only(folder: Folder) -> None:
    folder.write({"tallymark.yaml": "".join(f"k{number}: 1\n" for number in range(80))})
    error = folder.error()
    assert error.message.splitlines()[-1] == "… and 30 more"
    assert len(problems_of(error)) == 80


def test_pipelines_folder_without_any_pipeline(folder: Folder) -> None:
    (folder.root / "pipelines/silver").mkdir(parents=True)
    assert folder.problems() == [
        "pipelines: holds no pipeline; "
        "a pipeline is a folder in it with a config.yaml or a pipeline.sql: pipelines/silver/orders/"
    ]


def test_pipelines_is_a_file(folder: Folder) -> None:
    assert folder.write({"pipelines": ""}).problems()[0].startswith("pipelines: is not a folder")


@pytest.mark.parametrize("name", ["config.yml", "Config.yaml"])
def test_other_spelling_of_the_pipeline_file(folder: Folder, name: str) -> None:
    folder.write({f"pipelines/a/{name}": SOURCE})
    assert folder.problems() == [f"pipelines/a/{name}: is not read; rename it to config.yaml"]


def test_pipeline_without_a_folder(folder: Folder) -> None:
    folder.write({"pipelines/config.yaml": SOURCE})
    assert folder.problems() == [
        "pipelines/config.yaml: has no name; "
        "move it into a folder of its own: pipelines/silver/orders/config.yaml"
    ]


@pytest.mark.parametrize(
    ("name", "usable"),
    [
        ("silver/my orders", "silver/my_orders"),
        ("a.b", "a_b"),
        ("größe", "gr_e"),
        ("_tallymark_x", "tallymark_x"),
    ],
)
def test_unusable_folder_names(folder: Folder, name: str, usable: str) -> None:
    folder.write({f"pipelines/{name}/config.yaml": SOURCE})
    (line,) = folder.problems()
    assert line.startswith(
        f"pipelines/{name}/config.yaml: the folder {name} cannot be the name of a pipeline"
    )
    assert line.endswith(f"rename it, such as pipelines/{usable}")


@pytest.mark.parametrize("table", ["../../etc", "a..b", "my orders", "_tallymark.markers", '""'])
def test_unusable_table_names(orders: Problems, table: str) -> None:
    (line,) = orders(SOURCE + f"table: {table}\n")
    assert line.startswith("2: table: ")
    assert "cannot be the name of a table" in line


def test_two_pipelines_on_one_table(folder: Folder) -> None:
    folder.write(
        {"pipelines/a/config.yaml": SOURCE, "pipelines/b/config.yaml": SOURCE + "description: x\ntable: A\n"}
    )
    assert folder.problems() == [
        "pipelines/b/config.yaml:3: table: b and a (pipelines/a/config.yaml) both write table A of lake; "
        "give one of them another table"
    ]


@pytest.mark.parametrize("table", ["silver.orders.lines", "silver.orders.a.b.c", "Silver.ORDERS.lines"])
def test_a_table_inside_the_folder_of_another(folder: Folder, table: str) -> None:
    folder.write(
        {
            "pipelines/inner/config.yaml": SOURCE + f"table: {table}\n",
            "pipelines/silver/orders/config.yaml": SOURCE,
            "pipelines/silver/orders_lines/config.yaml": SOURCE,
        }
    )
    (line,) = folder.problems()
    assert line.startswith(
        "pipelines/inner/config.yaml:2: table: inner writes a folder inside that of silver.orders "
        "(pipelines/silver/orders/config.yaml): a VACUUM of table silver.orders"
    )


@pytest.mark.parametrize("second", ["w/silver", "link/silver", "file:{root}/w/silver"])
def test_a_table_inside_that_of_another_destination(folder: Folder, second: str) -> None:
    (folder.root / "w/silver").mkdir(parents=True)
    (folder.root / "link").symlink_to(folder.root / "w")
    place = second.format(root=folder.root)
    folder.write(
        {
            "tallymark.yaml": f"destinations: {{lake: {{path: w}}, sea: {{path: '{place}'}}}}",
            "pipelines/a/config.yaml": SOURCE + "table: silver.orders",
            "pipelines/b/config.yaml": SOURCE + "table: orders.lines\ndestination: sea",
            "pipelines/c/config.yaml": SOURCE + "table: orders\ndestination: sea",
        }
    )
    found = folder.problems()
    assert any("c writes the same folder as a" in line for line in found)
    assert any("b writes a folder inside that of a" in line for line in found)


def test_names_of_s3_are_one_store(folder: Folder) -> None:
    folder.write(
        {
            "tallymark.yaml": "destinations: {lake: {path: 's3a://b/w'}, sea: {path: 's3://b/w/orders'}}",
            "pipelines/orders/config.yaml": SOURCE,
            "pipelines/lines/config.yaml": SOURCE + "destination: sea",
        }
    )
    (line,) = folder.problems()
    assert "lines writes a folder inside that of orders" in line


def test_two_pipelines_on_one_table_through_two_names_of_its_place(folder: Folder) -> None:
    folder.write(
        {
            "tallymark.yaml": "destinations: {lake: {path: w}, sea: {path: ./x/../w}, pond: {path: p}}",
            "pipelines/a/config.yaml": SOURCE,
            "pipelines/b/config.yaml": SOURCE + "table: a\ndestination: sea",
            "pipelines/c/config.yaml": SOURCE + "table: a\ndestination: pond",
        }
    )
    (line,) = folder.problems()
    assert "b and a" in line


def test_unknown_destination(folder: Folder, orders: Problems) -> None:
    assert orders(SOURCE + "\ndestination: lak\n") == [
        "3: destination: there is no destination lak; did you mean lake?"
    ]
    assert orders(SOURCE + "destination: snowflake\nx: 1\n") == [
        "2: destination: there is no destination snowflake; tallymark.yaml has lake",
        "3: x: unknown key",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "name: a\ndestinations:\n  wh: {path: w}\n",
            "2: defaults.destination: there is no destination lake; write defaults: {destination: wh}",
        ),
        (
            "destinations: {wh: {path: w}, lake: {path: l}}\ndefaults:\n  destination: laek\n",
            "3: defaults.destination: there is no destination laek; write defaults: {destination: lake}",
        ),
        (
            "destinations: {}\n",
            "1: defaults.destination: there is no destination lake; destinations is empty",
        ),
    ],
)
def test_unknown_default_destination(project_file: Problems, text: str, problem: str) -> None:
    assert project_file(text) == [problem]


def test_symlink_loops_end(folder: Folder) -> None:
    folder.write({"pipelines/a/config.yaml": SOURCE})
    (folder.root / "pipelines/a/loop").symlink_to(folder.root / "pipelines", target_is_directory=True)
    assert list(folder.load().pipelines) == ["a"]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("nowhere")])
def test_what_is_not_a_regular_file(folder: Folder, make: Callable[[Path], None]) -> None:
    (folder.root / "pipelines/a").mkdir(parents=True)
    make(folder.root / "pipelines/a/config.yaml")
    assert folder.problems() == ["pipelines/a/config.yaml: is not a regular file"]


def test_project_file_is_a_folder(tmp_path: Path) -> None:
    Path(tmp_path / "tallymark.yaml").mkdir()
    with pytest.raises(ConfigError, match=r"tallymark\.yaml: is not a regular file"):
        load_project(tmp_path)


def test_unreadable_file(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Path, mode: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", refused)
    assert folder.problems() == ["tallymark.yaml: cannot be read: Permission denied; check its permissions"]
