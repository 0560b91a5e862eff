from __future__ import annotations

from typing import Any

import pytest

from tallymark.config.pipeline_file import ColumnConfig, SourceConfig
from tallymark.flow.inspect.scaffold import guess_type, infer_columns, snake_case, with_other_separator


@pytest.mark.parametrize(
    ("name", "snake"),
    [
        ("Order ID", "order_id"),
        ("orderId", "order_id"),
        ("HTTPStatus", "http_status"),
        ("ORDER-ID", "order_id"),
        ("größe (cm)", "größe_cm"),
        ("2nd", "c_2nd"),
        ("order_id", "order_id"),
    ],
)
def test_names(name: str, snake: str) -> None:
    assert snake_case(name) == snake


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-20", None, ""], "bigint"),
        (["9223372036854775807"], "bigint"),
        (["9223372036854775808"], "decimal(38,0)"),
        (["00123", "1"], "string"),
        (["1.50", "2"], "decimal(18,2)"),
        (["1e5"], "string"),
        (["2026-11-01"], "date"),
        (["2026-02-30"], "string"),
        (["2026-11-01T10:00:00Z", "2026-11-01 10:00"], "timestamp"),
        (["true", "FALSE"], "boolean"),
        (["yes"], "string"),
        ([None, ""], "string"),
        (["9" * 39], "string"),
    ],
)
def test_types(values: list[str | None], kind: str) -> None:
    assert guess_type(values) == kind


def test_columns_of_a_file(landing: Any) -> None:
    landing.write("a.csv", "Order ID,zip,Amt,order_id\n1,01234,2.50,x\n2,9,3,y\nbad\n")
    source = SourceConfig(files="*")
    proposed = infer_columns(landing.session(), source, landing.files(), landing.folder)
    assert [(c.name, c.source, c.type) for c in proposed] == [
        ("order_id", "Order ID", "bigint"),
        ("zip", None, "string"),
        ("amt", "Amt", "decimal(18,2)"),
        ("order_id_2", "order_id", "string"),
    ]


@pytest.mark.parametrize(
    ("names", "separator"),
    [(["a;b;c"], ";"), (["a\tb"], "\t"), (["a|b;c|d"], "|"), (["a b"], None), (["a;b", "c"], None)],
)
def test_a_header_in_one_piece_is_split_by_another_separator(names: list[str], separator: str | None) -> None:
    source = SourceConfig(files="x.csv")
    found = with_other_separator(source, [ColumnConfig(name=name) for name in names])
    assert (found.options.get("sep") if found else None) == separator
