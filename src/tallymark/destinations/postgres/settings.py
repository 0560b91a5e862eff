"""What a connection is set to for one load. Every setting ends with the transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psycopg

    from tallymark.destinations.warehouse.engine import Row

# With PostgreSQL's own 4 MB, the sort and the hash table of half a million rows are on disk.
_MEMORY = {"work_mem": "128MB", "temp_buffers": "64MB"}


def set_up(connection: psycopg.Connection[Row], busy_seconds: float, *, writes: bool) -> None:
    connection.execute(f"SET LOCAL lock_timeout = {int(busy_seconds * 1000)}")
    connection.execute("SET LOCAL TimeZone = 'UTC'")
    connection.execute("SET LOCAL standard_conforming_strings = on")
    # Ours is the only ANALYZE in it, of a batch that is joined by its keys: a tenth of the usual sample tells
    # its size and whether values repeat.
    connection.execute("SET LOCAL default_statistics_target = 10")
    if writes:
        for setting, wanted in _MEMORY.items():  # a server that gives more is left alone
            connection.execute(
                f"SELECT set_config('{setting}', '{wanted}', true) "
                f"WHERE pg_size_bytes(current_setting('{setting}')) < pg_size_bytes('{wanted}')"
            )
