"""A TCP proxy on loopback that misbehaves on demand: cut connections, refuse new ones, or let nothing through."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from enum import Enum

__all__ = ["Loss", "TcpProxy"]

_BUFFER = 64 * 1024


class Loss(Enum):
    """When the network goes away around a request."""

    REQUEST = "before the request reaches the server"
    ANSWER = "after the request reached the server, before its answer arrives"
    NEXT = "after the answer: every later request is refused"


class TcpProxy:
    """Forwards to a port of this machine. `cut` drops what is open; `refuse` and `stall` last until `heal`."""

    def __init__(self, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._peers: dict[socket.socket, socket.socket] = {}
        self._lock = threading.RLock()
        self._refusing = self._stalled = self._closed = False
        self._loss: tuple[Loss, bytes] | None = None
        self._losing: dict[socket.socket, Loss] = {}
        self.lost = 0
        """How many requests met the loss that `lose` asked for."""
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()

    def __enter__(self) -> TcpProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self._thread.join()
        self.cut()
        self._listener.close()
        self._selector.close()

    def cut(self) -> None:
        """Drop every open connection, as a network that went away does."""
        with self._lock:
            for one in list(self._peers):
                self._drop(one)

    def refuse(self) -> None:
        """Drop everything, and every new connection too."""
        self._refusing = True
        self.cut()

    def stall(self) -> None:
        """Keep connections open, but forward nothing."""
        self._stalled = True

    def retarget(self, target_port: int) -> None:
        """Drop every open connection and forward new ones to another port, as an address that moves to a standby."""
        with self._lock:
            self._target = ("127.0.0.1", target_port)
            self.cut()

    def lose(self, loss: Loss, request: bytes) -> None:
        """Have the network go away around the next request that contains `request`, once."""
        with self._lock:
            self._loss = loss, request

    def heal(self) -> None:
        self._refusing = self._stalled = False

    def _run(self) -> None:
        while not self._closed:
            for key, _ in self._selector.select(0.05):
                with self._lock:
                    if key.fileobj is self._listener:
                        self._accept()
                    elif not self._stalled:
                        self._forward(key.fileobj)  # type: ignore[arg-type]
            if self._stalled:
                threading.Event().wait(0.02)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if self._refusing:
            client.close()
            return
        try:
            server = socket.create_connection(self._target)
        except OSError:
            # Nobody listens there: so the client finds it, too.
            client.close()
            return
        for one, other in ((client, server), (server, client)):
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _forward(self, source: socket.socket) -> None:
        target = self._peers.get(source)
        if target is None:
            return
        data = b""
        with contextlib.suppress(OSError):
            data = source.recv(_BUFFER)
            if self._is_lost(source, target, data):
                self._drop(source)
                return
            target.sendall(data)
        if not data:
            self._drop(source)
        elif self._losing.get(source) is Loss.NEXT:
            # The answer came whole: those of tests are small.
            del self._losing[source]
            self.refuse()

    def _is_lost(self, source: socket.socket, target: socket.socket, data: bytes) -> bool:
        """Whether what was read is to be dropped with its connection. Servers are the sockets in `_losing`."""
        if self._losing.get(source) is Loss.ANSWER:
            del self._losing[source]
            return True
        if self._loss is None or self._loss[1] not in data:
            return False
        (loss, _), self._loss = self._loss, None
        self.lost += 1
        if loss is not Loss.REQUEST:
            self._losing[target] = loss
        return loss is Loss.REQUEST

    def _drop(self, one: socket.socket) -> None:
        other = self._peers.pop(one, None)
        for each in filter(None, (one, other)):
            self._peers.pop(each, None)
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(each)
            each.close()
