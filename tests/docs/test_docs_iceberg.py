"""The example of docs/how-to/iceberg.md gives what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "iceberg.md"


@pytest.mark.slow
def test_the_example_of_iceberg(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"(?ms)^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"))
    assert len(blocks) == 2
    names: dict[str, object] = {"spark": spark, "folder": tmp_path}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
