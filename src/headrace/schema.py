"""What a published table looks like: its identity, its columns, and which of them travel.

Everything here is a frozen value read once from the catalog (see `postgres.catalog`), picklable, and free of any
connection, so that it can be handed to a Spark task.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum

__all__ = [
    "DDL_PREFIX",
    "NO_TABLE",
    "OWN_SCHEMA",
    "PUBLICATION_PREFIX",
    "Column",
    "PgType",
    "ReplicaIdentity",
    "ReplicatedTableSchema",
    "ReplicationMask",
    "TableName",
    "TableSchema",
    "quote_identifier",
]

OWN_SCHEMA = "headrace"
"""The Postgres schema that belongs to us, at the source or elsewhere. Nothing in it is ever replicated."""

DDL_PREFIX = f"{OWN_SCHEMA}.ddl."
"""How the prefix of a logical message begins that our event trigger sent; the table's OID follows."""

PUBLICATION_PREFIX = f"{OWN_SCHEMA}.publication"
"""The prefix of what it sends about publications."""

NO_TABLE = 0
"""Postgres's InvalidOid: the OID that no table has."""


def quote_identifier(name: str) -> str:
    """Quote a name for SQL, always, so that case, spaces and reserved words are safe."""
    if "\0" in name:
        msg = "an identifier cannot contain a NUL character"
        raise ValueError(msg)
    return '"' + name.replace('"', '""') + '"'


class ReplicaIdentity(StrEnum):
    """What Postgres sends of the old row for UPDATE and DELETE; values are `pg_class.relreplident`."""

    DEFAULT = "d"
    FULL = "f"
    INDEX = "i"
    NOTHING = "n"


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A schema-qualified table name, unquoted."""

    schema: str
    name: str

    @property
    def quoted(self) -> str:
        return f"{quote_identifier(self.schema)}.{quote_identifier(self.name)}"

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class PgType:
    """A Postgres type with what is needed to decode its values away from the catalog.

    `kind` is `pg_type.typtype`: b(ase), c(omposite), d(omain), e(num), m(ultirange), p(seudo), r(ange).
    An array type has its `element`; a domain has its `base` and the typmod the domain gives it.
    """

    oid: int
    name: str
    schema: str = "pg_catalog"
    kind: str = "b"
    element: PgType | None = None
    base: PgType | None = None
    base_typmod: int = -1
    delimiter: str = ","
    members: tuple[str, ...] = ()
    """An enum's labels, or a composite's attributes as name, type and typmod. When they change, old rows may print
    differently."""
    as_text: bool = False
    """Whether values are kept as Postgres's text although the type has a closer mapping: set for a column of a key that
    has values which its Arrow type cannot hold. The catalog never sets it."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column as `pg_attribute` has it. `attnum` identifies it through renames."""

    name: str
    attnum: int
    type: PgType
    typmod: int = -1
    nullable: bool = True
    default: str | None = None
    key_position: int | None = None
    """1-based position in the primary key, or None."""
    generated: bool = False
    """GENERATED ALWAYS AS … STORED; published only from Postgres 18 on, and only when the publication asks for it."""
    comment: str | None = field(default=None, compare=False)
    """Its COMMENT. Not compared: a comment makes no other schema, nor does pgoutput tell of one."""
    missing: str | None = field(default=None, compare=False)
    """The text of what rows older than the column show (`attmissingval`); None: NULL. Not compared: a rewrite of the
    table forgets it, and the rows stay as they are."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One version of a table's definition. `id` is the table's OID."""

    id: int
    name: TableName
    columns: tuple[Column, ...]
    replica_identity: ReplicaIdentity = ReplicaIdentity.DEFAULT
    identity_attnums: tuple[int, ...] = ()
    """Columns of the replica identity, in attnum order: the key, the index's columns, all (FULL), or none."""
    comment: str | None = field(default=None, compare=False)
    """Its COMMENT, when the catalog was read. Not compared, as a column's is not."""
    leaves: tuple[int, ...] = ()
    """OIDs of a partitioned table's leaf partitions, ascending: a leaf that comes or goes brings or takes its rows."""
    natts: int = field(default=0, compare=False)
    """`pg_class.relnatts`: how many columns it has ever had. 0: not known. Not compared: it makes no other rows."""
    storage: int = field(default=0, compare=False)
    """`pg_class.relfilenode`: another one means that the rows were written anew. 0: not known, or it has no rows of its
    own. Not compared, as VACUUM FULL changes it too."""

    def __post_init__(self) -> None:
        if len({column.attnum for column in self.columns}) != len(self.columns):
            msg = f"table {self.name} has two columns with one attnum"
            raise ValueError(msg)

    @property
    def key(self) -> tuple[Column, ...]:
        """The primary key's columns, in key order; empty for a table without one."""
        keyed = [column for column in self.columns if column.key_position is not None]
        return tuple(sorted(keyed, key=lambda column: column.key_position or 0))

    def with_text(self, attnums: Collection[int]) -> TableSchema:
        """Return the table with the values of these columns kept as text."""
        columns = (
            replace(column, type=replace(column.type, as_text=True)) if column.attnum in attnums else column
            for column in self.columns
        )
        return replace(self, columns=tuple(columns))

    def with_text_of(self, known: TableSchema) -> TableSchema:
        """Return the table, read from the catalog, with those columns as text that are text in a known version.

        A column whose type has changed since is not among them.
        """
        texts = {column.attnum: column for column in known.columns if column.type.as_text}
        same = {
            column.attnum
            for column in self.columns
            if column.attnum in texts
            and (column.type.oid, column.typmod) == (texts[column.attnum].type.oid, texts[column.attnum].typmod)
        }
        return self.with_text(same) if same else self

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        msg = f"table {self.name} has no column {name!r}"
        raise KeyError(msg)


