"""A connection's TLS as asyncpg takes it: libpq's modes, done with Python's `ssl`.

asyncpg tries `allow` and `prefer` both ways by itself; from `require` on it gets a context made here.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from ..config.connection import PgConnectionConfig, TlsMode
from ..errors import ConfigError

__all__ = ["tls_for"]

_UNVERIFIED = (TlsMode.DISABLE, TlsMode.ALLOW, TlsMode.PREFER)
_OWN_ROOTS = Path("~/.postgresql/root.crt")
_VERIFYING = (TlsMode.VERIFY_CA, TlsMode.VERIFY_FULL)


class _NamedContext(ssl.SSLContext):
    """Verifies the name it was told, not the address that was dialled (libpq's host and hostaddr)."""

    server_name: str | None = None

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        if self.server_name is not None:
            named["server_hostname"] = self.server_name
        return super().wrap_bio(*arguments, **named)


def tls_for(config: PgConnectionConfig) -> str | ssl.SSLContext:
    """What asyncpg's `ssl` is for this configuration. Raises ConfigError, without a word of a certificate."""
    mode = config.tls.mode
    if config.host.startswith("/"):
        return TlsMode.DISABLE.value
    if mode in _UNVERIFIED:
        return mode.value
    context = _NamedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = mode is TlsMode.VERIFY_FULL
    context.verify_mode = ssl.CERT_REQUIRED
    context.server_name = config.host if config.hostaddr is not None else None
    try:
        _trust(context, config)
        if "sslcert" in config.parameters:
            context.load_cert_chain(config.parameters["sslcert"], config.parameters.get("sslkey"))
    except (OSError, ValueError) as error:  # SSLError is an OSError
        reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        raise ConfigError("a certificate of the connection cannot be used", detail=reason) from None
    return context


def _trust(context: ssl.SSLContext, config: PgConnectionConfig) -> None:
    certs = config.tls.trusted_root_certs
    own = _OWN_ROOTS.expanduser()
    if certs == "system":
        context.load_default_certs()
    elif certs is not None and "-----BEGIN" in certs:
        context.load_verify_locations(cadata=certs)
    elif certs is not None or own.exists():
        context.load_verify_locations(cafile=certs or str(own))
    elif config.tls.mode in _VERIFYING:
        msg = f"tls.mode is {config.tls.mode.value}, and there are no certificates to trust"
        raise ConfigError(msg, hint="set tls.trusted_root_certs: PEM text, the path of a PEM file, or `system`")
    else:
        context.verify_mode = ssl.CERT_NONE
