from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from shop import ORDERS, Shop


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession) -> Shop:
    (tmp_path / "tallymark.yaml").write_text("name: shop\n")
    made = Shop(tmp_path, spark)
    made.pipeline("silver.orders", ORDERS)
    (tmp_path / "landing/orders").mkdir(parents=True)
    return made
