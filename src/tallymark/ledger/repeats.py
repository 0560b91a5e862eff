"""Whether a file repeats what its table holds already, or brings back a state that the table had before.

Deliveries apply in an order: what is applied, then what waits, in the declared order. A file whose content is
on record is judged by the delivery before it:

- the same content: a repeat, which is recorded and not loaded
- another content, and the file comes after it: the content returns, and `Repeats.policy` decides. Applied, it
  is a delivery with a number and an identity of its own (`SourceFile.returned`). Numbers are counted, so that
  a listing of the same files gives the same identities when a ledger was lost
- another content, and the file has its place before it: an old file under a new name; a repeat
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import sqlalchemy as sa

from tallymark.ledger.database import Tx, chunks
from tallymark.ledger.schema import HOLDS_CONTENT, OFFERED, ContentKind, batch_members, batches, contents
from tallymark.model.batch import Content, FileStat, FileState, SourceFile
from tallymark.model.settings import RepeatedContent

_Key = tuple[int, str]
_WAITING = (FileState.PENDING, FileState.FAILED)
_IS_FILE = contents.c.kind == ContentKind.FILES
_BYTES = sa.func.coalesce(contents.c.bytes_hash, contents.c.content_hash).label("bytes")
_COLUMNS = (
    contents.c.path,
    contents.c.size,
    contents.c.modified_ns,
    contents.c.returned,
    contents.c.state,
    contents.c.pipeline,
    contents.c.gone_at,
    _BYTES,
)


@dataclass(frozen=True)
class Repeats:
    """How files are judged whose content is on record."""

    policy: RepeatedContent
    order: Literal["name", "modified"] = "name"
    is_grouped: bool = False  # files that wait together make one state
    unread: tuple[str, ...] = ()  # files whose content is not known yet; they keep their places
    renamed: frozenset[str] = frozenset()  # files that were delivered under another name

    def key(self, path: str, modified_ns: int) -> _Key:
        return (0 if self.order == "name" else modified_ns, path)


@dataclass(frozen=True)
class JudgedFiles:
    contents: tuple[Content, ...]
    returned: tuple[tuple[str, str], ...] = ()  # (name, where the content was before)
    skipped: tuple[tuple[str, str], ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)  # name → why


@dataclass(frozen=True, order=True)
class _Delivery:
    """What a file is compared with."""

    key: _Key
    bytes: str = field(compare=False)
    returned: int = field(default=0, compare=False)
    waits: bool = field(default=True, compare=False)
    is_ours: bool = field(default=True, compare=False)  # of this pipeline, so that its key means something

    @property
    def path(self) -> str:
        return self.key[1]


_NOTHING = _Delivery((-1, ""), "")


def judge(
    tx: Tx,
    pipeline: str,
    table_key: str,
    given: Sequence[Content],
    repeats: Repeats,
    replaced: frozenset[str],
) -> JudgedFiles:
    """`given` is in the declared order. `replaced`: paths that held another content until now."""
    hashes = [content.content_hash for content in given if isinstance(content, SourceFile)]
    records = _records(tx, table_key, hashes)
    if not records and len(set(hashes)) == len(hashes):
        return JudgedFiles(tuple(given))
    court = _Court(pipeline, repeats, replaced, records, _last_applied(tx, table_key, pipeline, repeats))
    court.line = _waiting(tx, pipeline, table_key, repeats)
    judged = tuple(court.judged(one) if isinstance(one, SourceFile) else one for one in given)
    return JudgedFiles(judged, tuple(court.returned), tuple(court.skipped), court.refused)


class _Court:
    def __init__(
        self,
        pipeline: str,
        repeats: Repeats,
        replaced: frozenset[str],
        records: Sequence[sa.Row[tuple[object, ...]]],
        applied: _Delivery,
    ):
        self.repeats = repeats
        self.replaced = replaced
        self.applied = applied
        self.line: list[_Delivery] = []  # what waits, in its order
        self.returned: list[tuple[str, str]] = []
        self.skipped: list[tuple[str, str]] = []
        self.refused: dict[str, str] = {}
        self.held: dict[str, _Delivery] = {}  # content → its newest delivery
        self.at_path: dict[tuple[str, str], _Delivery] = {}  # what this pipeline's files hold now
        self.stats: set[FileStat] = set()
        self.gone: set[tuple[str, str]] = set()  # loaded from this path, which held something else since
        for row in records:
            is_ours = row.pipeline == pipeline
            waits = row.state in _WAITING
            key = repeats.key(row.path, row.modified_ns)
            one = _Delivery(key, row.bytes, row.returned, waits, is_ours)
            if row.holds and row.returned >= self.held.get(row.bytes, _NOTHING).returned:
                self.held[row.bytes] = one
            if is_ours and row.gone_at is None:
                self.at_path[row.path, row.bytes] = one
                self.stats.add(FileStat(row.path, row.size, row.modified_ns))
            elif is_ours and row.state == FileState.COMMITTED:
                self.gone.add((row.path, row.bytes))

    def judged(self, file: SourceFile) -> SourceFile:
        key = self.repeats.key(file.path, file.modified_ns)
        before = self._before(key)
        held = self.held.get(file.content_hash)
        own = self.at_path.get((file.path, file.content_hash))
        if own is not None and not self._was_written_again(file, own, before):
            return replace(file, returned=own.returned)
        if held is None:
            return self._delivered(file, key, 0)
        if before.bytes == file.content_hash:
            return replace(file, returned=before.returned)
        if not self._returns(file, key, before, held):
            return replace(file, returned=held.returned)
        match self.repeats.policy:
            case RepeatedContent.SKIP:
                self.skipped.append((file.path, held.path))
                return replace(file, returned=held.returned)
            case RepeatedContent.APPLY:
                self.returned.append((file.path, held.path))
            case RepeatedContent.FAIL:
                self.refused[file.path] = f"its content was delivered before, as {held.path}"
        return self._delivered(file, key, held.returned + 1)

    def _delivered(self, file: SourceFile, key: _Key, number: int) -> SourceFile:
        delivery = _Delivery(key, file.content_hash, number)
        insort(self.line, delivery)
        self.held[file.content_hash] = delivery
        return replace(file, returned=number)

    def _before(self, key: _Key) -> _Delivery:
        place = bisect_left(self.line, _Delivery(key, ""))
        return self.line[place - 1] if place else self.applied

    def _was_written_again(self, file: SourceFile, own: _Delivery, before: _Delivery) -> bool:
        """In the order of modification, a file that is written anew with the same bytes moves to the end. By
        name it keeps its place, and nothing has happened."""
        touched = file.stat not in self.stats and not own.waits
        return self.repeats.order == "modified" and touched and before.bytes != file.content_hash

    def _returns(self, file: SourceFile, key: _Key, before: _Delivery, held: _Delivery) -> bool:
        comes_later = held.waits and (self.repeats.is_grouped or held.key > key)
        if comes_later or file.path in self.repeats.renamed:
            return False
        written_here = file.path in self.replaced or (file.path, file.content_hash) in self.gone
        return written_here or before.waits or not before.is_ours or key > before.key


def renamed_from(
    tx: Tx, pipeline: str, table_key: str, files: Sequence[SourceFile]
) -> dict[str, tuple[str, ...]]:
    """Path → other paths at which this pipeline knows a file of the same bytes and modification time. If none
    of them is there any more, the file was only renamed."""
    wanted = {(file.content_hash, file.modified_ns): file.path for file in files}
    found: dict[str, set[str]] = {}
    for row in _records(tx, table_key, [file.content_hash for file in files]):
        path = wanted.get((row.bytes, row.modified_ns))
        if path is not None and row.pipeline == pipeline and row.gone_at is None and row.path != path:
            found.setdefault(path, set()).add(row.path)
    return {path: tuple(others) for path, others in found.items()}


def _records(tx: Tx, table_key: str, hashes: Sequence[str]) -> list[sa.Row[tuple[object, ...]]]:
    """Of all files with these bytes."""
    holds: sa.Label[bool] = sa.literal_column(f"({HOLDS_CONTENT})", sa.Boolean).label("holds")
    rows: list[sa.Row[tuple[object, ...]]] = []
    for some in chunks(set(hashes)):
        first = sa.and_(contents.c.content_hash.in_(some), contents.c.bytes_hash.is_(None))
        for which in (first, contents.c.bytes_hash.in_(some)):
            query = sa.select(*_COLUMNS, holds).where(contents.c.table_key == table_key, _IS_FILE, which)
            rows += tx.execute(query)
    return rows


def _last_applied(tx: Tx, table_key: str, pipeline: str, repeats: Repeats) -> _Delivery:
    """What the table holds last, or will hold once the open batch is settled."""
    row = tx.execute(
        sa.select(*_COLUMNS)
        .join(batches, batches.c.id == contents.c.batch_id)
        .join(
            batch_members,
            sa.and_(batch_members.c.batch_id == batches.c.id, batch_members.c.file_id == contents.c.id),
        )
        .where(
            contents.c.table_key == table_key,
            _IS_FILE,
            contents.c.state.in_((FileState.PROCESSING, FileState.COMMITTED)),
        )
        .order_by(batches.c.sequence.desc(), batch_members.c.position.desc())
        .limit(1)
    ).one_or_none()
    if row is None:
        return _NOTHING
    key = repeats.key(row.path, row.modified_ns)
    return _Delivery(key, row.bytes, row.returned, waits=False, is_ours=row.pipeline == pipeline)


def _waiting(tx: Tx, pipeline: str, table_key: str, repeats: Repeats) -> list[_Delivery]:
    query = sa.select(*_COLUMNS).where(
        contents.c.pipeline == pipeline,
        contents.c.table_key == table_key,
        contents.c.state.in_(_WAITING),
        _IS_FILE,
        sa.text(OFFERED),
    )
    line = [
        _Delivery(repeats.key(row.path, row.modified_ns), row.bytes, row.returned)
        for row in tx.execute(query)
    ]
    return sorted([*line, *(_Delivery(repeats.key(path, 0), "") for path in repeats.unread)])
