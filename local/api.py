"""A small client for the plane's API server: objects as plain JSON, server-side apply, and watches that end.

It exists beside the `kubernetes` package because the plane sends manifests of any kind, megabytes of CRDs among them as
they are, and must be fast at start. It speaks only to an API server that this package started.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlencode, urlsplit

from local.errors import DeadlineError, LocalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

Object = dict[str, Any]

FIELD_MANAGER = "serving-stack-local"
NOT_FOUND, CONFLICT = 404, 409
FIRST_ERROR = 400


class ApiError(LocalError):
    """The API server refused.

    Attributes:
        status: HTTP status.
        reason: The API's own word for it, for instance `NotFound`.
    """

    def __init__(self, method: str, path: str, status: int, reason: str, message: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(f"{method} {path}: {status} {reason}: {message}")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Where objects of a kind live."""

    collection: str
    namespaced: bool


@dataclass
class Api:
    """One API server and one token. Every request has a connection of its own, so nothing is left open."""

    server: str
    ca: Path
    token: str
    _kinds: dict[tuple[str, str], Kind] = field(default_factory=dict[tuple[str, str], Kind], repr=False)

    # -- requests ---------------------------------------------------------------------------------------------------

    def request(
        self,
        method: str,
        path: str,
        body: object | bytes | None = None,
        *,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
        timeout: float = 60,
    ) -> Object:
        """Send one request and return the object that came back.

        Args:
            method: HTTP method.
            path: Absolute path on the server.
            body: An object to be sent as JSON, or bytes to be sent as they are.
            content_type: What the body is.
            query: Query parameters.
            timeout: Seconds to wait for each part of the answer.

        Raises:
            ApiError: if the server refuses.
            OSError: if it cannot be reached, or does not answer in time.
            HTTPException: if what answers is no API server.
        """
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        target = f"{path}?{urlencode(query)}" if query else path
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}
        if data is not None:
            headers["Content-Type"] = content_type
        connection = self._connect(timeout)
        try:
            connection.request(method, target, data, headers)
            response = connection.getresponse()
            status, content = response.status, response.read()
        finally:
            connection.close()
        if status >= FIRST_ERROR:
            raise _refusal(method, path, status, content)
        with contextlib.suppress(json.JSONDecodeError):
            return cast("Object", json.loads(content))
        return {"text": content.decode(errors="replace")}

    def _connect(self, timeout: float) -> http.client.HTTPSConnection:
        address = urlsplit(self.server)
        return http.client.HTTPSConnection(address.hostname or "", address.port, timeout=timeout, context=self._trust)

    @cached_property
    def _trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca))

    # -- objects ----------------------------------------------------------------------------------------------------

    def path_of(self, manifest: Mapping[str, Any]) -> str:
        """Return the path of the object that a manifest describes.

        Raises:
            LocalError: if the server knows no such kind.
        """
        metadata = cast("Mapping[str, str]", manifest["metadata"])
        collection = self.collection_of(
            str(manifest["apiVersion"]), str(manifest["kind"]), namespace=metadata.get("namespace")
        )
        return f"{collection}/{quote(metadata['name'])}"

    def collection_of(self, api_version: str, kind: str, *, namespace: str | None = None) -> str:
        """Return the path under which objects of a kind are listed, of one namespace if it is given.

        Raises:
            LocalError: if the server knows no such kind.
        """
        known = self._kinds.get((api_version, kind)) or self._discover(api_version, kind)
        if known.namespaced and namespace:
            root, _, plural = known.collection.rpartition("/")
            return f"{root}/namespaces/{quote(namespace)}/{plural}"
        return known.collection

    def _discover(self, api_version: str, kind: str) -> Kind:
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        try:
            listed = cast("list[dict[str, Any]]", self.request("GET", root)["resources"])
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            listed = []
        for resource in listed:
            if "/" not in resource["name"]:
                found = Kind(collection=f"{root}/{resource['name']}", namespaced=bool(resource["namespaced"]))
                self._kinds[api_version, str(resource["kind"])] = found
        if (api_version, kind) not in self._kinds:
            raise LocalError(
                f"The API server knows no kind {kind} in {api_version}. Is its CRD among those the plane installs?"
            )
        return self._kinds[api_version, kind]

    def get(self, path: str) -> Object:
        """Return the object at a path.

        Raises:
            ApiError: with status 404 if there is none.
        """
        return self.request("GET", path)

    def find(self, path: str) -> Object | None:
        """Return the object at a path, or None if there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def list(self, collection: str, **query: str) -> list[Object]:
        """Return all objects of a collection (see `collection_of`); `labelSelector` and the like as keywords."""
        return cast("list[Object]", self.request("GET", collection, query=query)["items"])

    def create(self, manifest: Object) -> Object:
        """Create an object, as somebody who expects it not to exist; `generateName` is allowed."""
        metadata = cast("Mapping[str, str]", manifest["metadata"])
        collection = self.collection_of(manifest["apiVersion"], manifest["kind"], namespace=metadata.get("namespace"))
        return self.request("POST", collection, manifest, query={"fieldManager": FIELD_MANAGER})

    def apply(self, manifest: Object) -> Object:
        """Make an object as the manifest says, whether or not it exists (server-side apply, forced)."""
        return self.apply_at(self.path_of(manifest), manifest)

    def apply_at(self, path: str, manifest: Object | bytes) -> Object:
        """Server-side apply at a known path; bytes may be YAML."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return self.request("PATCH", path, manifest, content_type="application/apply-patch+yaml", query=query)

    def patch(self, path: str, change: Object) -> Object:
        """Merge a change into the object at a path (RFC 7396)."""
        return self.request("PATCH", path, change, content_type="application/merge-patch+json")

    def delete(self, path: str, *, propagation: str = "Background", grace_seconds: int | None = None) -> None:
        """Ask for the object at a path to be deleted; nothing happens if there is none."""
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            self.request("DELETE", path, options)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise

    # -- waiting ----------------------------------------------------------------------------------------------------

    def watch(self, collection: str, *, timeout: float, **query: str) -> Iterator[tuple[str, Object]]:
        """Yield what is there and then what happens, as (`ADDED`, object) and so on, until the time is over.

        Raises:
            ApiError: if the server refuses or ends the watch with an error.
        """
        deadline = time.monotonic() + timeout
        listed = self.request("GET", collection, query=query)
        for item in cast("list[Object]", listed["items"]):
            yield "ADDED", item
        version = str(listed["metadata"]["resourceVersion"])
        while (left := deadline - time.monotonic()) > 0:
            for event, item in self._stream(collection, version, left, query):
                version = str(item["metadata"]["resourceVersion"])
                yield event, item

    def _stream(
        self, collection: str, version: str, seconds: float, query: Mapping[str, str]
    ) -> Iterator[tuple[str, Object]]:
        asked = {**query, "watch": "true", "resourceVersion": version, "timeoutSeconds": str(max(1, int(seconds)))}
        connection = self._connect(seconds + 5)
        try:
            headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}
            connection.request("GET", f"{collection}?{urlencode(asked)}", None, headers)
            response = connection.getresponse()
            if response.status >= FIRST_ERROR:
                raise _refusal("WATCH", collection, response.status, response.read())
            for line in response:
                event = cast("Object", json.loads(line))
                if event["type"] == "ERROR":
                    raise _refusal(
                        "WATCH", collection, int(event["object"]["code"]), json.dumps(event["object"]).encode()
                    )
                yield event["type"], cast("Object", event["object"])
        finally:
            connection.close()

    def wait_for(
        self,
        collection: str,
        satisfied: Callable[[dict[str, Object]], bool],
        *,
        timeout: float,
        what: str,
        **query: str,
    ) -> dict[str, Object]:
        """Watch a collection until what it holds satisfies, and return that, by `namespace/name` or `name`.

        Args:
            collection: See `collection_of`.
            satisfied: Asked after every change, and once with what is there at first.
            timeout: Seconds after which to give up.
            what: Completes "waited ... for".
            query: `labelSelector`, `fieldSelector`.

        Raises:
            DeadlineError: if it never did; it says how the objects stood at last.
        """
        seen: dict[str, Object] = {}
        listed = self.list(collection, **query)
        seen = {_key(item): item for item in listed}
        if satisfied(seen):
            return seen
        seen = {}
        for event, item in self.watch(collection, timeout=timeout, **query):
            if event == "DELETED":
                seen.pop(_key(item), None)
            else:
                seen[_key(item)] = item
            if satisfied(seen):
                return seen
        stood = "\n".join(f"  {name}: {describe(item)}" for name, item in sorted(seen.items())) or "  (nothing there)"
        raise DeadlineError(f"Waited {timeout:g} s for {what}, in vain. At last there was:\n{stood}")


