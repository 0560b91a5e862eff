"""A library that answers from memory, so that the command line is tested without Spark."""

from __future__ import annotations

import sys
from collections.abc import Collection
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tallymark
from tallymark.errors import TallymarkError
from tallymark.model.gate import GateResult, Severity
from tallymark.model.graph import (
    ColumnLineage,
    ColumnSource,
    GraphNode,
    InputKind,
    PipelineKind,
    PipelineLineage,
)
from tallymark.model.receipt import Counts, Receipt
from tallymark.model.report import (
    BadRow,
    BatchRecord,
    DeferredInput,
    Discovery,
    EffectiveSetting,
    Event,
    FailedFile,
    Failure,
    Finding,
    Outcome,
    PipelineReport,
    PipelineStatus,
    PlanReport,
    PrepareReport,
    Preview,
    PreviewColumn,
    PreviewInput,
    QuarantinedRow,
    QuarantineSummary,
    RepeatedFile,
    RowSample,
    RunReport,
    SettingOrigin,
    Step,
)

NOON = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
FAILURE = Failure("TM201", "landing/orders/3.csv: truncated gzip", "repair or remove the file")
GATE = GateResult(
    "numeric_ranges.amount", Severity.WARN, False, 2, ({"order_id": 5, "amount": Decimal("-1.00")},)
)
RECEIPT = Receipt(
    batch_id="b-1",
    pipeline="silver.orders",
    table="silver.orders",
    strategy="upsert",
    counts=Counts(inserted=3, updated=1, unchanged=2, skipped=1, rejected=2, total=9),
    version="4",
    sequence=5,
    committed_at=NOON,
    way="merge",
    seconds=1.25,
    quality=(GATE,),
)
LOADED = PipelineReport(
    pipeline="silver.orders",
    table="silver.orders",
    outcome=Outcome.LOADED,
    receipts=(RECEIPT,),
    discovery=Discovery(
        listed=4,
        new=2,
        duplicates=(RepeatedFile("landing/orders/2b.csv", "landing/orders/2.csv"),),
        waiting=(DeferredInput("landing/orders/4.csv.part", "its name ends in .part"),),
    ),
    recovered=(RECEIPT,),
    warnings=("no unique_key",),
    seconds=1.5,
)
FAILED = PipelineReport(
    pipeline="silver.items",
    table="silver.items",
    outcome=Outcome.FAILED,
    failures=(FAILURE,),
    undone=("20261101T101500Z-0000000a",),
    still_open=("20261101T101500Z-0000000b", "20261101T101500Z-0000000c"),
    held_back=("landing/items/4.csv",),
)
PLAN = PlanReport(
    pipeline="silver.orders",
    table="silver.orders",
    strategy="upsert",
    shape="Merge",
    reason="upsert: rows are matched by order_id",
    creates_table=False,
    counts=Counts(inserted=1, updated=1, rejected=1, total=3),
    files=("landing/orders/2.csv",),
    schema_changes=("add column discount double",),
    warnings=("2 rows of the table share a key",),
    key=("order_id",),
    way="replace rows: rows change and none go",
    samples=(
        RowSample("insert", None, {"order_id": 7, "status": "new", "_source_file": "2.csv"}),
        RowSample("update", {"order_id": 5, "status": "new"}, {"order_id": 5, "status": "paid"}),
        RowSample("delete", {"order_id": 4, "status": None}, None),
    ),
    bad_rows=(BadRow("landing/orders/2.csv", 3, "amount", "not a decimal(12,2)", '8,"x"'),),
    sql="SELECT 1",
    more_files=2,
    quality=(GATE,),
)
STATUS = PipelineStatus(
    pipeline="silver.orders",
    table="silver.orders",
    strategy="upsert",
    files={"COMMITTED": 4, "FAILED": 1},
    batches=3,
    last_commit=RECEIPT,
    last_error=FAILURE,
    failed_files=(FailedFile("landing/orders/3.csv", 3, "truncated gzip"),),
    quality=(GATE,),
)
BATCHES = [
    BatchRecord("b-1", "silver.orders", "silver.orders", "COMMITTED", 5, 1, 2, NOON, NOON, RECEIPT, None),
    BatchRecord("b-2", "silver.orders", "silver.orders", "FAILED", 6, 3, 1, NOON, None, None, FAILURE),
]
SUMMARY = QuarantineSummary("silver.orders", "b-1", 2, 1, {"not a decimal(12,2)": 2}, NOON)
BAD_ROW = QuarantinedRow(
    "r-1",
    "silver.orders",
    "b-1",
    "landing/orders/2.csv",
    3,
    "amount",
    "not a decimal(12,2)",
    '8,"é\n"',
    NOON,
)
SETTINGS = (
    EffectiveSetting(
        "unique_key", ["day"], SettingOrigin.ANNOTATION, "pipelines/gold/revenue/pipeline.sql", 2
    ),
    EffectiveSetting("table", "gold.revenue", SettingOrigin.DEFAULT),
)
NODES = (
    GraphNode("silver.orders", PipelineKind.FILES, 1, (), ("orders",), ("gold.revenue",)),
    GraphNode("gold.revenue", PipelineKind.SQL, 2, ("silver.orders", "silver.other"), ("orders", "codes/eu")),
    GraphNode("gold.scores", PipelineKind.PYTHON, 2),
)
LINEAGE = (
    PipelineLineage(
        "gold.revenue",
        (
            ColumnLineage("total", (ColumnSource(InputKind.PIPELINE, "silver.orders", "amount"),)),
            ColumnLineage("n"),
            ColumnLineage("code", (ColumnSource(InputKind.LANDING_ZONE, "codes/eu", "code"),)),
            ColumnLineage("x", (ColumnSource(InputKind.UNKNOWN, "", "x"),)),
            ColumnLineage("*", (ColumnSource(InputKind.PIPELINE, "silver.orders", "*"),)),
        ),
    ),
    PipelineLineage("silver.orders", unknown="its columns come from files"),
)
GOOD_FINDING = Finding("java", True, "17.0.14")
BAD_FINDING = Finding("ledger", False, "cannot open .tallymark/ledger.db", "make the folder writable")


