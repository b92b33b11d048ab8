"""The receiver: the one reader of the replication slot.

Importing this package loads nothing but itself: commands that only look at a source must not load Arrow.
"""

from importlib import import_module

# As `typing` has it, without its import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .process import ReceiverProcess
    from .receiver import Receiver, ReceiverStatus

__all__ = ["Receiver", "ReceiverProcess", "ReceiverStatus"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{'process' if name == 'ReceiverProcess' else 'receiver'}"), name)
