"""type_change: which conversions leave a column's values as they are, and as what type they are stored."""

from __future__ import annotations

from itertools import product

import pyarrow as pa
import pytest

from headrace.pgtypes.registry import builtin_type, conversion_for
from headrace.schema import Column, PgType
from headrace.type_change import TypeChange, type_change, type_differs, type_text

SAME, WIDER, OTHER = TypeChange.SAME, TypeChange.WIDER, TypeChange.OTHER
OIDS = {
    "int2": 21, "int4": 23, "int8": 20, "oid": 26, "float4": 700, "float8": 701, "numeric": 1700, "text": 25,
    "varchar": 1043, "bpchar": 1042, "timestamp": 1114, "timestamptz": 1184, "time": 1083, "timetz": 1266,
    "interval": 1186, "bit": 1560, "varbit": 1562, "date": 1082, "json": 114, "jsonb": 3802, "uuid": 2950,
    "int4[]": 1007, "int8[]": 1016, "varchar[]": 1015, "text[]": 1009, "point": 600, "int2vector": 22, "bool": 16,
    "numeric[]": 1231, "name": 19, "bytea": 17,
}  # fmt: skip
FULL = 0x7FFF << 16
DAY = 8 << 16


def numeric(precision: int, scale: int) -> int:
    return (precision << 16 | scale & 0x7FF) + 4


def of(name: str, typmod: int = -1) -> Column:
    found = builtin_type(OIDS[name])
    assert found is not None
    return Column("c", 1, found, typmod)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (of("int2"), of("int4"), WIDER),
        (of("int2"), of("int8"), WIDER),
        (of("int4"), of("int8"), WIDER),
        (of("int8"), of("int4"), OTHER),
        (of("int4"), of("oid"), OTHER),
        (of("int4"), of("numeric", numeric(38, 0)), OTHER),
        (of("int4"), of("text"), OTHER),
        (of("float4"), of("float8"), WIDER),
        (of("float8"), of("float4"), OTHER),
        (of("int4"), of("float8"), OTHER),
        (of("numeric", numeric(10, 2)), of("numeric", numeric(12, 2)), WIDER),
        (of("numeric", numeric(10, 2)), of("numeric", numeric(38, 2)), WIDER),
        (of("numeric", numeric(10, 2)), of("numeric", numeric(39, 2)), OTHER),
        (of("numeric", numeric(12, 2)), of("numeric", numeric(10, 2)), OTHER),
        (of("numeric", numeric(10, 2)), of("numeric", numeric(12, 4)), OTHER),
        (of("numeric", numeric(10, 2)), of("numeric"), OTHER),
        (of("numeric"), of("numeric", numeric(10, 2)), OTHER),
        (of("numeric", numeric(40, 2)), of("numeric", numeric(50, 2)), SAME),
        (of("numeric", numeric(3, -2)), of("numeric", numeric(5, -2)), SAME),
        (of("numeric", numeric(3, 5)), of("numeric", numeric(4, 5)), SAME),
        (of("numeric", numeric(3, 5)), of("numeric", numeric(5, 5)), OTHER),
        (of("varchar", 14), of("varchar", 24), SAME),
        (of("varchar", 14), of("varchar"), SAME),
        (of("varchar", 14), of("text"), SAME),
        (of("varchar"), of("text"), SAME),
        (of("text"), of("varchar"), SAME),
        (of("text"), of("varchar", 14), OTHER),
        (of("varchar"), of("varchar", 14), OTHER),
        (of("varchar", 24), of("varchar", 14), OTHER),
        (of("bpchar", 14), of("bpchar", 24), OTHER),
        (of("bpchar", 14), of("text"), OTHER),
        (of("text"), of("bpchar", 14), OTHER),
        (of("name"), of("text"), OTHER),
        (of("timestamp", 3), of("timestamp", 6), SAME),
        (of("timestamp", 3), of("timestamp"), SAME),
        (of("timestamp"), of("timestamp", 6), SAME),
        (of("timestamp"), of("timestamp", 5), OTHER),
        (of("timestamp", 6), of("timestamp", 3), OTHER),
        (of("timestamp"), of("timestamptz"), OTHER),
        (of("timestamptz", 0), of("timestamptz"), SAME),
        (of("time", 0), of("time", 3), SAME),
        (of("timetz", 3), of("timetz", 0), OTHER),
        (of("date"), of("timestamp"), OTHER),
        (of("interval", FULL | 3), of("interval", FULL | 6), SAME),
        (of("interval", FULL | 3), of("interval"), SAME),
        (of("interval", DAY | 0xFFFF), of("interval"), SAME),
        (of("interval", DAY | 0xFFFF), of("interval", FULL | 3), OTHER),
        (of("interval"), of("interval", DAY | 0xFFFF), OTHER),
        (of("interval", FULL | 6), of("interval", FULL | 3), OTHER),
        (of("varbit", 3), of("varbit", 5), SAME),
        (of("varbit", 3), of("varbit"), SAME),
        (of("varbit"), of("varbit", 5), OTHER),
        (of("bit", 3), of("bit", 5), OTHER),
        (of("json"), of("jsonb"), OTHER),
        (of("json"), of("text"), OTHER),
        (of("varchar[]", 14), of("text[]"), SAME),
        (of("int4[]"), of("int8[]"), OTHER),
        (of("numeric[]", numeric(4, 1)), of("numeric[]", numeric(5, 1)), OTHER),
        (of("int4"), of("int4[]"), OTHER),
    ],
    ids=lambda value: f"{value.type.name}{value.typmod}" if isinstance(value, Column) else value.name,
)
def test_built_in_types(old: Column, new: Column, expected: TypeChange) -> None:
    assert type_change(old, new) is expected
    assert type_differs(old, new)


