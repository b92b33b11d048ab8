"""Which files show a text, whatever form they are in."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.schema import quote_identifier

__all__ = ["files_with"]

_SYNC = 16
"""Bytes of the marker between the blocks of an Avro file."""


def files_with(text: str, directory: Path) -> list[Path]:
    """Files in which it shows, in their bytes or in what these stand for; those of spools are not looked at."""
    files = [file for file in sorted(directory.rglob("*")) if file.is_file() and "spool" not in file.parts]
    return [file for file in files if any(text.encode() in content for content in _contents(file))]


def _contents(file: Path) -> Iterator[bytes]:
    yield file.read_bytes()
    if file.suffix in _READERS:
        yield _READERS[file.suffix](file)


def _parquet(file: Path) -> bytes:
    # By itself: a directory's name may have a value in it, and is looked at as a file's.
    return str(pq.ParquetFile(file).read().to_pydict()).encode()


def _arrow(file: Path) -> bytes:
    with pa.ipc.open_stream(pa.memory_map(str(file))) as reader:
        return str(reader.read_all().to_pydict()).encode()


def _avro(file: Path) -> bytes:
    """The blocks of an Avro file, of which those of Iceberg are compressed with the bounds of columns in them."""
    content = file.read_bytes()
    assert b"\x0edeflate" in content, "another codec: learn to read it"
    blocks = content.split(content[-_SYNC:])[1:-1]
    return b"".join(zlib.decompress(block[_after_number(block, _after_number(block, 0)) :], -15) for block in blocks)


def _after_number(block: bytes, at: int) -> int:
    while block[at] & 0x80:
        at += 1
    return at + 1


def _duckdb(file: Path) -> bytes:
    with duckdb.connect(str(file), read_only=True) as connection:
        found = connection.execute("SELECT schema_name, table_name, sql FROM duckdb_tables()").fetchall()
        tables = [f"{quote_identifier(schema)}.{quote_identifier(name)}" for schema, name, _ in found]
        return str((found, [connection.execute(f"FROM {table}").fetchall() for table in tables])).encode()


_READERS: dict[str, Callable[[Path], bytes]] = {
    ".parquet": _parquet,
    ".arrow": _arrow,
    ".avro": _avro,
    ".duckdb": _duckdb,
}
