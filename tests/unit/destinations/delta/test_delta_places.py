"""Where a Delta table must not be made, and where it must be watched over."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from tallymark.destinations.delta import KIND, DeltaDestinationConfig
from tallymark.destinations.lakehouse.home import Folder, refuse_nested
from tallymark.errors import NotATable
from tallymark.flow.inspect.findings import validate

NO_SPARK = cast(Any, None)


def table(place: Path) -> Path:
    (place / "_delta_log").mkdir(parents=True)
    return place


@pytest.mark.parametrize("inner", ["orders/lines", "orders/a/b/c"])
def test_a_table_inside_another_one_is_refused(tmp_path: Path, inner: str) -> None:
    outer = table(tmp_path / "orders")
    with pytest.raises(NotATable, match=f"{tmp_path / inner} would be inside {outer}"):
        refuse_nested(NO_SPARK, Folder.at(tmp_path / inner))


def test_a_table_around_another_one_is_refused(tmp_path: Path) -> None:
    inner = table(tmp_path / "orders/a/lines")
    with pytest.raises(NotATable, match=f"{inner} would be inside {tmp_path / 'orders'}"):
        refuse_nested(NO_SPARK, Folder.at(tmp_path / "orders"))


def test_a_link_into_another_table_is_refused(tmp_path: Path) -> None:
    table(tmp_path / "orders")
    (tmp_path / "orders/lines").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "orders/lines")
    with pytest.raises(NotATable, match="would be inside"):
        refuse_nested(NO_SPARK, Folder.at(tmp_path / "link"))


def test_a_log_that_a_killed_first_load_has_begun_is_of_the_table_itself(tmp_path: Path) -> None:
    refuse_nested(NO_SPARK, Folder.at(table(tmp_path / "orders")))


def test_neighbours_and_folders_that_vacuum_leaves_alone(tmp_path: Path) -> None:
    table(tmp_path / "orders")
    table(tmp_path / "new/_hidden/t")
    for place in ("orders_lines", "lines", "new", "orders/_tallymark/own"):
        refuse_nested(NO_SPARK, Folder.at(tmp_path / place))


@pytest.mark.parametrize(
    ("place", "declared", "told"),
    [
        ("s3a://bucket/lake", False, True),
        ("s3://bucket/lake", False, True),
        ("s3n://bucket/lake", False, True),
        ("s3a://bucket/lake", True, False),
        ("abfss://c@a.dfs.core.windows.net/lake", False, False),
        ("gs://bucket/lake", False, False),
        ("hdfs://host/lake", False, False),
        ("warehouse", False, False),
    ],
)
def test_delta_on_s3_needs_a_single_writer(place: str, declared: bool, told: bool) -> None:
    options = DeltaDestinationConfig(path=place, single_writer=declared)
    assert KIND.cautions is not None
    found = KIND.cautions(options, lambda path: path)
    assert bool(found) is told
    assert all("single_writer: true" in str(caution) for caution in found)
    target = KIND.open(options, lambda: NO_SPARK, lambda path: path).table("orders")
    assert bool(cast(Any, target).cautions) is told  # shown with every plan and load


def test_validate_warns_of_it(tmp_path: Path) -> None:
    (tmp_path / "tallymark.yaml").write_text("destinations: {lake: {path: 's3a://bucket/lake'}}")
    [found] = [finding for finding in validate(tmp_path) if "S3" in finding.detail]
    assert found.ok
    assert "single_writer" in found.fix
