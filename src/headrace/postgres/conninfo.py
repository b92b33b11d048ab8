"""Connection strings in, libpq parameters out: what libpq writes and reads, apart from opening anything."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from pydantic import ValidationError

from ..config.connection import PgConnectionConfig
from ..errors import ConfigError

__all__ = ["libpq_parameters", "parse_conninfo"]

_FORMS = "write it as `host=… port=… dbname=… user=…` or `postgresql://user@host:port/database`"

# Our fields and libpq's keywords for them.
_FIELDS = {
    "host": "host",
    "hostaddr": "hostaddr",
    "port": "port",
    "name": "dbname",
    "username": "user",
    "password": "password",
    "connect_timeout": "connect_timeout",
}
_TLS = {"mode": "sslmode", "trusted_root_certs": "sslrootcert"}
_KEEPALIVE = {"idle": "keepalives_idle", "interval": "keepalives_interval", "retries": "keepalives_count"}


def parse_conninfo(text: str, *, password_file: Path | None = None) -> PgConnectionConfig:
    """Read a libpq conninfo string or a postgresql:// URL. What it leaves out comes from PGHOST and the like.

    Raises ConfigError, whose text never repeats the string: a mistyped one can hold the password anywhere.
    """
    try:
        given = {name: str(value) for name, value in conninfo_to_dict(text).items() if value is not None}
    except psycopg.ProgrammingError:
        raise ConfigError("the connection string cannot be read", hint=_FORMS) from None
    if "service" in given:
        raise ConfigError("a connection string cannot name a service", hint="set PGSERVICE instead")
    if password_file is not None and "password" in given:
        raise ConfigError("the connection string and a password file both give a password", hint="leave one out")
    try:
        return PgConnectionConfig(**_fields(given), password_file=password_file)
    except ValidationError as error:
        raise ConfigError("the connection string cannot be used", detail=_reasons(error), hint=_FORMS) from None


def _libpq_defaults() -> dict[str, str]:
    """What libpq takes from the environment, a PGSERVICE file, or its own built-in values."""
    options = psycopg.pq.Conninfo.get_defaults()
    return {option.keyword.decode(): option.val.decode() for option in options if option.val is not None}


def _fields(given: dict[str, str]) -> dict[str, Any]:
    # PGPASSWORD stays where it is: libpq looks there itself, and a password not copied is a password not leaked.
    known = {name: value for name, value in _libpq_defaults().items() if name != "password"} | given
    fields = {field: known[keyword] for field, keyword in _FIELDS.items() if known.get(keyword)}
    fields.setdefault("host", "localhost")
    fields.setdefault("name", fields.get("username", ""))
    tls = {field: known[keyword] for field, keyword in _TLS.items() if known.get(keyword)}
    keepalive = {field: given[keyword] for field, keyword in _KEEPALIVE.items() if keyword in given}
    taken = {*_FIELDS.values(), *_TLS.values(), *_KEEPALIVE.values(), "application_name"}
    rest = {name: value for name, value in given.items() if name not in taken}
    return {**fields, "tls": tls, "keepalive": keepalive, "parameters": rest}


def _reasons(error: ValidationError) -> str:
    # Only the field and the rule: the rejected value may be a piece of a mistyped password.
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False))


def libpq_parameters(config: PgConnectionConfig) -> Mapping[str, str | int]:
    """The configuration as libpq parameters, the password among them: hand them to connect, show them to nobody."""
    dead_after = config.keepalive.idle + config.keepalive.interval * config.keepalive.retries
    password = config.read_password()
    parameters: dict[str, str | int | None] = {
        **config.parameters,
        "host": config.host,
        "hostaddr": config.hostaddr,
        "port": config.port,
        "dbname": config.name,
        "user": config.username,
        "password": password.get_secret_value() if password else None,
        "sslmode": config.tls.mode.value,
        "sslrootcert": _root_cert_file(config.tls.trusted_root_certs),
        "connect_timeout": config.connect_timeout,
        "keepalives": 1,
        "keepalives_idle": config.keepalive.idle,
        "keepalives_interval": config.keepalive.interval,
        "keepalives_count": config.keepalive.retries,
        # Milliseconds. Keepalive says nothing while sent data is unacknowledged; this gives both cases one limit.
        "tcp_user_timeout": dead_after * 1000,
    }
    return {name: value for name, value in parameters.items() if value is not None}


def _root_cert_file(certs: str | None) -> str | None:
    return _written(certs, os.getpid()) if certs is not None and "-----BEGIN" in certs else certs


@functools.lru_cache(maxsize=16)
def _written(pem: str, pid: int) -> str:
    """PEM text as a file, because libpq reads files only. One per process: a fork must not lose its parent's."""
    directory = Path(tempfile.mkdtemp(prefix="headrace-tls-"))
    atexit.register(_remove_own, directory, pid)
    path = directory / "root.crt"
    path.write_text(pem, encoding="ascii")
    return str(path)


def _remove_own(directory: Path, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(directory, ignore_errors=True)
