"""Ledgers of earlier versions: every record keeps its meaning."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa

from tallymark.ledger import Ledger, migrations, open_ledger
from tallymark.ledger.schema import ContentKind
from tallymark.model.batch import Files, FrameRows, Pin, QuarantinedRows, QueryResult, SourceFile, Window
from unit.ledger.ledger_setup import PIPELINE, TABLE, Clock

NOW = Clock().now
FILE = SourceFile("/landing/a.csv", 10, 1, "hash of a")
WHOLE = QueryResult.of(Pin("code", {"silver.orders": "3"}, {"zone": (FILE,)}), 5)
PART = QueryResult.of(Pin("code", window=Window("day", "2026-01-01", "2026-02-01")), 6)
REPLAY = QuarantinedRows("20261101T101500Z-9f3ac01b", 4, "hash of replay")
FRAME = FrameRows.of("delivery: 7")
# As version 0003 wrote them: batch kind, path, size, modification time, content hash, kind, inputs
WRITTEN = [
    ("files", FILE.path, 10, 1, FILE.content_hash, "files", None),
    (
        "query",
        WHOLE.name,
        0,
        5,
        WHOLE.content_hash,
        "files",
        '{"code": "code", "tables": {"silver.orders": "3"}, '
        '"zones": {"zone": [["/landing/a.csv", 10, 1, "hash of a"]]}}',
    ),
    (
        "query",
        PART.name,
        0,
        6,
        PART.content_hash,
        "files",
        '{"code": "code", "tables": {}, "window": '
        '{"column": "day", "since": "2026-01-01", "until": "2026-02-01"}, "zones": {}}',
    ),
    ("replay", REPLAY.name, 4, 0, REPLAY.content_hash, "replay", None),
    ("frame", FRAME.name, 0, 0, FRAME.content_hash, "frame", None),
]


def old_ledger(url: str, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    monkeypatch.setattr(migrations, "HEAD", "0003")
    ledger = open_ledger(url)
    monkeypatch.undo()
    metadata = sa.MetaData()

    def fill(tx: object) -> None:
        connection = tx.connection  # type: ignore[attr-defined]
        metadata.reflect(connection)
        batches, files, links = (
            metadata.tables[f"tallymark_{name}"] for name in ("batches", "files", "batch_files")
        )
        at = NOW.replace(tzinfo=None) if connection.dialect.name == "sqlite" else NOW
        for number, (batch_kind, path, size, modified, content_hash, kind, inputs) in enumerate(WRITTEN, 1):
            batch: dict[str, object] = {"id": f"b{number}", "pipeline": PIPELINE, "kind": batch_kind}
            batch |= {
                "table_key": TABLE,
                "state": state,
                "sequence": number,
                "attempt": 1,
                "as_of": at,
                "created_at": at,
            }
            connection.execute(batches.insert().values(**batch))
            record: dict[str, object] = {"id": number, "kind": kind, "path": path}
            record |= {"pipeline": PIPELINE, "table_key": TABLE}
            record |= {"size": size, "modified_ns": modified, "content_hash": content_hash, "state": state}
            record |= {"attempts": 0, "error": "", "batch_id": f"b{number}", "registered_at": at}
            connection.execute(files.insert().values(**record, inputs=inputs))
            link = {"batch_id": f"b{number}", "position": 0, "file_id": number}
            connection.execute(links.insert().values(**link))

    ledger._database.write(fill)
    ledger.close()


def kinds(ledger: Ledger) -> dict[str, str]:
    read = sa.text("SELECT path, kind FROM tallymark_files")
    return ledger._database.read(lambda tx: dict(map(tuple, tx.execute(read))))


def test_contents_get_their_kinds(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old_ledger(url, monkeypatch, "PROCESSING")
    with open_ledger(url) as ledger:
        assert [batch.contents for batch in ledger.open_batches(TABLE)] == [
            Files((FILE,)),
            WHOLE,
            PART,
            REPLAY,
            FRAME,
        ]
        assert kinds(ledger) == {
            FILE.path: ContentKind.FILES,
            WHOLE.name: ContentKind.QUERY,
            PART.name: ContentKind.WINDOW,
            REPLAY.name: ContentKind.REPLAY,
            FRAME.name: ContentKind.FRAME,
        }
        ledger.check()


def test_what_was_committed_stays_known(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old_ledger(url, monkeypatch, "COMMITTED")
    with open_ledger(url) as ledger:
        assert ledger.last_result(TABLE) == WHOLE
        assert ledger.results(TABLE) == [PART, WHOLE]
        assert ledger.known_files(PIPELINE) == {FILE.path: FILE}
        assert all(ledger.is_offered(PIPELINE, TABLE, content) for content in (FILE, WHOLE, PART))
        assert ledger.register(PIPELINE, TABLE, [FILE, WHOLE, PART]).new == ()
        contents = (FILE, WHOLE, PART, REPLAY, FRAME)
        asked = [content.content_hash for content in contents]
        assert ledger.batch_of_hashes(TABLE, asked) == dict(
            zip(asked, ("b1", "b2", "b3", "b4", "b5"), strict=True)
        )


def test_the_names_that_users_know_stay() -> None:
    assert json.dumps([WHOLE.name[:6], PART.name[:7], REPLAY.name, FRAME.name]) == json.dumps(
        ["query:", "window:", "quarantine:20261101T101500Z-9f3ac01b", "frame:delivery: 7"]
    )
