"""How to reach a Postgres server: address, role, secrets, TLS and keepalive.

A value without behaviour: it is read from a file or from the environment, checked here, and opened by
`postgres.connection`. No message, repr or dump of it shows a secret.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from ..errors import ConfigError

__all__ = ["KeepaliveConfig", "PgConnectionConfig", "TlsConfig", "TlsMode"]

# libpq parameters that are fields of their own, pinned by us, or secrets that `parameters` would show.
_OWN_FIELDS = frozenset(
    {"host", "hostaddr", "port", "dbname", "user", "password", "sslmode", "sslrootcert", "connect_timeout"}
    | {"keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"}
)
_PINNED = frozenset({"application_name", "client_encoding", "fallback_application_name", "replication"})
_SECRET = frozenset({"sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"})


class _Frozen(BaseModel):
    # hide_input_in_errors: pydantic would otherwise quote the rejected value, which may be the password.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class TlsMode(StrEnum):
    """How much TLS is asked for; the words are libpq's `sslmode`."""

    DISABLE = "disable"
    ALLOW = "allow"
    PREFER = "prefer"
    REQUIRE = "require"
    VERIFY_CA = "verify-ca"
    VERIFY_FULL = "verify-full"


class TlsConfig(_Frozen):
    """Encryption of the connection and proof of the server's identity."""

    mode: TlsMode = Field(
        default=TlsMode.PREFER,
        description="libpq's sslmode. Default prefer, as everywhere in Postgres: encrypts when the server can, proves "
        "nothing. Use verify-full over any network that is not yours: it checks certificate and host name.",
    )
    trusted_root_certs: str | None = Field(
        default=None,
        description="The certificate authorities to trust: PEM text, the path of a PEM file, or `system`. "
        "Default none: libpq then looks in ~/.postgresql/root.crt, and refuses to verify without it.",
    )


class KeepaliveConfig(_Frozen):
    """TCP keepalive, so that a dead peer is noticed in about a minute instead of two hours."""

    idle: int = Field(
        default=30, ge=1, description="Seconds of silence before the first probe. Default 30: below usual NAT timeouts."
    )
    interval: int = Field(default=10, ge=1, description="Seconds between probes. Default 10.")
    retries: int = Field(
        default=3,
        ge=1,
        description="Unanswered probes until the connection counts as dead. Default 3: idle + 3 x interval is 60 s, "
        "Postgres's own wal_sender_timeout.",
    )


class PgConnectionConfig(_Frozen):
    """A Postgres database and how to log in to it."""

    host: str = Field(min_length=1, description="Host name (also checked by verify-full), or a socket directory.")
    hostaddr: str | None = Field(
        default=None, description="IP address to dial instead of resolving `host`, which is then only verified."
    )
    port: int = Field(default=5432, ge=1, le=65535, description="TCP port. Default 5432, Postgres's own.")
    name: str = Field(min_length=1, description="The database. A slot and a publication belong to one database.")
    username: str = Field(min_length=1, description="The role; it needs REPLICATION and SELECT on the tables.")
    password: SecretStr | None = Field(
        default=None,
        description="The password. Default none: then password_file, else libpq's own places (PGPASSWORD, ~/.pgpass).",
    )
    password_file: Path | None = Field(
        default=None,
        description="A file that holds nothing but the password, as secret stores mount it; read at every connect, "
        "so a rotated password is picked up. A line end after it is ignored.",
    )
    tls: TlsConfig = Field(default=TlsConfig(), description="Encryption and verification.")
    keepalive: KeepaliveConfig = Field(default=KeepaliveConfig(), description="When a silent peer counts as dead.")
    connect_timeout: int = Field(
        default=10,
        ge=1,
        description="Seconds for one connection attempt. Default 10: a SYN is retried three times within it; libpq "
        "itself would wait forever.",
    )
    parameters: dict[str, str] = Field(
        default={},
        description="Further libpq parameters, passed as they are (sslcert, sslkey, channel_binding, …). No secrets.",
    )

    @field_validator("host")
    @classmethod
    def _one_host(cls, host: str) -> str:
        if "," in host:
            msg = "give one host: a replication slot lives on one server"
            raise ValueError(msg)
        return host

    @field_validator("parameters")
    @classmethod
    def _foreign_parameters(cls, parameters: dict[str, str]) -> dict[str, str]:
        for names, reason in (
            (_OWN_FIELDS, "has a field of its own"),
            (_PINNED, "is set by headrace"),
            (_SECRET, "is a secret, which parameters would show"),
        ):
            for name in sorted(names & parameters.keys()):
                msg = f"{name} {reason}"
                raise ValueError(msg)
        return parameters

    @model_validator(mode="after")
    def _one_password(self) -> PgConnectionConfig:
        if self.password is not None and self.password_file is not None:
            msg = "give password or password_file, not both"
            raise ValueError(msg)
        return self

    def read_password(self) -> SecretStr | None:
        """The password to log in with now; None leaves it to libpq (PGPASSWORD, ~/.pgpass)."""
        if self.password_file is None:
            return self.password
        try:
            return SecretStr(self.password_file.read_text(encoding="utf-8").rstrip("\r\n"))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            msg = f"password_file {self.password_file} cannot be read"
            raise ConfigError(msg, detail=reason) from None
