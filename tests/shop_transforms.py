"""Functions for the setting `transform`, as a user would write them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headrace.destinations.transforms import TransformTable

__all__ = ["failing", "keyless", "people", "same", "shown"]


def people(batch: pa.RecordBatch, table: TransformTable) -> pa.RecordBatch:
    """Columns computed in place, added, renamed, dropped and moved; the biography may not have been sent."""
    arrays = {
        "person": batch["id"],
        "email": pc.utf8_lower(batch["email"]),
        "initial": pc.binary_join_element_wise(pc.utf8_slice_codeunits(batch["name"], 0, 1), ".", ""),
        "age": batch["age"],
        "known_as": pc.binary_join_element_wise(batch["name"], batch["region"], " of ", null_handling="skip"),
        "yearly": pc.multiply(batch["salary"], pa.scalar(12, pa.int32())).cast(pa.decimal128(12, 2)),
        "year": pc.year(batch["born"]).cast(pa.int32()),
        "ages": pa.FixedSizeListArray.from_arrays(pc.take(batch["age"], _twice(len(batch))), 2).cast(
            pa.list_(pa.int32())
        ),
        "born": batch["born"],
        "seen": batch["seen"],
        "origin": pa.repeat(str(table), len(batch)),
    }
    if "bio" in batch.schema.names:
        arrays |= {"bio_length": pc.utf8_length(batch["bio"]), "bio": batch["bio"]}
    return pa.RecordBatch.from_pydict(arrays)


def _twice(count: int) -> pa.Int64Array:
    return pc.divide(pa.array(range(2 * count), pa.int64()), 2)


def shown(batch: pa.RecordBatch, table: TransformTable) -> pa.RecordBatch:
    """It has what a destination may have, and no more."""
    assert {"phone", "hint"}.isdisjoint({*batch.schema.names, *table.columns}), table.columns
    known = pc.binary_join_element_wise(batch["email"], batch["note"], " ", null_handling="skip")
    return batch.append_column("known_by", known)


def keyless(batch: pa.RecordBatch, _: TransformTable) -> pa.RecordBatch:
    upper = batch.set_column(0, "word", pc.utf8_upper(batch["word"]))
    return upper.append_column("twice", pc.multiply(batch["n"], pa.scalar(2, batch["n"].type)))


def same(batch: pa.RecordBatch, _: TransformTable) -> pa.RecordBatch:
    return batch


def failing(batch: pa.RecordBatch, _: TransformTable) -> pa.RecordBatch:
    """Fails for rows that it does not expect, with their values in the message."""
    for number, word in zip(batch["n"].to_pylist(), batch["word"].to_pylist(), strict=True):
        if number is not None and number > 100:
            raise ValueError(f"no such word: {word}")
    return batch.append_column("length", pc.utf8_length(batch["word"]))
