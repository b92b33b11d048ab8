"""Takes up what operators ask for in the store, from other processes: copy a table again, roll one back."""

from __future__ import annotations

import time

import structlog

from ..errors import HeadraceError, StoreIoError
from ..stores.requests import RequestKind, RequestStore, TableRequest
from .tables import Table, Tables

__all__ = ["Requests"]

_INTERVAL_S = 1.0

_log = structlog.get_logger("headrace.requests")


class Requests:
    """`look` is called again and again by one thread. A request leaves the store once it is done, so none is lost."""

    def __init__(self, store: RequestStore, tables: Tables) -> None:
        self._store = store
        self._tables = tables
        self._due = 0.0
        self._under_way: dict[TableRequest, Table] = {}
        """Tables that are to start over, and do as soon as nobody works on them."""

    def look(self) -> None:
        """About once a second: begin what is new, withdraw what is done. Raises StoreIoError."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + _INTERVAL_S
        asked = self._store.get_requests()
        for request, table in list(self._under_way.items()):
            if not table.resync_asked:
                self._store.withdraw_request(request)
                del self._under_way[request]
                asked = [other for other in asked if other != request]
        for request in asked:
            if request not in self._under_way:
                self._take_up(request)

    def _take_up(self, request: TableRequest) -> None:
        table = next((table for table in self._tables.all() if table.id == request.table_id), None)
        if table is None:
            _log.warning("no such table: the request is dropped", request=request.kind.value, table_id=request.table_id)
            self._store.withdraw_request(request)
        elif request.kind is RequestKind.ROLLBACK:
            self._roll_back(request, table)
        else:
            _log.info("asked to copy the table again", request=request.kind.value, table=table.name)
            table.resync_asked = True
            self._under_way[request] = table

    def _roll_back(self, request: TableRequest, table: Table) -> None:
        try:
            self._tables.roll_back(table)
        except StoreIoError:
            raise
        except HeadraceError as error:
            _log.warning("the table is not rolled back", table=table.name, error=str(error), hint=error.hint)
        else:
            _log.info("asked to try the table again", table=table.name, state=table.state.state.value)
        self._store.withdraw_request(request)
