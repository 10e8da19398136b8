"""Keys and values of the plane's store, read and written directly, before or beside the API server.

For one purpose: an API server takes some ten seconds of computing to accept the CRDs one after the other, and a second
to find them in its store. So what it stored once is kept and put into the store of the next plane before its API server
starts. The interface is etcd's JSON gateway (etcd documentation, "gRPC gateway").
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from local.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

OK = 200


@dataclass(frozen=True, kw_only=True)
class EtcdStore:
    """Connection to a store with a client certificate."""

    url: str
    ca: Path
    certificate: Path
    key: Path

    def is_healthy(self) -> bool:
        """Whether the store serves."""
        try:
            self._call("/v3/maintenance/status", {}, timeout=2)
        except (OSError, http.client.HTTPException, LocalError):
            return False
        return True

    def read(self, prefix: str) -> dict[str, bytes]:
        """Return every value under a prefix, by key."""
        query = {**_range(prefix), "keys_only": True}
        keys = [cast("str", entry["key"]) for entry in self._call("/v3/kv/range", query).get("kvs", [])]
        # One at a time: together they are more than the gateway passes on in one answer.
        values = {key: self._call("/v3/kv/range", {"key": key})["kvs"][0]["value"] for key in keys}
        return {base64.b64decode(key).decode(): base64.b64decode(cast("str", value)) for key, value in values.items()}

    def write(self, values: Mapping[str, bytes]) -> None:
        """Put values under their keys."""
        for key, value in values.items():
            self._call("/v3/kv/put", {"key": _encode(key.encode()), "value": _encode(value)})

    def is_empty(self, prefix: str) -> bool:
        """Whether there is no key under a prefix."""
        return not self._call("/v3/kv/range", {**_range(prefix), "keys_only": True, "limit": 1}).get("kvs")

    def _call(self, path: str, body: Mapping[str, object], *, timeout: float = 20) -> dict[str, Any]:
        address = urlsplit(self.url)
        trust = ssl.create_default_context(cafile=str(self.ca))
        trust.load_cert_chain(self.certificate, self.key)
        connection = http.client.HTTPSConnection(address.hostname or "", address.port, timeout=timeout, context=trust)
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        if response.status != OK:
            raise LocalError(f"etcd, {path}: {response.status} {content.decode(errors='replace')[:300]}")
        return cast("dict[str, Any]", json.loads(content))


def _encode(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _range(prefix: str) -> dict[str, str]:
    start = prefix.encode()
    return {"key": _encode(start), "range_end": _encode(start[:-1] + bytes([start[-1] + 1]))}
