"""Settings of transforms: what is left out, masked or changed between the source and every destination."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, SecretStr, model_validator

from .form import Form
from .references import named_function
from .section import Section
from .table_destination import SourceTable

__all__ = ["ColumnTransformsConfig", "MaskConfig", "MaskKind", "TableTransformsConfig", "TransformsConfig"]

_REFERENCE = Form(
    r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", "must name a function as module:function, such as my_transforms:clean"
)


_SALT_BYTES = 16


class MaskKind(StrEnum):
    """What stands in a masked column."""

    NULL = "null"
    FIXED = "fixed"
    HASH = "hash"


class MaskConfig(Section):
    """How one column is masked."""

    kind: MaskKind = Field(
        description='"null" (in quotes): nothing; fixed: `value`, in every row; hash: the HMAC-SHA-256 of domain and '
        "value under the salt, as 64 hexadecimal digits, equal for equal values, so that rows can still be joined.",
    )
    value: str | None = Field(
        default=None, description="With kind fixed: the value, as Postgres would print it. Default none."
    )

    domain: str | None = Field(
        default=None,
        min_length=1,
        description="With kind hash: what enters the hash beside the value. Columns with one domain have equal hashes "
        "for equal values, so give joined columns of different names the same one. Default: the column's name.",
    )

    @model_validator(mode="after")
    def _domain_of_a_hash(self) -> MaskConfig:
        if self.domain is not None and self.kind is not MaskKind.HASH:
            msg = "domain belongs to kind hash"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _value_of_a_fixed_one(self) -> MaskConfig:
        if (self.value is None) is (self.kind is MaskKind.FIXED):
            msg = "value belongs to kind fixed, and must be given there"
            raise ValueError(msg)
        return self


class ColumnTransformsConfig(Section):
    """What happens to single columns of a table."""

    exclude: tuple[str, ...] = Field(
        default=(), description="Columns that no destination gets. Columns of the key must stay. Default none."
    )
    mask: Mapping[str, MaskConfig] = Field(
        default={}, description="Columns whose values no destination gets, and what it gets instead. Default none."
    )

    @model_validator(mode="after")
    def _once(self) -> ColumnTransformsConfig:
        both = sorted(set(self.exclude) & set(self.mask))
        if both:
            msg = f"{', '.join(both)} is excluded and masked: choose one"
            raise ValueError(msg)
        return self


class TableTransformsConfig(Section):
    """What happens to one table."""

    columns: ColumnTransformsConfig = Field(
        default=ColumnTransformsConfig(), description="What happens to its columns."
    )
    filter: str | None = Field(
        default=None,
        min_length=1,
        description="Which rows go on: a condition in SQL over the source's columns, masked and excluded ones too, as "
        "DuckDB has it: `region = 'EU' AND total > 0`. Default none: all.",
    )

    transform: Annotated[str | None, _REFERENCE] = Field(
        default=None,
        description="A Python function that changes columns, row by row, as `module:function`. It is called with a "
        "pyarrow.RecordBatch of what the other settings leave, and the table, and returns the RecordBatch to write. "
        "Default none.",
    )

    def function(self) -> Callable[..., Any]:
        """What `transform` names. Raises ConfigError if it is not there."""
        return named_function(str(self.transform), f"the transform {self.transform}")

    @property
    def in_words(self) -> bool:
        """Whether anything is set but the function."""
        return bool(self.columns.exclude or self.columns.mask or self.filter)

    @property
    def needs_sql(self) -> bool:
        """Whether DuckDB is needed for it."""
        return self.filter is not None or any(m.kind is MaskKind.HASH for m in self.columns.mask.values())


class TransformsConfig(Section):
    """What is left out, masked or filtered before any destination sees it: in the initial copy and in the stream."""

    salt: SecretStr | None = Field(
        default=None,
        description="The secret key of hashes, at least 16 bytes; required where a column is hashed. Set it in the "
        "environment, as HEADRACE__TRANSFORMS__SALT: whoever knows it can try out values. Another salt makes "
        "other hashes: resync the tables.",
    )
    tables: Mapping[SourceTable, TableTransformsConfig] = Field(
        default={}, description="What happens to single tables, by their name at the source, as schema.table."
    )

    @model_validator(mode="after")
    def _salted(self) -> TransformsConfig:
        hashed = [
            name
            for name, table in self.tables.items()
            if any(mask.kind is MaskKind.HASH for mask in table.columns.mask.values())
        ]
        if hashed and self.salt is None:
            msg = f"salt is missing: {', '.join(hashed)} has columns that are hashed"
            raise ValueError(msg)
        if hashed and self.salt is not None and len(self.salt.get_secret_value().encode()) < _SALT_BYTES:
            msg = f"salt is too short: it must have at least {_SALT_BYTES} bytes, such as `openssl rand -hex 16` prints"
            raise ValueError(msg)
        return self
