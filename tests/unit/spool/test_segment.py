from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import ProtocolError, SpoolCorrupt
from headrace.lsn import INVALID_LSN, Lsn
from headrace.pgoutput.batch import PADDING, MessageBatch
from headrace.spool.name import SegmentName
from headrace.spool.segment import SegmentIndex, TableIndex, read_index, read_segment, write_segment

NAME = SegmentName(Lsn(0x10), Lsn(0x20), 2, 3)
INDEX = SegmentIndex(
    {16384: TableIndex(2, 1, ("0a", "1b"), 3), 16390: TableIndex(0, 0, ("2c",))},
    logical_messages=3,
    first_ordinal=7,
    name=NAME,
)
MESSAGES = [b"Bxxx", b"", b"I" + bytes(300), b"C"]


def write(path: Path, messages: list[bytes] = MESSAGES, index: SegmentIndex = INDEX) -> pa.Buffer:
    lengths = np.asarray([len(message) for message in messages], dtype=np.int64)
    write_segment(path, np.arange(len(messages), dtype=np.uint64) + 2**63, lengths, messages, index)
    return pa.py_buffer(path.read_bytes())


def read(buffer: pa.Buffer, name: SegmentName = NAME) -> MessageBatch:
    return read_segment(buffer, name, "dir/s")


def test_messages_read_back(tmp_path: Path) -> None:
    batch = read(write(tmp_path / "s"))
    assert [batch.message(i) for i in range(len(batch))] == MESSAGES
    assert batch.lsns.tolist() == [2**63, 2**63 + 1, 2**63 + 2, 2**63 + 3]
    assert batch.first_ordinal == 7


def test_bytes_behind_the_last_message_can_be_read(tmp_path: Path) -> None:
    batch = read(write(tmp_path / "s"))
    assert len(batch.data) >= batch.offsets[-1] + PADDING


def test_message_bytes_are_not_copied(tmp_path: Path) -> None:
    buffer = write(tmp_path / "s")
    batch = read(buffer)
    assert buffer.address <= batch.data.ctypes.data < buffer.address + buffer.size


def test_the_index_reads_back_without_the_messages(tmp_path: Path) -> None:
    assert read_index(write(tmp_path / "s"), NAME, "dir/s") == INDEX


def test_a_segment_without_messages(tmp_path: Path) -> None:
    batch = read(write(tmp_path / "s", []))
    assert len(batch) == 0
    assert len(batch.data) >= PADDING


def zeroed(content: bytes, start: int, count: int) -> bytes:
    return content[:start] + bytes(count) + content[start + count :]


