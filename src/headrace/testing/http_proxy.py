"""An HTTP proxy on loopback that misbehaves on demand, in front of an object store or a catalog.

Requests and answers pass through it byte for byte, the Host header and with it every signature included. A fault takes
the place of that for the requests it is meant for:

    with S3Server() as s3, HttpProxy(s3.port) as proxy:
        with proxy.misbehaving(answered(503), uploads):
            ...
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import re
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

__all__ = [
    "Answer",
    "Exchange",
    "Fault",
    "HttpProxy",
    "Matcher",
    "Request",
    "answer_lost",
    "answered",
    "anything",
    "carried_out_late",
    "connection_reset",
    "listings",
    "s3_error",
    "slow",
    "stale_listings",
    "upload_cut",
    "uploads",
]

_TIMEOUT_S = 60.0
# These two concern one connection only; the proxy has its own to either side.
_OF_ONE_CONNECTION = frozenset({"connection", "keep-alive", "expect", "transfer-encoding"})


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    target: str
    """Path and query."""
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


class Exchange:
    """One request on its way, and what a fault can do with it."""

    def __init__(self, request: Request, handler: _Handler, proxy: HttpProxy) -> None:
        self.request, self.proxy, self._handler = request, proxy, handler

    def forward(self, share: float = 1.0) -> Answer | None:
        """Send the request to the server. Of one sent in part there is no answer: its connection is closed."""
        request = self.request
        connection = http.client.HTTPConnection("127.0.0.1", self.proxy.target_port, timeout=_TIMEOUT_S)
        with contextlib.closing(connection):
            connection.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers:
                connection.putheader(name, value)
            connection.endheaders()
            connection.send(request.body[: int(len(request.body) * share)])
            if share < 1:
                return None
            response = connection.getresponse()
            body = response.read()
            kept = tuple((name, value) for name, value in response.getheaders() if name.lower() != "content-length")
            length = response.getheader("Content-Length") if request.method == "HEAD" else str(len(body))
            return Answer(response.status, (*kept, ("Content-Length", length or "0")), body)

    def reply(self, answer: Answer) -> None:
        self._handler.reply(answer)

    def reset(self) -> None:
        """Drop the client's connection with a reset."""
        self._handler.reset()

    def pass_on(self) -> None:
        answer = self.forward()
        assert answer is not None
        self.proxy.remember(self.request, answer)
        self.reply(answer)


Fault = Callable[[Exchange], None]
Matcher = Callable[[Request], bool]


def anything(_: Request) -> bool:
    return True


def uploads(request: Request) -> bool:
    """Match every request that brings an object, or a part of one, to an object store."""
    return request.method in ("PUT", "POST") and "delete" not in request.target.partition("?")[2]


def listings(request: Request) -> bool:
    """Match every request for the names of objects."""
    return request.method == "GET" and re.search(r"[?&](list-type|prefix|delimiter)=", request.target) is not None


def answered(status: int, body: bytes = b"", *, carried_out: bool = False, content_type: str = "text/plain") -> Fault:
    """Answer by a status of the proxy's own; `carried_out`: although the server has done what was asked for."""

    def fault(exchange: Exchange) -> None:
        if carried_out:
            exchange.forward()
        headers = (("Content-Type", content_type), ("Content-Length", str(len(body))))
        exchange.reply(Answer(status, headers, b"" if exchange.request.method == "HEAD" else body))

    return fault


def s3_error(status: int, code: str, message: str = "as the test asked for") -> Fault:
    """Answer an error as S3 words it."""
    text = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'
    return answered(status, text.encode(), content_type="application/xml")


def connection_reset(exchange: Exchange) -> None:
    """Drop the connection before anything reaches the server."""
    exchange.reset()


def answer_lost(exchange: Exchange) -> None:
    """Have the server do what was asked for, and drop the connection."""
    exchange.forward()
    exchange.reset()


def upload_cut(exchange: Exchange) -> None:
    """Drop both connections in the middle of the request's body."""
    exchange.forward(0.5)
    exchange.reset()


