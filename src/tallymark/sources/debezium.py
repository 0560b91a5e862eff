"""What a pipeline says of the envelopes in its files. `envelope` takes the rows out of them, with Spark."""

from __future__ import annotations

from dataclasses import dataclass

from tallymark.config.pipeline_file import PipelineConfig


@dataclass(frozen=True)
class Debezium:
    """How to unwrap: names and paths as the user gave them; the key under its names in the records."""

    operation_column: str
    sequence_by: tuple[str, ...]
    key: tuple[str, ...]

    @classmethod
    def of(cls, config: PipelineConfig) -> Debezium | None:
        """None: the files are flat."""
        if config.cdc is None or config.cdc.envelope is None:
            return None
        sources = {rule.name.casefold(): rule.source for rule in config.columns if rule.source}
        key = tuple(sources.get(name.casefold(), name) for name in config.unique_key)
        return cls(config.cdc.operation_column, tuple(config.cdc.sequence_by), key)
