"""pgoutput: the messages of Postgres's logical replication, one by one and by columns. Bytes in, values out."""
