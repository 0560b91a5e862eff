"""The `cdc` section of a pipeline: how to read a change feed."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from tallymark.config.names import ColumnName, Names
from tallymark.model.section import Section
from tallymark.model.settings import DEFAULT_CODES, CdcSettings, Operation

Kind = Literal["insert", "update", "delete", "truncate"]

DEBEZIUM_CODES: dict[Operation, tuple[str, ...]] = {
    Operation.INSERT: ("c", "r"),
    Operation.UPDATE: ("u",),
    Operation.DELETE: ("d",),
    Operation.TRUNCATE: ("t",),
}


class CdcConfig(Section):
    operation_column: ColumnName = Field("op", description="The column that says insert, update or delete")
    sequence_by: Names = Field(
        default_factory=list,
        description="What orders the changes of a key; default: file order. "
        "In an envelope a path such as source.lsn, which becomes column lsn",
    )
    operations: dict[Kind, Names] = Field(
        default_factory=dict,
        description="Which values of operation_column mean what, whatever their case; "
        "a kind that is not given keeps its usual codes",
    )
    partial: bool = Field(
        False, description="Updates carry only what changed: an empty column keeps the table's value"
    )
    history: Literal["none", "scd2"] = Field("none", description="scd2 keeps every version of a row")
    tombstone_days: float = Field(
        30, ge=0, description="How long a delete is remembered, against late changes that are older"
    )
    envelope: Literal["debezium"] | None = Field(
        None, description="debezium: each record has op, before and after, perhaps under payload"
    )

    @field_validator("operations")
    @classmethod
    def _one_meaning_each(cls, operations: dict[Kind, list[str]]) -> dict[Kind, list[str]]:
        meanings: dict[str, str] = {}
        for kind, codes in operations.items():
            for code in codes:
                other = meanings.setdefault(_folded(code), kind)
                if other != kind:
                    raise ValueError(f"{code} means both {other} and {kind}")
        return operations

    def settings(self) -> CdcSettings:
        names = self.sequence_by
        return CdcSettings(
            operation_column=self.operation_column,
            sequence_by=tuple(name.rpartition(".")[2] for name in names) if self.envelope else tuple(names),
            codes=DEBEZIUM_CODES if self.envelope else self._codes(),
            partial=self.partial,
            history=self.history == "scd2",
            tombstone_days=self.tombstone_days,
        )

    def _codes(self) -> dict[Operation, tuple[str, ...]]:
        """What the user says about a code wins over what it usually means."""
        given = {
            Operation(kind): tuple(_folded(code) for code in codes) for kind, codes in self.operations.items()
        }
        taken = {code for codes in given.values() for code in codes}
        usual = {
            kind: tuple(code for code in codes if code not in taken)
            for kind, codes in DEFAULT_CODES.items()
            if kind not in given
        }
        return usual | given


def _folded(code: str) -> str:
    return code.strip().lower()