@dataclass(frozen=True, slots=True)
class ReplicationMask:
    """Which columns of a schema version the publication sends, by attnum."""

    attnums: frozenset[int]

    @classmethod
    def everything(cls, schema: TableSchema) -> ReplicationMask:
        return cls(frozenset(column.attnum for column in schema.columns))

    def __contains__(self, column: Column) -> bool:
        return column.attnum in self.attnums


@dataclass(frozen=True, slots=True)
class ReplicatedTableSchema:
    """A schema version as the publication shows it: what a destination creates and what an event carries."""

    table: TableSchema
    mask: ReplicationMask
    row_filter: str | None = None
    entries: tuple[int, ...] = ()
    """OIDs of the catalog rows that publish it, and which transactions wrote those that have none or are updated. Where
    they are others than at the copy, the table, its columns or rows were out of the publication in between, and changes
    may be missing."""
    leaf_files: tuple[tuple[int, int], ...] = ()
    """Leaf partitions, of a table that is published through its root, each with its file number in the lower 32 bits:
    a TRUNCATE of a leaf, which is not sent then, gives it another file. The upper ones are others once it, or what it
    is a partition of, has been attached anew."""
    listed: bool = False
    """The publication has a column list for it, which may name all there are: a column that is added is not sent."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The replicated columns, in table order."""
        return tuple(column for column in self.table.columns if column in self.mask)

    @property
    def identity(self) -> tuple[Column, ...]:
        """The replicated columns that identify a row in an UPDATE or DELETE."""
        return tuple(column for column in self.columns if column.attnum in self.table.identity_attnums)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """The replicated columns in which a destination needs a value: those of the primary key and, unless that is
        the whole row, of the replica identity.
        """
        full = self.table.replica_identity is ReplicaIdentity.FULL
        identity = () if full else self.table.identity_attnums
        return tuple(c for c in self.columns if c.key_position is not None or c.attnum in identity)

    @property
    def found_by(self) -> tuple[Column, ...]:
        """The columns by which a row is found: the key's, where every change has them; else all that identify it.

        A destination may have columns that nothing fills any more. They are not among these: rows from before still
        have values in them.
        """
        key, identity = self.table.key, self.identity
        return key if key and all(column in identity for column in key) else identity
