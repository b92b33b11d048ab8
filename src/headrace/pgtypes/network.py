"""inet, cidr, macaddr, macaddr8: kept as Postgres prints them.

The binary form of an address is its family, the length of its netmask, a flag, the number of its bytes, and the bytes.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .layout import Bools, Bytes, Ints, fixed_width, malformed, scan, strings, with_nulls
from .printing import choose, digits, hexadecimal, join, kept

__all__ = ["print_cidr", "print_inet", "print_macaddr", "print_macaddr8"]

_HEADER = 4


def print_inet(values: pa.BinaryArray) -> pa.StringArray:
    """The netmask is shown unless it covers the whole address."""
    addresses, bits, whole = _addresses(values)
    return join(addresses, choose(bits == whole, "", join("/", digits(bits))))


def print_cidr(values: pa.BinaryArray) -> pa.StringArray:
    addresses, bits, _ = _addresses(values)
    return join(addresses, "/", digits(bits))


def _addresses(values: pa.BinaryArray) -> tuple[pa.StringArray, Ints, Ints]:
    """The addresses' text, the length of each netmask, and the length of the whole address in bits."""
    data, offsets = scan(values)
    sizes = np.diff(offsets)
    if np.any(sizes < _HEADER):
        raise malformed("inet")
    family, bits = data[offsets[:-1]], data[offsets[:-1] + 1].astype(np.int64)
    version4, version6 = family == 2, family == 3
    if np.any(sizes != _HEADER + np.where(version4, 4, 16)) or not np.all(version4 | version6):
        raise malformed("inet")
    texts = pc.coalesce(
        with_nulls(_version4(_octets(data, offsets[:-1][version4], 4)), pa.array(version4)),
        with_nulls(_version6(_octets(data, offsets[:-1][version6], 16)), pa.array(version6)),
    )
    return texts, bits, np.where(version4, 32, 128)


def _octets(data: Bytes, starts: Ints, size: int) -> Bytes:
    octets: Bytes = data[starts[:, None] + _HEADER + np.arange(size)]
    return octets


def _version4(octets: Bytes) -> pa.StringArray:
    a, b, c, d = (digits(octets[:, place]) for place in range(4))
    return pc.binary_join_element_wise(a, b, c, d, ".")


def _version6(octets: Bytes) -> pa.StringArray:
    """Groups of hexadecimal digits; the longest run of zero groups, the first of equals, becomes `::`."""
    words = octets.reshape(-1, 8, 2).astype(np.int64) @ np.array([256, 1])
    start, length = _longest_zeros(words == 0)
    places = np.arange(8)
    elided = (places >= start[:, None]) & (places < (start + length)[:, None])
    embedded = (start == 0) & ((length == 6) | ((length == 5) & (words[:, 5] == 0xFFFF)))
    shown = ~elided & ~(embedded[:, None] & (places >= 6))
    text = _groups(hexadecimal(octets).reshape(-1, 8, 4), shown, start)
    ends_elided = (length > 0) & (start + length == 8)
    tail = choose(embedded, join(":", _version4(octets[:, 12:])), choose(ends_elided, ":", ""))
    return join(text, tail)


def _longest_zeros(zero: Bools) -> tuple[Ints, Ints]:
    """Start and length of the longest run of at least two zeros in each row; length 0 where there is none."""
    best = np.zeros(len(zero), np.int64)
    start = np.full(len(zero), -1, np.int64)
    running = np.zeros(len(zero), np.int64)
    for place in range(8):
        running = np.where(zero[:, place], running + 1, 0)
        better = running > best
        best = np.where(better, running, best)
        start = np.where(better, place + 1 - running, start)
    enough = best >= 2
    return np.where(enough, start, -1), np.where(enough, best, 0)


def _groups(hexadecimals: Bytes, shown: Bools, start: Ints) -> pa.StringArray:
    """Each group as `:hhhh` without leading zeros, no colon before the very first; one more colon where the gap is."""
    rows = len(hexadecimals)
    characters = np.empty((rows, 8, 5), np.uint8)
    characters[..., 0] = ord(":")
    characters[..., 1:] = hexadecimals
    keep = np.zeros((rows, 8, 5), np.bool_)
    keep[..., 1:] = np.logical_or.accumulate(hexadecimals != ord("0"), axis=2)
    keep[..., 4] = True
    keep &= shown[..., None]
    places = np.arange(8)
    keep[..., 0] = (shown & (places > 0)) | (places == start[:, None])
    return kept(characters.reshape(rows, 40), keep.reshape(rows, 40))


def print_macaddr(values: pa.BinaryArray) -> pa.StringArray:
    return _with_colons(values, 6, "macaddr")


def print_macaddr8(values: pa.BinaryArray) -> pa.StringArray:
    return _with_colons(values, 8, "macaddr8")


def _with_colons(values: pa.BinaryArray, size: int, type_name: str) -> pa.StringArray:
    octets = fixed_width(values, f"V{size}", type_name).view(np.uint8).reshape(-1, size)
    text = np.full((len(octets), size, 3), ord(":"), np.uint8)
    text[..., :2] = hexadecimal(octets).reshape(-1, size, 2)
    length = 3 * size - 1
    return strings(text.reshape(-1, 3 * size)[:, :length].reshape(-1), np.arange(len(octets) + 1) * length)