def carried_out_late(due: threading.Event) -> Fault:
    """Answer 504 at once, and send the request to the server when the event is set."""

    def fault(exchange: Exchange) -> None:
        def later() -> None:
            due.wait(_TIMEOUT_S)
            exchange.forward()

        exchange.proxy.run(later)
        answered(504)(exchange)

    return fault


def slow(seconds: float) -> Fault:
    """Answer every request that much later."""

    def fault(exchange: Exchange) -> None:
        exchange.proxy.closing.wait(seconds)
        exchange.pass_on()

    return fault


def stale_listings(proxy: HttpProxy) -> Fault:
    """Answer listings as they were answered last before now; one that nobody asked for before passes."""
    before = proxy.remembered()

    def fault(exchange: Exchange) -> None:
        known = before.get(exchange.request.target)
        if known is None:
            exchange.pass_on()
        else:
            exchange.reply(known)

    return fault


class HttpProxy:
    """Forwards to a port of this machine; `misbehaving` puts a fault in the way of some requests."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.closing = threading.Event()
        self.met = 0
        """How many requests met a fault."""
        self._lock = threading.Lock()
        self._fault: tuple[Fault, Matcher] | None = None
        self._left = 0
        self._listings: dict[str, Answer] = {}
        self._later: list[threading.Thread] = []
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="http proxy", daemon=True)

    def __enter__(self) -> HttpProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        for thread in self._later:
            thread.join(_TIMEOUT_S)
        self._server.drop_all()
        self._server.server_close()

    @contextlib.contextmanager
    def misbehaving(self, fault: Fault, matches: Matcher = anything, times: int = 1 << 30) -> Iterator[None]:
        """Have up to `times` matching requests meet a fault, until the block ends."""
        with self._lock:
            self._fault, self._left = (fault, matches), times
        try:
            yield
        finally:
            with self._lock:
                self._fault = None

    def remember(self, request: Request, answer: Answer) -> None:
        if listings(request) and answer.status == http.HTTPStatus.OK:
            self._listings[request.target] = answer

    def remembered(self) -> Mapping[str, Answer]:
        """Return the most recent response to each listing request, keyed by the request's URL."""
        return dict(self._listings)

    def run(self, work: Callable[[], None]) -> None:
        """Do something beside the exchange that asks for it; the proxy waits for it when it ends."""
        thread = threading.Thread(target=work, daemon=True)
        self._later.append(thread)
        thread.start()

    def serve(self, exchange: Exchange) -> None:
        fault = self._due(exchange.request)
        if fault is None:
            exchange.pass_on()
        else:
            fault(exchange)

    def _due(self, request: Request) -> Fault | None:
        with self._lock:
            if self._fault is None or not self._left or not self._fault[1](request):
                return None
            self._left -= 1
            self.met += 1
            return self._fault[0]


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[_Handler]) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(address, handler)

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        assert isinstance(request, socket.socket)
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        assert isinstance(request, socket.socket)
        self._open.discard(request)
        super().shutdown_request(request)

    def drop_all(self) -> None:
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: object) -> None:
        """Say nothing: clients leave, and servers do, in the middle of an exchange."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer's head and body are two writes, the second of which would wait for the client's acknowledgement.
    disable_nagle_algorithm = True
    owner: HttpProxy

    def __getattr__(self, name: str) -> Callable[[], None]:
        # do_GET, do_PUT, …: all methods are served alike.
        if name.startswith("do_"):
            return self._serve
        raise AttributeError(name)

    def _serve(self) -> None:
        body = self._body()
        headers = tuple((name, value) for name, value in self.headers.items() if name.lower() not in _OF_ONE_CONNECTION)
        if self.headers.get("Transfer-Encoding"):
            headers = (*headers, ("Content-Length", str(len(body))))
        request = Request(self.command, self.path, headers, body)
        try:
            self.owner.serve(Exchange(request, self, self.owner))
        except OSError:
            # The server is gone: so the client finds it, too.
            self.reset()

    def reply(self, answer: Answer) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            if name.lower() not in _OF_ONE_CONNECTION:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    def reset(self) -> None:
        self.close_connection = True
        # Closing without lingering sends a reset instead of an orderly end.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            found.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(found)
