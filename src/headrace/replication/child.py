"""The receiver's process: `python -m headrace.replication.child FD`, started by `process.ReceiverProcess` only.

The descriptor is a socket to the parent. Through it come the configuration (so that no secret is in the process list)
and then commands; through it go status reports, and the error that ended it. A parent that dies ends the receiver too.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from multiprocessing.connection import Connection

import structlog

from ..errors import HeadraceError
from ..telemetry.logging import configure_logging
from .command import Applied, Command
from .receiver import Receiver, ReceiverStatus

__all__ = ["main"]


def main(descriptor: int) -> int:
    # Ctrl-C in a terminal reaches the whole group. The parent decides when the receiver stops, after draining.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = Connection(descriptor)
    config = parent.recv()
    configure_logging(config.log, pipeline=config.pipeline_id)
    sending = threading.Lock()

    def send(report: ReceiverStatus | HeadraceError) -> None:
        # A parent that is gone is noticed by `_obey`, which stops the receiver.
        with sending, contextlib.suppress(OSError):
            parent.send(report)

    try:
        receiver = Receiver(config, send)
        signal.signal(signal.SIGTERM, lambda *_: receiver.stop())
        threading.Thread(target=_obey, args=(parent, receiver), name="commands", daemon=True).start()
        receiver.run()
    except HeadraceError as error:
        send(error)
        return 1
    return 0


def _obey(parent: Connection, receiver: Receiver) -> None:
    try:
        while (command := parent.recv()) is not Command.STOP:
            if command is Command.PAUSE:
                receiver.pause()
            elif command is Command.RESUME:
                receiver.resume()
            else:
                assert isinstance(command, Applied)
                receiver.apply(command.lsn, command.hold)
    except (EOFError, OSError):
        structlog.get_logger("headrace.receiver").warning("the parent is gone; stopping")
    receiver.stop()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