def _key(item: Object) -> str:
    metadata = cast("Mapping[str, str]", item["metadata"])
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else metadata["name"]


def describe(item: Object) -> str:
    """Say in one line how an object stands: phase, conditions that are not as they should be, whether it is leaving."""
    status = cast("Object", item.get("status") or {})
    words = [str(status["phase"])] if "phase" in status else []
    for condition in cast("Iterable[Object]", status.get("conditions") or ()):
        detail = f" ({condition['message']})" if condition.get("message") else ""
        words.append(f"{condition['type']}={condition['status']}{detail}")
    if item["metadata"].get("deletionTimestamp"):
        words.append("terminating")
    return ", ".join(words) or "exists"


def condition_is_true(item: Object, kind: str) -> bool:
    """Whether an object's status has this condition with status True."""
    status = cast("Object", item.get("status") or {})
    conditions = cast("Iterable[Object]", status.get("conditions") or ())
    return any(condition["type"] == kind and condition["status"] == "True" for condition in conditions)


def _refusal(method: str, path: str, status: int, content: bytes) -> ApiError:
    try:
        said = cast("Object", json.loads(content))
        return ApiError(method, path, status, str(said.get("reason") or ""), str(said.get("message") or ""))
    except (json.JSONDecodeError, AttributeError):
        return ApiError(method, path, status, "", content.decode(errors="replace")[:500])
