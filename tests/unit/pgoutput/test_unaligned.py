from __future__ import annotations

import numpy as np

from headrace.pgoutput.unaligned import big_endian


def test_numbers_anywhere() -> None:
    data = np.arange(1, 12, dtype=np.uint8)
    assert [hex(value) for value in big_endian(data, 4)[np.array([0, 1, 7])].tolist()] == [
        "0x1020304", "0x2030405", "0x8090a0b",
    ]  # fmt: skip
    assert len(big_endian(data, 8)) == 4
    assert int(big_endian(data, 2)[0]) == 0x0102


def test_a_buffer_shorter_than_a_number_has_none() -> None:
    assert len(big_endian(np.zeros(3, dtype=np.uint8), 4)) == 0
