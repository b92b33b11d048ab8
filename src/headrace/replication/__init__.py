"""The receiver: the one reader of the replication slot."""

from .process import ReceiverProcess
from .receiver import Receiver, ReceiverStatus

__all__ = ["Receiver", "ReceiverProcess", "ReceiverStatus"]
