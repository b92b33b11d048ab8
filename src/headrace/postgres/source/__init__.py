"""What is put into the source so that DDL is seen as it happens: the schema `headrace`, functions, event triggers."""

from .install import (
    InstallResult,
    install,
    installed_version,
    may_install,
    prepare_source,
    uninstall,
)
from .script import VERSION, install_sql, uninstall_sql

__all__ = [
    "VERSION",
    "InstallResult",
    "install",
    "install_sql",
    "installed_version",
    "may_install",
    "prepare_source",
    "uninstall",
    "uninstall_sql",
]
