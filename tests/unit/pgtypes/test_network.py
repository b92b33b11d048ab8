"""Network addresses."""

from __future__ import annotations

import ipaddress

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.pgtypes.network import print_cidr, print_inet, print_macaddr, print_macaddr8


def _send(text: str) -> bytes:
    interface = ipaddress.ip_interface(text)
    packed = interface.ip.packed
    return bytes([2 if len(packed) == 4 else 3, interface.network.prefixlen, 0, len(packed)]) + packed


INETS = [
    "127.0.0.1", "10.1.2.3/8", "0.0.0.0/0", "::", "::1", "::2", "::1.2.3.4", "::ffff:1.2.3.4", "1::", "::/0",
    "2001:db8::/32",
    "1:2:3:4:5:6:7:8", "0:1:2:3:4:5:6:7", "1:0:0:2::3", "1::2:3:0:0:4", "1:2:3:4:5:6:7:0", "fe80::1:0:0:1/64",
]  # fmt: skip


def test_inet_shows_a_netmask_only_where_it_matters() -> None:
    assert print_inet(pa.array([_send(text) for text in INETS])).to_pylist() == INETS


def test_cidr_always_shows_it() -> None:
    texts = [text if "/" in text else f"{text}/{128 if ':' in text else 32}" for text in INETS]
    assert print_cidr(pa.array([_send(text) for text in INETS])).to_pylist() == texts


@pytest.mark.parametrize("family", [["127.0.0.1"], ["::1"], []])
def test_one_family_only(family: list[str]) -> None:
    assert print_inet(pa.array([_send(text) for text in family], pa.binary())).to_pylist() == family


@pytest.mark.parametrize("value", [b"", b"\2\x20\0", b"\2\x20\0\4\1\2\3", b"\4\x20\0\4\1\2\3\4", b"\3\x20\0\4\1\2\3\4"])
def test_other_shapes_are_malformed(value: bytes) -> None:
    with pytest.raises(ProtocolError, match="inet"):
        print_inet(pa.array([value]))


def test_hardware_addresses() -> None:
    assert print_macaddr(pa.array([bytes(range(6)), b"\xff" * 6])).to_pylist() == [
        "00:01:02:03:04:05",
        "ff:ff:ff:ff:ff:ff",
    ]
    assert print_macaddr8(pa.array([bytes(range(8))])).to_pylist() == ["00:01:02:03:04:05:06:07"]
