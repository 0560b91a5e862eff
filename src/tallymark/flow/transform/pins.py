"""What one result of a transform is made of: its code, and the versions of its inputs.

A pin is written into the ledger before anything is read, so that a retry reads the same again, whatever has
come in meanwhile. Its identity is the content of the transform's result: the same code on the same inputs is
not applied twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256

from tallymark.model.batch import Batch, BatchKind, SourceFile
from tallymark.model.rerun import Window

RESULT = "query:"  # what the paths of results begin with
PART = "window:"  # and those of results for a window: they say nothing about the rest of the table


@dataclass(frozen=True)
class Pin:
    code: str  # hash of what was written: the transform, its settings and variables
    tables: Mapping[str, str] = field(default_factory=dict)  # pipeline → version of its table
    zones: Mapping[str, tuple[SourceFile, ...]] = field(default_factory=dict)  # landing zone → files
    refresh: bool = False  # the table becomes the result, which goes on from nothing
    window: Window | None = None  # only these rows of the result

    @property
    def identity(self) -> str:
        """Of the inputs: a refresh leaves the table as the same inputs would have it."""
        contents = {
            zone: sorted((file.path, file.content_hash) for file in files)
            for zone, files in self.zones.items()
        }
        return _hash(self.code, dict(self.tables), contents)

    def to_json(self) -> str:
        zones = {
            zone: [[file.path, file.size, file.modified_ns, file.content_hash] for file in files]
            for zone, files in self.zones.items()
        }
        data: dict[str, object] = {"code": self.code, "tables": dict(self.tables), "zones": zones}
        if self.refresh:
            data["refresh"] = True
        if self.window is not None:
            data["window"] = asdict(self.window)
        return json.dumps(data, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Pin:
        data = json.loads(text)
        zones = {zone: tuple(SourceFile(*file) for file in files) for zone, files in data["zones"].items()}
        window = Window(**data["window"]) if "window" in data else None
        return cls(data["code"], data["tables"], zones, data.get("refresh", False), window)

    @property
    def is_asked_again(self) -> bool:
        return self.refresh or self.window is not None

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """Of all landing zones."""
        return tuple(file for files in self.zones.values() for file in files)

    def content(self, asked_ns: int, *, after: str = "") -> SourceFile:
        """`after` tells a result from the same one earlier: another has been in the table since."""
        content_hash, prefix = self.identity, RESULT
        if self.window is not None:
            content_hash, prefix = _hash(content_hash, asdict(self.window)), PART
        if after:
            content_hash = _hash(content_hash, after)
        return SourceFile(f"{prefix}{content_hash[:16]}", 0, asked_ns, content_hash, inputs=self.to_json())


def pin_of(batch: Batch) -> Pin | None:
    """None for a batch that is no result of a transform."""
    return Pin.from_json(batch.files[0].inputs or "") if batch.kind is BatchKind.QUERY else None


def code_hash(*parts: object) -> str:
    return _hash(*parts)


def _hash(*parts: object) -> str:
    return sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()