WIDENINGS = {
    (pa.int16(), pa.int32()), (pa.int16(), pa.int64()), (pa.int32(), pa.int64()), (pa.float32(), pa.float64()),
}  # fmt: skip


def test_what_is_stored_follows_the_registry() -> None:
    typmods = {
        "numeric": [-1, *(numeric(p, s) for p in (3, 5, 38, 39, 50) for s in (-2, 0, 2, 4))],
        "interval": [-1, FULL | 2, DAY | 0xFFFF],
    }
    columns = [of(name, typmod) for name in OIDS for typmod in typmods.get(name, [-1, 5, 9])]
    counted = {SAME: 0, WIDER: 0, OTHER: 0}
    for old, new in product(columns, columns):
        before, after = (conversion_for(c.type, c.typmod).arrow_type for c in (old, new))
        verdict = type_change(old, new)
        counted[verdict] += 1
        if verdict is SAME:
            assert before == after
        elif verdict is WIDER and pa.types.is_decimal(before):
            assert (before.scale, before.precision < after.precision) == (after.scale, True)
        elif verdict is WIDER:
            assert (before, after) in WIDENINGS
    assert min(counted.values()) > 10


MOOD = PgType(20_000, "mood", "public", "e", members=("sad", "ok"))


def moods(*labels: str, oid: int = 20_000) -> Column:
    return Column("c", 1, PgType(oid, "mood", "public", "e", members=labels))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (("sad", "ok"), SAME),
        (("sad", "ok", "happy"), SAME),
        (("grim", "sad", "meh", "ok"), SAME),
        (("sad", "fine"), OTHER),
        (("ok", "sad"), OTHER),
        (("sad",), OTHER),
    ],
)
def test_labels_of_an_enum_may_be_added_only(labels: tuple[str, ...], expected: TypeChange) -> None:
    assert type_change(moods("sad", "ok"), moods(*labels)) is expected
    arrays = [
        Column("c", 1, PgType(20_001, "_mood", "public", element=column.type))
        for column in (moods("sad", "ok"), moods(*labels))
    ]
    assert type_change(*arrays) is expected


def test_another_enum_is_another_type_and_so_is_its_text() -> None:
    assert type_change(moods("a"), moods("a", oid=20_009)) is OTHER
    assert type_change(moods("a"), of("text")) is OTHER


def domain(base: Column, oid: int = 20_002) -> Column:
    return Column("c", 1, PgType(oid, "d", "public", "d", base=base.type, base_typmod=base.typmod))


def test_a_domain_is_its_base() -> None:
    price = of("numeric", numeric(8, 3))
    assert type_change(domain(price), price) is SAME
    assert type_change(price, domain(price)) is SAME
    assert type_change(domain(price), domain(domain(price), 20_003)) is SAME
    assert type_change(domain(price), of("numeric", numeric(9, 3))) is WIDER
    assert type_change(domain(price), of("text")) is OTHER
    assert type_differs(domain(price), price)


def test_a_composite_whose_attributes_change_prints_otherwise() -> None:
    def pair(*members: str) -> Column:
        return Column("c", 1, PgType(20_004, "pair", "public", "c", members=members))

    assert type_change(pair("x 23 -1"), pair("x 23 -1")) is SAME
    assert type_change(pair("x 23 -1"), pair("x 23 -1", "y 23 -1")) is OTHER
    # A renamed attribute looks like one dropped and another added.
    assert type_change(pair("x 23 -1"), pair("z 23 -1")) is OTHER


def test_the_name_of_a_type_makes_no_difference_unless_it_is_known_by_it() -> None:
    renamed = Column("c", 1, PgType(20_000, "feeling", "other", "e", members=("sad", "ok")))
    assert not type_differs(moods("sad", "ok"), renamed)
    hstore = Column("c", 1, PgType(20_005, "hstore", "public"))
    assert type_differs(hstore, Column("c", 1, PgType(20_005, "pairs", "public")))


def test_the_same_oid_with_another_kind_is_another_type() -> None:
    assert type_change(moods("a"), Column("c", 1, PgType(20_000, "mood", "public", "c", members=("a",)))) is OTHER


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (of("int4"), "integer"),
        (of("numeric", numeric(10, 2)), "numeric(10,2)"),
        (of("numeric", numeric(3, -2)), "numeric(3,-2)"),
        (of("varchar", 14), "varchar(10)"),
        (of("bpchar", 5), "char(1)"),
        (of("varchar[]", 14), "varchar(10)[]"),
        (of("timestamp", 3), "timestamp(3)"),
        (of("bit", 3), "bit(3)"),
        (of("interval", FULL | 3), "interval"),
        (of("point"), "point"),
        (moods("a"), "mood"),
        (Column("c", 1, PgType(20_000, "mood", "other", "e")), "other.mood"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_types_as_one_writes_them(column: Column, text: str) -> None:
    assert type_text(column) == text