def flipped(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


def test_a_flipped_bit_anywhere_changes_nothing_unnoticed(tmp_path: Path) -> None:
    content = write(tmp_path / "s").to_pybytes()
    corrupt = 0
    for position in range(len(content)):
        damaged = pa.py_buffer(flipped(content, position))
        try:
            batch, index = read(damaged), read_index(damaged, NAME, "dir/s")
        except SpoolCorrupt as error:
            corrupt += "dir/s" in str(error)
        else:
            assert [batch.message(i) for i in range(len(batch))] == MESSAGES
            assert batch.lsns.tolist() == [2**63, 2**63 + 1, 2**63 + 2, 2**63 + 3]
            assert (batch.first_ordinal, index) == (7, INDEX)
    # The messages alone are a good part of the file.
    assert corrupt > sum(map(len, MESSAGES))


def test_a_damaged_value_leaves_the_index_readable(tmp_path: Path) -> None:
    content = write(tmp_path / "s").to_pybytes()
    damaged = pa.py_buffer(flipped(content, content.index(b"Bxxx") + 2))
    with pytest.raises(SpoolCorrupt, match="dir/s is damaged: its messages") as caught:
        read(damaged)
    assert "headrace resync" in caught.value.hint
    assert read_index(damaged, NAME, "dir/s") == INDEX


@pytest.mark.parametrize("side", ["front", "footer"])
def test_one_damaged_index_is_replaced_by_the_other(tmp_path: Path, side: str) -> None:
    content = write(tmp_path / "s").to_pybytes()
    position = content.find(b"16384") if side == "front" else content.rfind(b"16384")
    assert read_index(pa.py_buffer(flipped(content, position)), NAME, "dir/s") == INDEX
    assert len(read(pa.py_buffer(flipped(content, position)))) == len(MESSAGES)


def test_a_digit_of_a_table_in_both_indexes_is_noticed(tmp_path: Path) -> None:
    content = write(tmp_path / "s").to_pybytes()
    damaged = flipped(flipped(content, content.find(b"16384")), content.rfind(b"16384"))
    with pytest.raises(SpoolCorrupt, match="dir/s is damaged: its index"):
        read_index(pa.py_buffer(damaged), NAME, "dir/s")


@pytest.mark.parametrize(
    ("start", "end", "part", "parts"), [(0x11, 0x20, 2, 3), (0x10, 0x21, 2, 3), (0x10, 0x20, 1, 3), (0x10, 0x20, 2, 4)]
)
def test_the_content_of_another_segment_is_noticed(tmp_path: Path, start: int, end: int, part: int, parts: int) -> None:
    with pytest.raises(SpoolCorrupt, match="the content of another segment"):
        read(write(tmp_path / "s"), SegmentName(Lsn(start), Lsn(end), part, parts))


def test_a_part_that_is_written_before_its_transaction_ends(tmp_path: Path) -> None:
    early = replace(INDEX, name=SegmentName(Lsn(0x10), INVALID_LSN, 2, 0))
    buffer = write(tmp_path / "s", index=early)
    assert len(read(buffer)) == len(MESSAGES)
    with pytest.raises(SpoolCorrupt, match="the content of another segment"):
        read(buffer, replace(NAME, part=1))


def test_a_damaged_format_does_not_switch_verification_off(tmp_path: Path) -> None:
    content = write(tmp_path / "s").to_pybytes()
    format_3 = b"\x01\x00\x00\x003\x00"  # as Arrow stores a text: its length, itself, a zero
    for digit in (content.find(format_3) + 4, content.rfind(format_3) + 4):
        assert content[digit : digit + 1] == b"3"
        damaged = pa.py_buffer(flipped(flipped(content, digit), content.index(b"Bxxx") + 2))
        with pytest.raises(SpoolCorrupt, match="dir/s is damaged: its messages"):
            read(damaged)


def test_zeroed_bytes_are_noticed(tmp_path: Path) -> None:
    content = write(tmp_path / "s").to_pybytes()
    start = content.index(b"Bxxx")
    with pytest.raises(SpoolCorrupt, match="dir/s is damaged"):
        read(pa.py_buffer(zeroed(content, start, 60)))
    with pytest.raises(SpoolCorrupt, match="dir/s"):
        read_index(pa.py_buffer(bytes(len(content))), NAME, "dir/s")


def test_a_segment_of_the_format_before_is_read_unverified(tmp_path: Path) -> None:
    write(tmp_path / "s", index=replace(INDEX, name=None))
    with pa.OSFile(str(tmp_path / "s"), "rb") as file, pa.ipc.open_file(file) as old:
        batch = old.get_batch(0)
        metadata = {b"headrace.format": b"2", b"headrace.index": old.schema.metadata[b"headrace.index"]}
    with (
        pa.OSFile(str(tmp_path / "s"), "wb") as file,
        pa.ipc.new_file(file, batch.schema.with_metadata(metadata)) as writer,
    ):
        writer.write_batch(batch.replace_schema_metadata(metadata))
    buffer = pa.py_buffer((tmp_path / "s").read_bytes())
    assert len(read(buffer)) == len(MESSAGES)
    assert read_index(buffer, NAME, "dir/s") == replace(INDEX, name=None)


@pytest.mark.parametrize("keep", [0, 1, 40, 0.5])
def test_a_cut_file_is_corrupt(tmp_path: Path, keep: float) -> None:
    content = write(tmp_path / "s").to_pybytes()
    cut = content[: int(len(content) * keep) if 0 < keep < 1 else int(keep)]
    with pytest.raises(SpoolCorrupt, match="segment dir/s"):
        read(pa.py_buffer(cut))


@pytest.mark.parametrize("lost", [1, 10, 200])
def test_a_file_without_its_footer_is_read_from_the_front(tmp_path: Path, lost: int) -> None:
    buffer = pa.py_buffer(write(tmp_path / "s").to_pybytes()[:-lost])
    assert [read(buffer).message(i) for i in range(len(MESSAGES))] == MESSAGES
    assert read_index(buffer, NAME, "dir/s") == INDEX


def test_a_segment_whose_offsets_would_wrap_is_refused(tmp_path: Path) -> None:
    half = np.full(2, 2**30, dtype=np.int64)
    with pytest.raises(ProtocolError, match="2147483648 bytes"):
        write_segment(tmp_path / "s", np.arange(2, dtype=np.uint64), half, [b""], SegmentIndex({}))
    assert not (tmp_path / "s").exists()


def test_another_format_is_named(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("x", pa.int8())], metadata={"headrace.format": "99"})
    with pa.OSFile(str(tmp_path / "s"), "wb") as file, pa.ipc.new_file(file, schema):
        pass
    with pytest.raises(SpoolCorrupt, match="format 99"):
        read(pa.py_buffer((tmp_path / "s").read_bytes()))


def test_a_foreign_arrow_file_is_refused(tmp_path: Path) -> None:
    with pa.OSFile(str(tmp_path / "s"), "wb") as file, pa.ipc.new_file(file, pa.schema([pa.field("x", pa.int8())])):
        pass
    with pytest.raises(SpoolCorrupt, match="format none"):
        read(pa.py_buffer((tmp_path / "s").read_bytes()))
