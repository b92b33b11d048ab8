"""AWS Glue on loopback, as far as Iceberg uses it: databases and tables in memory, with versions that must match."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

__all__ = ["GlueServer"]

Answer = dict[str, Any]


class _Refused(Exception):
    """Glue's way to say no: the name of its exception, and a message."""


class GlueServer:
    """`with GlueServer() as glue:` then `glue.endpoint`, and `glue.location("database.table")` of the metadata."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._databases: dict[str, Answer] = {}
        self._tables: dict[tuple[str, str], Answer] = {}
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"glue": self}))
        self._thread = threading.Thread(target=self._http.serve_forever, name="glue")

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> GlueServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def location(self, name: str) -> str:
        """Of a table's current metadata. Raises KeyError for a table that is not there."""
        database, table = name.split(".")
        with self._lock:
            return str(self._tables[database, table]["Parameters"]["metadata_location"])

    def answer(self, operation: str, asked: Answer) -> Answer:
        with self._lock:
            return dict(getattr(self, f"_{operation}")(asked))

    def _CreateDatabase(self, asked: Answer) -> Answer:
        name = asked["DatabaseInput"]["Name"]
        if name in self._databases:
            raise _Refused("AlreadyExistsException", f"database {name} exists")
        self._databases[name] = asked["DatabaseInput"]
        return {}

    def _GetDatabase(self, asked: Answer) -> Answer:
        return {"Database": self._database(asked["Name"])}

    def _GetDatabases(self, _: Answer) -> Answer:
        return {"DatabaseList": list(self._databases.values())}

    def _GetTables(self, asked: Answer) -> Answer:
        self._database(asked["DatabaseName"])
        return {"TableList": [table for (name, _), table in self._tables.items() if name == asked["DatabaseName"]]}

    def _GetTable(self, asked: Answer) -> Answer:
        return {"Table": self._table(asked["DatabaseName"], asked["Name"])}

    def _CreateTable(self, asked: Answer) -> Answer:
        database, table = asked["DatabaseName"], asked["TableInput"]
        self._database(database)
        if (database, table["Name"]) in self._tables:
            raise _Refused("AlreadyExistsException", f"table {table['Name']} exists")
        self._tables[database, table["Name"]] = {**table, "DatabaseName": database, "VersionId": "0"}
        return {}

    def _UpdateTable(self, asked: Answer) -> Answer:
        database, table = asked["DatabaseName"], asked["TableInput"]
        version = self._table(database, table["Name"])["VersionId"]
        if asked.get("VersionId", version) != version:
            raise _Refused("ConcurrentModificationException", f"table {table['Name']} is at version {version}")
        self._tables[database, table["Name"]] = {
            **table,
            "DatabaseName": database,
            "VersionId": str(int(version) + 1),
        }
        return {}

    def _DeleteTable(self, asked: Answer) -> Answer:
        self._table(asked["DatabaseName"], asked["Name"])
        del self._tables[asked["DatabaseName"], asked["Name"]]
        return {}

    def _database(self, name: str) -> Answer:
        if name not in self._databases:
            raise _Refused("EntityNotFoundException", f"no database {name}")
        return self._databases[name]

    def _table(self, database: str, name: str) -> Answer:
        if (database, name) not in self._tables:
            raise _Refused("EntityNotFoundException", f"no table {database}.{name}")
        return self._tables[database, name]


class _Handler(BaseHTTPRequestHandler):
    """AWS's JSON protocol 1.1: the operation is in a header."""

    glue: ClassVar[GlueServer]
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        operation = self.headers["X-Amz-Target"].removeprefix("AWSGlue.")
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            status, answer = 200, self.glue.answer(operation, asked)
        except _Refused as refused:
            kind, message = refused.args
            status, answer = 400, {"__type": kind, "Message": message}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""
