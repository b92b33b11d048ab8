"""What is put into the source so that DDL is seen as it happens: a schema of its own, functions, event triggers."""

from .install import (
    InstallResult,
    foreign_owner,
    install,
    installed_version,
    may_install,
    prepare_source,
    uninstall,
)
from .message_key import MessageKey, MessageVerifier, is_authentic, key_grant, read_message_key
from .script import DDL_SCHEMA, SIGNED_SINCE, VERSION, install_sql, uninstall_sql

__all__ = [
    "DDL_SCHEMA",
    "SIGNED_SINCE",
    "VERSION",
    "InstallResult",
    "MessageKey",
    "MessageVerifier",
    "foreign_owner",
    "install",
    "install_sql",
    "installed_version",
    "is_authentic",
    "key_grant",
    "may_install",
    "prepare_source",
    "read_message_key",
    "uninstall",
    "uninstall_sql",
]
