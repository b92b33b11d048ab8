"""A TPC-C-like backlog: changes of new-order and payment transactions, waiting in WAL behind many slots."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import psycopg

from headrace.lsn import Lsn
from headrace.testing import PostgresServer

TABLES = """
CREATE TABLE customer (
  c_id int, c_d_id int, c_w_id int, c_first varchar(16), c_middle char(2), c_last varchar(16), c_street_1 varchar(20),
  c_street_2 varchar(20), c_city varchar(20), c_state char(2), c_zip char(9), c_phone char(16), c_since timestamptz,
  c_credit char(2), c_credit_lim numeric(12,2), c_discount numeric(4,4), c_balance numeric(12,2),
  c_ytd_payment numeric(12,2), c_payment_cnt int, c_delivery_cnt int, c_data varchar(500),
  PRIMARY KEY (c_w_id, c_d_id, c_id));
CREATE TABLE stock (
  s_i_id int, s_w_id int, s_quantity int, s_dist_01 char(24), s_dist_02 char(24), s_dist_03 char(24),
  s_dist_04 char(24), s_dist_05 char(24), s_dist_06 char(24), s_dist_07 char(24), s_dist_08 char(24),
  s_dist_09 char(24), s_dist_10 char(24),
  s_ytd numeric(8,0), s_order_cnt int, s_remote_cnt int, s_data varchar(50), PRIMARY KEY (s_w_id, s_i_id));
CREATE TABLE order_line (
  ol_o_id int, ol_d_id int, ol_w_id int, ol_number int, ol_i_id int, ol_supply_w_id int, ol_delivery_d timestamptz,
  ol_quantity int, ol_amount numeric(6,2), ol_dist_info char(24), PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number));
"""
SCHEMA = (
    TABLES
    + """
CREATE PUBLICATION bench FOR ALL TABLES;
INSERT INTO customer SELECT i, i % 10, 1, 'first' || i, 'OE', 'BARBARBAR', 'street one', 'street two', 'city', 'ST',
  '123456789', '0123456789012345', now(), 'GC', 50000, 0.1234, -10, 10, 1, 0, repeat('customer data ', 35)
  FROM generate_series(1, 3000) i;
INSERT INTO stock SELECT i, 1, 50, d, d, d, d, d, d, d, d, d, d, 0, 0, 0, repeat('s', 40)
  FROM generate_series(1, 10000) i, (SELECT repeat('d', 24) AS d) x;
-- One new order: ten lines inserted and ten stock rows updated; one payment: a customer updated.
CREATE PROCEDURE load(transactions int) LANGUAGE plpgsql AS $$
BEGIN
  FOR t IN 1..transactions LOOP
    INSERT INTO order_line SELECT t, t % 10, 1, n, (t * 7 + n) % 10000 + 1, 1, NULL, 5, 123.45, repeat('o', 24)
      FROM generate_series(1, 10) n;
    UPDATE stock SET s_quantity = s_quantity - 1, s_ytd = s_ytd + 5, s_order_cnt = s_order_cnt + 1
      WHERE s_w_id = 1 AND s_i_id BETWEEN (t * 10) % 9990 + 1 AND (t * 10) % 9990 + 10;
    UPDATE customer SET c_balance = c_balance - 1, c_ytd_payment = c_ytd_payment + 1, c_payment_cnt = c_payment_cnt + 1
      WHERE c_w_id = 1 AND c_id = t % 3000 + 1 AND c_d_id = (t % 3000 + 1) % 10;
    COMMIT;
  END LOOP;
END $$;
"""
)
CHANGES_PER_TRANSACTION = 21


@contextlib.contextmanager
def backlog(
    changes: int, slots: list[str], version: int = 17, *, before_load: Callable[[str], None] = lambda conninfo: None
) -> Iterator[tuple[PostgresServer, str, Lsn]]:
    """A server with that many changes waiting behind each slot; also its conninfo and where the backlog ends.

    `before_load` finds the tables as they are where the slots begin.
    """
    settings = {"max_wal_size": "16GB", "synchronous_commit": "off", "shared_buffers": "512MB"}
    with (
        PostgresServer(version, settings=settings) as server,
        server.database("bench") as conninfo,
        psycopg.connect(conninfo, autocommit=True) as connection,
    ):
        connection.execute(SCHEMA)
        for slot in slots:
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
        before_load(conninfo)
        connection.execute(f"CALL load({changes // CHANGES_PER_TRANSACTION})")
        # Flushed WAL only is decoded, and the load committed asynchronously; a switch flushes it all. An unlogged table
        # is part of no publication.
        connection.execute("SELECT pg_switch_wal()")
        connection.execute("SET synchronous_commit = on; CREATE UNLOGGED TABLE flushed ()")
        row = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        assert row is not None
        yield server, conninfo, Lsn.parse(row[0])
