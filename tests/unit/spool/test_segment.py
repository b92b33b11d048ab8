from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import SpoolCorrupt
from headrace.pgoutput.batch import PADDING
from headrace.spool.segment import SegmentIndex, TableIndex, read_index, read_segment, write_segment

INDEX = SegmentIndex(
    {16384: TableIndex(2, 1, ("0a", "1b"), 3), 16390: TableIndex(0, 0, ("2c",))}, logical_messages=3, first_ordinal=7
)
MESSAGES = [b"Bxxx", b"", b"I" + bytes(300), b"C"]


def write(path: Path, messages: list[bytes] = MESSAGES, index: SegmentIndex = INDEX) -> pa.Buffer:
    lengths = np.asarray([len(message) for message in messages], dtype=np.int64)
    write_segment(path, np.arange(len(messages), dtype=np.uint64) + 2**63, lengths, messages, index)
    return pa.py_buffer(path.read_bytes())


def test_messages_read_back(tmp_path: Path) -> None:
    batch = read_segment(write(tmp_path / "s"), "s")
    assert [batch.message(i) for i in range(len(batch))] == MESSAGES
    assert batch.lsns.tolist() == [2**63, 2**63 + 1, 2**63 + 2, 2**63 + 3]
    assert batch.first_ordinal == 7


def test_bytes_behind_the_last_message_can_be_read(tmp_path: Path) -> None:
    batch = read_segment(write(tmp_path / "s"), "s")
    assert len(batch.data) >= batch.offsets[-1] + PADDING


def test_message_bytes_are_not_copied(tmp_path: Path) -> None:
    buffer = write(tmp_path / "s")
    batch = read_segment(buffer, "s")
    assert buffer.address <= batch.data.ctypes.data < buffer.address + buffer.size


def test_the_index_reads_back_without_the_messages(tmp_path: Path) -> None:
    assert read_index(write(tmp_path / "s"), "s") == INDEX


def test_a_segment_without_messages(tmp_path: Path) -> None:
    batch = read_segment(write(tmp_path / "s", []), "s")
    assert len(batch) == 0
    assert len(batch.data) >= PADDING


@pytest.mark.parametrize("keep", [0, 1, 40, 0.5, 0.9, -1])
def test_a_cut_file_is_corrupt(tmp_path: Path, keep: float) -> None:
    content = write(tmp_path / "s").to_pybytes()
    cut = content[: int(len(content) * keep) if 0 < keep < 1 else int(keep)]
    with pytest.raises(SpoolCorrupt, match="segment s"):
        read_segment(pa.py_buffer(cut), "s")


def test_another_format_is_named(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("x", pa.int8())], metadata={"headrace.format": "99"})
    with pa.OSFile(str(tmp_path / "s"), "wb") as file, pa.ipc.new_file(file, schema):
        pass
    with pytest.raises(SpoolCorrupt, match="format 99"):
        read_segment(pa.py_buffer((tmp_path / "s").read_bytes()), "s")


def test_a_foreign_arrow_file_is_refused(tmp_path: Path) -> None:
    with pa.OSFile(str(tmp_path / "s"), "wb") as file, pa.ipc.new_file(file, pa.schema([pa.field("x", pa.int8())])):
        pass
    with pytest.raises(SpoolCorrupt, match="format none"):
        read_segment(pa.py_buffer((tmp_path / "s").read_bytes()), "s")
