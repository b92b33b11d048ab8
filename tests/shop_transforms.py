"""Functions for the setting `transform`, as a user would write them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headrace.schema import TableName

__all__ = ["counted", "keyless", "people", "same", "shown"]


def people(df: DataFrame, table: TableName) -> DataFrame:
    """Columns computed in place, added, renamed, dropped and moved; one by a function in Python."""

    # Without hints, by which Spark would look for a function of whole columns.
    @sf.udf("string")
    def initial(name):  # type: ignore[no-untyped-def]
        return None if not name else name[0] + "."

    return df.select(
        sf.col("id").alias("person"),
        sf.lower("email").alias("email"),
        initial("name").alias("initial"),
        "age",
        sf.concat_ws(" of ", "name", "region").alias("known_as"),
        (sf.col("salary") * 12).cast("decimal(12,2)").alias("yearly"),
        sf.year("born").alias("year"),
        sf.array("age", "age").alias("ages"),
        sf.length("bio").alias("bio_length"),
        "bio",
        "born",
        "seen",
        sf.lit(str(table)).alias("origin"),
    )


def shown(df: DataFrame, _: TableName) -> DataFrame:
    """It has what a destination may have, and no more."""
    assert {"phone", "hint"}.isdisjoint(df.columns), df.columns
    return df.withColumn("known_by", sf.concat_ws(" ", "email", "note"))


def keyless(df: DataFrame, _: TableName) -> DataFrame:
    return df.withColumn("word", sf.upper("word")).withColumn("twice", sf.col("n") * 2)


def same(df: DataFrame, _: TableName) -> DataFrame:
    return df


def counted(df: DataFrame, _: TableName) -> DataFrame:
    return df.groupBy("id").count()
