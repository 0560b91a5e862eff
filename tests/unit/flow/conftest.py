from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from unit.flow.shop import ORDERS, DatabaseShop, Shop


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Shop:
    (tmp_path / "tallymark.yaml").write_text("name: shop\n")
    made = Shop(tmp_path, spark)
    made.pipeline("silver.orders", ORDERS)
    (tmp_path / "landing/orders").mkdir(parents=True)
    return made


@pytest.fixture
def shop(lake: Shop) -> Shop:
    return lake


@pytest.fixture
def store(tmp_path: Path, spark: SparkSession) -> DatabaseShop:
    return DatabaseShop.at(tmp_path, spark)
