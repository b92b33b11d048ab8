"""The receiver writes and replays without pandas, whose import would be the largest part of its start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from pathlib import Path
import numpy as np
import pyarrow as pa
import headrace.replication.child
from headrace.replication.chunk import Piece
from headrace.replication.streamed import StreamedTransaction
from headrace.lsn import Lsn
from headrace.spool.name import SegmentName
from headrace.spool.segment import SegmentIndex, read_segment, write_segment

root = Path(sys.argv[1])
lsns, lengths = np.array([7, 8], dtype=np.uint64), np.array([1, 1], dtype=np.int64)
write_segment(root / "segment", lsns, lengths, [b"OO"], SegmentIndex({}))
print(read_segment(pa.py_buffer((root / "segment").read_bytes()), SegmentName(Lsn(1), Lsn(2)), "segment").lsns.tolist())
streamed = StreamedTransaction(5, lambda: root / "streamed")
streamed.append(Piece.of(lsns, lengths, b"OO", np.array([5, 6], dtype=np.uint32)))
streamed.abort(6)
streamed.spill()
print([(piece.lsns.tolist(), piece.xids.tolist(), bytes(piece.data)) for piece in streamed.pieces()])
print("pandas" in sys.modules)
"""


def test_the_receiver_does_not_import_pandas(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert output.splitlines() == ["[7, 8]", "[([7], [5], b'O')]", "False"]
