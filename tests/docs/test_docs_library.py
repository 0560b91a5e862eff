"""The code for servers in docs/reference/library.md runs as it is shown."""

from __future__ import annotations

import re
from pathlib import Path

from pyspark.sql import SparkSession

import tallymark as tm
from tallymark.model.report import RunState
from unit.flow.shop import ORDERS, DatabaseShop, csv

PAGE = (Path(__file__).parents[2] / "docs/reference/library.md").read_text(encoding="utf-8")


def test_the_code_for_servers(tmp_path: Path, spark: SparkSession) -> None:
    _, _, section = PAGE.partition("## A project in a server")
    blocks = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    shop = DatabaseShop.at(tmp_path, spark)
    shop.pipeline("silver.orders", ORDERS)
    shop.drop("orders/1.csv", csv("1,new,5"))
    with shop.open() as project:
        seen: dict[str, object] = {"tm": tm, "project": project}
        for block in blocks:
            exec(block, seen)
        states = [run.state for run in project.runs()]
    assert len(blocks) == 4
    assert states == [RunState.SUCCEEDED, RunState.SUCCEEDED]


def test_every_state_of_a_run_is_explained() -> None:
    assert [state for state in RunState if f"`{state}`" not in PAGE] == []
