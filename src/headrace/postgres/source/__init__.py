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
from .script import DDL_SCHEMA, VERSION, install_sql, uninstall_sql

__all__ = [
    "DDL_SCHEMA",
    "VERSION",
    "InstallResult",
    "foreign_owner",
    "install",
    "install_sql",
    "installed_version",
    "may_install",
    "prepare_source",
    "uninstall",
    "uninstall_sql",
]
