"""What one result of a transform is made of: its code, and the versions of its inputs.

A pin is written into the ledger before anything is read, so that a retry reads the same again, whatever has
come in meanwhile. Its identity is the content of the transform's result: the same code on the same inputs is
not applied twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from tallymark.model.batch import SourceFile

PATH_PREFIX = "query:"


@dataclass(frozen=True)
class Pin:
    code: str  # hash of what was written: the transform, its settings and variables
    tables: Mapping[str, str] = field(default_factory=dict)  # pipeline → version of its table
    zones: Mapping[str, tuple[SourceFile, ...]] = field(default_factory=dict)  # landing zone → files

    @property
    def identity(self) -> str:
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
        return json.dumps({"code": self.code, "tables": dict(self.tables), "zones": zones}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Pin:
        data = json.loads(text)
        zones = {zone: tuple(SourceFile(*file) for file in files) for zone, files in data["zones"].items()}
        return cls(data["code"], data["tables"], zones)

    def content(self, asked_ns: int, *, after: str = "") -> SourceFile:
        """`after` tells a result from the same one earlier: another has been in the table since."""
        content_hash = _hash(self.identity, after) if after else self.identity
        return SourceFile(
            f"{PATH_PREFIX}{content_hash[:16]}", 0, asked_ns, content_hash, inputs=self.to_json()
        )


def code_hash(*parts: object) -> str:
    return _hash(*parts)


def _hash(*parts: object) -> str:
    return sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()
