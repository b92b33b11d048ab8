"""What to send through the server, type by type: generated values, special ones, and which of those no Arrow value can
hold.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from headrace.pgtypes.registry import TypeOptions

SETUP = [
    "CREATE EXTENSION hstore",
    "CREATE EXTENSION citext",
    "CREATE EXTENSION ltree",
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'very, \"happy\"', 'NULL', '😀')",
    "CREATE TYPE pair AS (a int, b text)",
    "CREATE DOMAIN price AS numeric(10, 2)",
    "CREATE DOMAIN sale_price AS price CHECK (VALUE IS NULL OR VALUE <> 13)",
    "CREATE DOMAIN instant AS timestamptz",
    "CREATE DOMAIN tags AS text[]",
]


@dataclass(frozen=True)
class Case:
    """`special` always runs; `rejected` are those of them that must be set aside. `since` is the first server that has
    them.

    `normalise` makes psycopg's value and Arrow's comparable; None where psycopg has no value of its own to compare.
    """

    type: str
    values: st.SearchStrategy[str]
    special: Sequence[str]
    rejected: Sequence[str] = ()
    since: int = 0
    options: TypeOptions = field(default_factory=TypeOptions)
    normalise: tuple[Callable[[Any], Any], Callable[[Any], Any]] | None = None
    label: str = ""

    @property
    def id(self) -> str:
        return self.type + self.label


def same(value: Any) -> Any:
    return value


SAME = (same, same)
AS_TEXT = (str, same)
AS_ISO = (lambda moment: moment.isoformat(), lambda moment: moment.isoformat())
AS_DECIMAL = (Decimal, Decimal)

any_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
tricky_text = st.text(st.sampled_from("a\"\\,{}()[]N UL\r\n\t;=>'é😀\ufeff"), max_size=12)
TEXTS = [
    "", " ", "NULL", "null", "\\N", "\\.", '"', '""', "\\", '\\"', "a,b", "a\r\nb", "\n", "\r", "\t", "{}", "{a,b}",
    "😀", "é", "\ufeffmark", "\ufeff", "'", "t", "0x10", "\u2028", "x" * 3000,
]  # fmt: skip


def integers(bits: int) -> st.SearchStrategy[str]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).map(str)


def decimals(precision: int, scale: int) -> st.SearchStrategy[str]:
    def spell(number: int) -> str:
        digits = f"{abs(number):0{scale + 1}d}"
        return ("-" if number < 0 else "") + digits[: len(digits) - scale] + "." + digits[len(digits) - scale :]

    return st.integers(1 - 10**precision, 10**precision - 1).map(spell)


any_numeric = st.builds(
    lambda sign, whole, part: f"{sign}{whole}" + (f".{part}" if part else ""),
    st.sampled_from(["", "-"]),
    st.text("0123456789", min_size=1, max_size=60),
    st.text("0123456789", max_size=60),
)


@st.composite
def dates(draw: st.DrawFn, last_year: int = 294_276) -> str:
    year = draw(st.one_of(st.integers(1, 9_999), st.integers(1, last_year)))
    before = year < 4_700 and draw(st.integers(0, 5)) == 0
    return f"{year:04d}-{draw(st.integers(1, 12)):02d}-{draw(st.integers(1, 28)):02d}" + (" BC" if before else "")


@st.composite
def clocks(draw: st.DrawFn) -> str:
    fraction = draw(st.one_of(st.just(""), st.integers(0, 999_999).map(lambda n: f".{n:06d}")))
    return f"{draw(st.integers(0, 23)):02d}:{draw(st.integers(0, 59)):02d}:{draw(st.integers(0, 59)):02d}{fraction}"


@st.composite
def timestamps(draw: st.DrawFn, zone: str = "") -> str:
    date, _, before = draw(dates()).partition(" ")
    return f"{date} {draw(clocks())}{zone}" + (" BC" if before else "")


zones = st.builds(
    lambda sign, hour, minute, second: f"{sign}{hour:02d}:{minute:02d}:{second:02d}",
    st.sampled_from("+-"), st.integers(0, 15), st.sampled_from([0, 30, 59]), st.sampled_from([0, 0, 17]),
)  # fmt: skip
intervals = st.builds(
    lambda months, days, sign, hours, clock: f"{months} months {days} days {sign}{hours}:{clock}",
    st.one_of(st.integers(-15, 15), st.integers(-(2**31) + 1, 2**31 - 2)),
    st.one_of(st.integers(-3, 3), st.integers(-(2**31) + 1, 2**31 - 2)),
    st.sampled_from(["", "-"]),
    st.one_of(st.just(0), st.integers(0, 30), st.integers(0, 2**30)),
    st.one_of(st.just("00:00"), clocks().map(lambda clock: clock[3:])),
)
hexadecimal = "0123456789abcdef"
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), any_text, st.floats(allow_nan=False, allow_infinity=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(any_text, inner, max_size=3)),
    max_leaves=5,
).map(json.dumps)
words = st.lists(st.sampled_from([0, 0, 0, 1, 0xFFFF, 0xA, 0x1234]), min_size=8, max_size=8)
addresses = st.one_of(
    st.ip_addresses().map(str),
    words.map(lambda w: str(ipaddress.IPv6Address(b"".join(x.to_bytes(2, "big") for x in w)))),
)


@st.composite
def inets(draw: st.DrawFn) -> str:
    address = draw(addresses)
    bits = draw(st.one_of(st.none(), st.integers(0, 128 if ":" in address else 32)))
    return address if bits is None else f"{address}/{bits}"


@st.composite
def cidrs(draw: st.DrawFn) -> str:
    address = draw(addresses)
    return str(ipaddress.ip_network(f"{address}/{draw(st.integers(0, 128 if ':' in address else 32))}", strict=False))


def quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


hstores = st.lists(
    st.tuples(st.one_of(tricky_text, any_text), st.one_of(st.none(), tricky_text, any_text)),
    max_size=4,
    unique_by=lambda p: p[0],
).map(lambda pairs: ", ".join(f"{quote(k)}=>{'NULL' if v is None else quote(v)}" for k, v in pairs))

THOUSAND_DIGITS = "7" * 1000 + "." + "3" * 500

CASES = [
    Case("boolean", st.sampled_from("tf"), ["t", "f"], normalise=SAME),
    Case("smallint", integers(16), ["-32768", "32767", "0"], normalise=SAME),
    Case("integer", integers(32), ["-2147483648", "2147483647"], normalise=SAME),
    Case("bigint", integers(64), ["-9223372036854775808", "9223372036854775807"], normalise=SAME),
    Case("oid", st.integers(0, 2**32 - 1).map(str), ["0", "4294967295"], normalise=SAME),
    Case("real", st.floats(width=32).map(repr), ["NaN", "Infinity", "-Infinity", "-0", "1e-45", "3.4028235e38", "1e6",
         "999999", "0.0001", "0.00001", "123456.7", "100000"]),
    Case("double precision", st.floats().map(repr), ["NaN", "Infinity", "-Infinity", "-0", "5e-324", "1e15", "1e14",
         "123456789012345", "1234567890123456", "0.0001", "0.00001", "1.7976931348623157e308", "100"], normalise=SAME),
    Case("numeric(10,2)", decimals(10, 2), ["0", "-0.01", "99999999.99", "-99999999.99", "NaN"], ["NaN"],
         normalise=AS_DECIMAL),
    Case("numeric(18,0)", decimals(18, 0), ["999999999999999999", "-999999999999999999", "10000000000000000", "NaN"],
    ["NaN"], normalise=AS_DECIMAL),
    Case("numeric(18,18)", decimals(18, 18), ["0.999999999999999999", "0.000000000000000001", "0"],
    normalise=AS_DECIMAL), Case("numeric(5,3)", decimals(5, 3), ["12.345", "0.001", "-0.1"], normalise=AS_DECIMAL),
    Case("numeric(38,10)", decimals(38, 10), ["NaN", "9" * 28 + "." + "9" * 10, "-1e-10"], ["NaN"],
    normalise=AS_DECIMAL), Case("numeric(38,0)", decimals(38, 0), ["9" * 38, "-" + "9" * 38], normalise=AS_DECIMAL),
    Case("numeric(39,0)", decimals(39, 0), ["9" * 39, "NaN"], normalise=AS_DECIMAL),
    Case("numeric", any_numeric, ["NaN", "Infinity", "-Infinity", "0", "0.000", "1.500", "10000", "0.0001", "0.00001",
         "1e130", "1e-130", THOUSAND_DIGITS, "-" + THOUSAND_DIGITS], normalise=AS_DECIMAL),
    Case("numeric", any_numeric, ["NaN", "Infinity", "-Infinity", "1.50", "1.500", "1.505", "1e10", "99999999.99",
         "100000000", "100000000.5000", THOUSAND_DIGITS, "1." + "0" * 50, "0.001", "-0.01"],
         ["NaN", "Infinity", "-Infinity", "1.505", "1e10", "100000000", "100000000.5000", THOUSAND_DIGITS, "0.001"],
         options=TypeOptions(numeric_without_scale=(10, 2)), label=" as decimal(10,2)"),
    Case("numeric", any_numeric, ["12345678901234567890.5", "1." + "0" * 60, "0.5", "1.23"], ["1.23"],
         options=TypeOptions(numeric_without_scale=(38, 1)), label=" as decimal(38,1)"),
    Case("numeric(3,5)", st.just("0.00123"), ["0.00123"], since=15),
    Case("numeric(3,-2)", st.just("12300"), ["12300", "99900"], since=15),
    Case("text", st.one_of(any_text, tricky_text), TEXTS, normalise=SAME),
    Case("varchar(3000)", any_text, TEXTS, normalise=SAME),
    Case("char(5)", st.text("ab 😀", max_size=5), ["", "a", "NULL"], normalise=SAME),
    Case("citext", any_text, TEXTS, normalise=SAME),
    Case("name", st.text("abc\"' ", max_size=20), ["", "NULL"], normalise=SAME),
    Case('"char"', st.sampled_from("aZ09 \"'\\,"), ["", "a", '"', "\\"]),
    Case("ltree", st.sampled_from(["a.b.c", "Top"]), ["", "a.b"]),
    Case("bytea", st.binary(max_size=40).map(lambda b: "\\x" + b.hex()), ["\\x", "\\x00", "\\xdeadbeef", "\\x0a0d2c22"],
         normalise=SAME),
    Case("date", dates(), ["0001-01-01", "9999-12-31", "2000-02-29", "infinity", "-infinity", "0044-03-15 BC",
    "10000-01-01", "4713-01-01 BC", "5874897-12-31", "0001-12-31 BC", "1900-03-01"],
         ["infinity", "-infinity", "0044-03-15 BC", "10000-01-01", "4713-01-01 BC", "5874897-12-31", "0001-12-31 BC"],
         normalise=SAME),
    Case("timestamp", timestamps(), ["0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "infinity", "-infinity",
         "0044-03-15 00:00:00 BC", "10000-01-01 00:00:00", "294276-12-31 23:59:59.999999", "4713-01-01 00:00:00 BC",
         "1999-12-31 24:00:00", "1969-12-31 23:59:59.5"],
         ["infinity", "-infinity", "0044-03-15 00:00:00 BC", "10000-01-01 00:00:00", "294276-12-31 23:59:59.999999",
          "4713-01-01 00:00:00 BC"], normalise=SAME),
    Case("timestamptz", timestamps("+00"), ["0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00", "infinity",
    "-infinity", "0044-03-15 00:00:00+00 BC", "9999-12-31 23:00:00-05", "0001-01-01 00:00:00+01",
    "2024-02-29 12:34:56.789+05:30"], ["infinity", "-infinity", "0044-03-15 00:00:00+00 BC", "9999-12-31 23:00:00-05",
    "0001-01-01 00:00:00+01"], normalise=AS_ISO),
    Case("timestamptz(3)", timestamps("+00"), ["2024-02-29 12:34:56.789123+00"], normalise=AS_ISO),
    Case("time", clocks(), ["24:00:00", "00:00:00", "12:34:56.5"]),
    Case("timetz", st.builds(lambda c, z: c + z, clocks(), zones), ["24:00:00+00", "12:00:00-15:59:59",
    "12:00:00+05:30"]), Case("interval", intervals, ["0", "1 year", "-1 year", "1 mon -1 day", "-1 mon 1 day",
    "-1 day 1 second", "1 day -1 second", "-1 mon 00:00:01", "-0.5 seconds", "100000:00:00", "14 months", "-14 months",
    "1 mon 1 day 1 second"]), Case("interval", intervals, ["infinity", "-infinity"], since=17, label=" infinite"),
    Case("uuid", st.uuids().map(str), ["00000000-0000-0000-0000-000000000000", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"],
         normalise=AS_TEXT),
    Case("json", json_values, ['{"b": 1,  "a" : [1,2 ] , "b":2}', "null", '"\\u00e9"', '""'],
         normalise=(same, json.loads)),
    Case("jsonb", json_values.filter(lambda j: "\\u0000" not in j), ['{"b": 1, "aa": 2, "a": 1.50}', "null", "[]",
    '"NULL"'], normalise=(same, json.loads)),
    Case("jsonpath", st.just("$.a"), ["$", '$."a"[*] ? (@ > 1)']),
    Case("xml", st.sampled_from(["<a/>", "text"]), ["<a>é😀</a>", "", '<?xml version="1.0" encoding="UTF-8"?><a/>',
         '<?xml version="1.0" standalone="yes"?><a/>']),
    Case("bit(5)", st.text("01", min_size=5, max_size=5), ["00000", "10101"], normalise=SAME),
    Case("bit varying", st.text("01", max_size=70), ["", "1", "10000000", "100000001"], normalise=SAME),
    Case("inet", inets(), ["127.0.0.1", "10.0.0.0/8", "::", "::1", "::2", "::1.2.3.4", "::ffff:1.2.3.4",
    "1:0:0:2:0:0:0:3", "1:0:0:2:3:0:0:4", "fe80::/10", "2001:db8::", "1:2:3:4:5:6:7:8", "0:1:2:3:4:5:6:7", "0.0.0.0/0",
    "::ffff:0:1.2.3.4", "1::", "1:2:3:4:5:6:7::"]),
    Case("cidr", cidrs(), ["10.0.0.0/8", "127.0.0.1/32", "::/0", "::1/128", "2001:db8::/32"]),
    Case("macaddr", st.text(hexadecimal, min_size=12, max_size=12), ["08:00:2b:01:02:03"]),
    Case("macaddr8", st.text(hexadecimal, min_size=16, max_size=16), ["08:00:2b:01:02:03:04:05"]),
    Case("pg_lsn", st.builds("{:X}/{:X}".format, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)), ["0/0",
         "16/B374D848", "FFFFFFFF/FFFFFFFF", "1/0"]),
    Case("xid", st.integers(0, 2**32 - 1).map(str), ["0", "4294967295"]),
    Case("cid", st.integers(0, 2**32 - 1).map(str), ["0", "4294967295"]),
    Case("xid8", st.integers(0, 2**64 - 1).map(str), ["0", "18446744073709551615"]),
    Case("tid", st.just("(1,2)"), ["(0,0)", "(4294967295,65535)"]),
    Case("mood", st.sampled_from(["sad", "ok"]), ["sad", 'very, "happy"', "NULL", "😀"], normalise=SAME),
    Case("price", decimals(10, 2), ["1.5", "NaN"], ["NaN"], normalise=AS_DECIMAL),
    Case("sale_price", decimals(10, 2), ["1.5", "NaN"], ["NaN"], normalise=AS_DECIMAL),
    Case("instant", timestamps("+00"), ["infinity", "2024-01-01 00:00:00+00"], ["infinity"], normalise=AS_ISO),
    Case("hstore", hstores, ["", "a=>1", 'a=>NULL, b=>"NULL"', '"a\\"b"=>"c\\\\d"', '"a=>b"=>"c, d"', '""=>""',
    "N=>N"]), Case("int4range", st.just("[1,5)"), ["empty", "(,)", "[1,10]", "(,5)", "[5,)"]),
    Case("int8range", st.just("[1,5)"), ["empty", "[-9223372036854775808,1)"]),
    Case("numrange", st.just("[1.50,2)"), ["empty", "(1.50,2]", "[-1,1]"]),
    Case("daterange", st.just("[2024-01-01,2024-02-01)"), ["[2024-01-01,infinity]", "[0044-03-15 BC,2024-01-01)",
    "(,)"]), Case("tsrange", st.just("[2024-01-01,2024-02-01)"), ["empty", "[2024-01-01 12:00:00.5,infinity)",
    "(,infinity]"]), Case("tstzrange", st.just("[2024-01-01,2024-02-01)"), ["empty",
    "[-infinity,2024-01-01 00:00:00+00]"]), Case("int4multirange", st.just("{}"), ["{}", "{[1,3), [5,9)}", "{(,)}"]),
    Case("tstzmultirange", st.just("{}"), ["{[2024-01-01,2024-02-01), [2025-01-01,)}"]),
]  # fmt: skip


def literal(elements: Sequence[str | None]) -> str:
    return "{" + ",".join("NULL" if element is None else quote(element) for element in elements) + "}"


@st.composite
def arrays(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    element = st.one_of(st.none(), values)
    shape = draw(st.sampled_from(["list", "list", "list", "matrix", "bounds", "empty"]))
    if shape == "empty":
        return "{}"
    if shape == "matrix":
        width = draw(st.integers(1, 3))
        rows = draw(st.lists(st.lists(element, min_size=width, max_size=width), min_size=1, max_size=3))
        return "{" + ",".join(literal(row) for row in rows) + "}"
    elements = draw(st.lists(element, min_size=1, max_size=6))
    if shape == "bounds":
        lower = draw(st.integers(-3, 3))
        return f"[{lower}:{lower + len(elements) - 1}]={literal(elements)}"
    return literal(elements)


def _array_case(case: Case) -> Case:
    good = [special for special in case.special if special not in case.rejected]
    rejected = [literal([special]) for special in case.rejected] + [literal([good[0], None, r]) for r in case.rejected]
    shapes = [f"{{{literal(good[:2])},{literal(good[:2])}}}", f"[0:0]={literal(good[:1])}"]
    return Case(
        case.type + "[]", arrays(st.one_of(case.values, st.sampled_from(good))),
        ["{}", literal(good), literal([None]), literal([None, *good, None]), f"[1:1]={literal(good[:1])}", *shapes,
        *rejected, "{" * 6 + (quote(good[0]) + ",NULL") + "}" * 6],
        [*shapes, *rejected, "{" * 6 + (quote(good[0]) + ",NULL") + "}" * 6],
        since=case.since, options=case.options, normalise=None, label=case.label,
    )  # fmt: skip


ARRAY_CASES = [_array_case(case) for case in CASES] + [
    Case("tags", arrays(tricky_text), ["{}", "{a,NULL}", "{{a},{b}}"], ["{{a},{b}}"]),
    Case("text[]", arrays(tricky_text), ["{}", '{a,"b,c",NULL,"NULL",""}'], normalise=None, label=" like psycopg's"),
]

TEXT_ONLY_CASES = [
    Case(name, st.nothing(), special)
    for name, special in [
        ("pair", ['(1,"a b")', "(,)", '(1,"\\"")']),
        ("money", ["1.50", "-3"]),
        ("tsvector", ["a:1 b:2", ""]),
        ("tsquery", ["a & b"]),
        ("point", ["(1,2)"]),
        ("box", ["(1,2),(3,4)"]),
        ("circle", ["<(1,2),3>"]),
        ("polygon", ["((1,2),(3,4))"]),
        ("regclass", ["pg_class", "pg_type"]),
        ("int2vector", ["1 2 3", ""]),
    ]
]