PREVIEW = Preview(
    pipeline="gold.revenue",
    query="SELECT day FROM `tm_ref_silver_orders`",
    inputs=(PreviewInput("ref silver.orders", "7"),),
    schema=(PreviewColumn("day", "date"), PreviewColumn("amount", "decimal(12,2)")),
    rows=({"day": NOON.date(), "amount": Decimal("12.50")},),
    spark_plan="== Physical Plan ==",
)


def _asked(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value}


class FakeProject:
    """Answers with the values above. `raises` makes every call fail; `calls` records them."""

    raises: BaseException | None = None
    answers: dict[str, Any]
    calls: list[tuple[Any, ...]]

    def __init__(self, folder: str | Path = ".", *, spark: object = None, on_event: Any = None) -> None:
        self._answer("open", Path(folder))
        self.on_event = on_event

    def _answer(self, name: str, *args: Any) -> Any:
        type(self).calls.append((name, *args))
        if self.raises is not None:
            raise self.raises
        return self.answers.get(name)

    def run(self, *pipelines: str, on_event: Any = None, cancellation: Any = None, **options: Any) -> Any:
        self.on_event(Event("silver.orders", Step.DISCOVER, "hashing", done=1, total=3))
        self.on_event(Event("silver.orders", Step.DISCOVER, "hashing", done=2, total=3))
        self.on_event(Event("silver.orders", Step.DISCOVER, "hashing", done=3, total=3))
        print("a library that prints on stdout")
        return self._answer("run", pipelines, _asked(options))

    def plan(
        self,
        *pipelines: str,
        samples: int = 10,
        on_event: Any = None,
        cancellation: Any = None,
        **options: Any,
    ) -> Any:
        return self._answer("plan", pipelines, samples, _asked(options))

    def preview(self, pipeline: str, rows: int = 20, *, on_event: Any = None) -> Any:
        return self._answer("preview", pipeline, rows)

    def status(self) -> Any:
        return self._answer("status")

    def history(self, pipeline: str | None = None, limit: int = 20) -> Any:
        return self._answer("history", pipeline, limit)

    def requeue(self, pipeline: str, files: Collection[str] | None = None) -> Any:
        return self._answer("requeue", pipeline, files)

    def recover(self, *pipelines: str, on_event: Any = None, cancellation: Any = None) -> Any:
        return self._answer("recover", pipelines)

    def quarantine_list(self, pipeline: str | None = None) -> Any:
        return self._answer("quarantine_list", pipeline)

    def quarantine_show(self, pipeline: str, batch_id: str | None = None, limit: int = 100) -> Any:
        return self._answer("quarantine_show", pipeline, batch_id, limit)

    def quarantine_replay(
        self,
        pipeline: str,
        batch_id: str | None = None,
        *,
        on_event: Any = None,
        cancellation: Any = None,
    ) -> Any:
        return self._answer("quarantine_replay", pipeline, batch_id)

    def quarantine_drop(self, pipeline: str, batch_id: str, ids: Collection[str] | None = None) -> Any:
        return self._answer("quarantine_drop", pipeline, batch_id, ids)

    def settings(self, pipeline: str) -> Any:
        return self._answer("settings", pipeline)

    def graph(self, *pipelines: str) -> Any:
        return self._answer("graph", pipelines)

    def lineage(self, *pipelines: str) -> Any:
        return self._answer("lineage", pipelines)

    def doctor(self) -> Any:
        return self._answer("doctor")

    def prepare(self) -> Any:
        return self._answer("prepare")

    def close(self) -> None:
        type(self).calls.append(("close",))

    def __enter__(self) -> FakeProject:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Library:
    """What a test sees of the fake: what was called, and what to answer."""

    def __init__(self) -> None:
        self.project = type("FakeProject", (FakeProject,), {"calls": [], "answers": self.defaults()})
        self.answers: dict[str, Any] = self.project.answers  # type: ignore[attr-defined]

    @staticmethod
    def defaults() -> dict[str, Any]:
        return {
            "run": RunReport("r-1", "shop", (LOADED,), NOON, 2.5),
            "plan": [PLAN],
            "preview": PREVIEW,
            "status": [STATUS],
            "history": BATCHES,
            "requeue": 2,
            "recover": [LOADED],
            "quarantine_list": [SUMMARY],
            "quarantine_show": [BAD_ROW],
            "quarantine_replay": LOADED,
            "quarantine_drop": 2,
            "settings": SETTINGS,
            "graph": NODES,
            "lineage": LINEAGE,
            "doctor": [GOOD_FINDING],
            "prepare": PrepareReport(Path("kept.jsa"), 190_000_000),
            "validate": [GOOD_FINDING],
            "init_project": [Path("tallymark.yaml")],
            "init_pipeline": Path("pipelines/silver/orders/config.yaml"),
            "schemas": {
                "tallymark.schema.json": {"type": "object"},
                "pipeline.schema.json": {"type": "object"},
            },
        }

    @property
    def calls(self) -> list[tuple[Any, ...]]:
        calls: list[tuple[Any, ...]] = self.project.calls  # type: ignore[attr-defined]
        return calls

    def fail_with(self, error: TallymarkError | BaseException) -> None:
        self.project.raises = error  # type: ignore[attr-defined]

    def function(self, name: str) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            self.calls.append((name, *args, *options.items()))
            return self.answers[name]

        return call


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Library:
    fake = Library()
    module = ModuleType("tallymark.project")
    module.Project = fake.project  # type: ignore[attr-defined]
    for name in ("validate", "init_project", "init_pipeline", "schemas"):
        setattr(module, name, fake.function(name))
    monkeypatch.setitem(sys.modules, "tallymark.project", module)
    monkeypatch.setattr(tallymark, "project", module, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("orders.csv").touch()
    return fake


@pytest.fixture
def failed_run() -> RunReport:
    return RunReport("r-1", "shop", (LOADED, FAILED), NOON, 2.5)


@pytest.fixture
def failed_plan() -> PlanReport:
    return PlanReport("silver.orders", "silver.orders", "upsert", "", "", False, Counts(), failure=FAILURE)


@pytest.fixture
def bad_finding() -> Finding:
    return BAD_FINDING


@pytest.fixture
def fake_project() -> type[FakeProject]:
    return FakeProject
