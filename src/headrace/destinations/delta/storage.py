"""How tasks reach an object store: what the session's Hadoop knows of it, in the words of the tasks' own client."""

from __future__ import annotations

import os

from .java import DeltaJava

__all__ = ["storage_properties"]

_S3 = {
    "fs.s3a.access.key": "s3.access-key-id",
    "fs.s3a.secret.key": "s3.secret-access-key",
    "fs.s3a.session.token": "s3.session-token",
    "fs.s3a.endpoint": "s3.endpoint",
    "fs.s3a.endpoint.region": "s3.region",
}
# What servers of S3 that know no regions take a request for.
_ANY_REGION = "us-east-1"


def storage_properties(java: DeltaJava, warehouse: str) -> dict[str, str]:
    """For S3; other stores are reached by what their clients find in the environment."""
    if not warehouse.startswith(("s3:", "s3a:")):
        return {}
    hadoop = java.spark._jsc.hadoopConfiguration()
    found = {ours: hadoop.get(theirs) for theirs, ours in _S3.items()}
    endpoint = found["s3.endpoint"]
    if endpoint and "://" not in endpoint:
        secure = hadoop.getBoolean("fs.s3a.connection.ssl.enabled", True)
        found["s3.endpoint"] = f"{'https' if secure else 'http'}://{endpoint}"
    found["s3.region"] = found["s3.region"] or _region(endpoint)
    return {name: str(value) for name, value in found.items() if value}


def _region(endpoint: str | None) -> str | None:
    """Where no setting names it: else the tasks' client asks Amazon for the bucket's, wherever the bucket is."""
    given = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return given or (_ANY_REGION if endpoint and "amazonaws.com" not in endpoint else None)
