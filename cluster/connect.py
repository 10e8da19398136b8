"""The connection to the API server that the program itself uses, by the same context as the provider.

Changes nothing: it reads, and has writes tried without effect.

It asks through the `kubernetes` package's client, which brings credentials and TLS, but takes the answers as plain
JSON: importing the package's models takes longer than everything that is read here.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import kubernetes.config
import yaml
from kubernetes.client import ApiClient, Configuration
from urllib3 import Retry
from urllib3.exceptions import HTTPError

if TYPE_CHECKING:
    from collections.abc import Mapping

Object = dict[str, Any]
TIMEOUT_SECONDS = (3, 30)
"""Connect and read: a cluster that can't be reached is found out quickly, a large list may take its time."""
PAGE = 500
FIRST_ERROR, NOT_FOUND = 400, 404
WHOLE = "application/json"
APPLY = "application/apply-patch+yaml"
"""Content type of server-side apply; JSON is YAML."""
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""What alone is taken where only metadata is wanted (Kubernetes, "API Concepts"): a server that can't leave the rest
out must not send it."""
WHAT_ODD_ENTRIES_RAISE = (TypeError, KeyError, AttributeError, IndexError, ValueError, RecursionError)
"""The package checks little of what it reads from a kubeconfig."""
WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
"""RFC 9110 once had it, and Kubernetes uses it: code, agent, quoted text; several are joined by commas."""
_config: Any = kubernetes.config  # it has no types


class ClusterError(Exception):
    """The API server could not be asked, or refused; one line.

    Attributes:
        status: HTTP status, None when there was no answer.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)


class Cluster:
    """One API server, through one kubeconfig context. Changes nothing. A context manager that closes its connections.

    Several threads may ask at a time.

    Attributes:
        context: name of the context.
        calls: requests made so far.
        size: bytes of the answers so far.
    """

    def __init__(self, context: str, *, kubeconfig: Path | None = None) -> None:
        """Asks nothing yet.

        Args:
            context: name of the context.
            kubeconfig: file to read; None means `KUBECONFIG` or the user's own.

        Raises:
            ClusterError: there is no such context, or the file is not one that can be used.
        """
        configuration = Configuration()
        try:
            _config.load_kube_config(
                # The package itself would look at KUBECONFIG only when it is imported.
                str(kubeconfig) if kubeconfig is not None else os.environ.get("KUBECONFIG"),
                context=context,
                client_configuration=configuration,
            )
        except (_config.ConfigException, OSError, yaml.YAMLError, *WHAT_ODD_ENTRIES_RAISE) as error:
            raise ClusterError(f"kubeconfig context {context}: {_why_unusable(error, kubeconfig)}") from None
        if not configuration.host:
            raise ClusterError(f"kubeconfig context {context}: its cluster names no server")
        if _is_loopback(configuration.host):
            configuration.proxy = None  # no proxy leads to this machine
        configuration.retries = Retry(total=1, backoff_factor=0.2)
        self.context = context
        self.calls = self.size = 0
        self._counting = Lock()
        self._api: Any = ApiClient(configuration)  # it has no types

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._api.rest_client.pool_manager.clear()

    def get(self, path: str, **query: str) -> Object:
        """One object, or one page of a list.

        Raises:
            ClusterError: no answer, or not a good one.
        """
        return self._get(path, query, WHOLE)

    def _get(self, path: str, query: Mapping[str, str], accept: str) -> Object:
        answer = self._ask("GET", path, query, accept=accept)
        if answer.status >= FIRST_ERROR:
            raise ClusterError(f"{answer.status} {answer.reason}", answer.status)
        return _object(answer.data)

    def try_to_apply(self, path: str, manifest: Object, *, field_manager: str) -> tuple[Object, tuple[str, ...]]:
        """Have the API server check an object as if it were applied: defaults, validation, admission. Nothing is kept.

        Returns:
            The object as it would be then, and what the API server warns of.

        Raises:
            ClusterError: it would not be taken, in the API server's words, or could not be tried.
        """
        answer = self._ask(
            "PATCH",
            path,
            {"dryRun": "All", "fieldManager": field_manager, "force": "true"},
            body=json.dumps(manifest),
            sends=APPLY,
        )
        if answer.status >= FIRST_ERROR:
            raise refused(answer)
        warned = WARNING.findall(answer.getheader("Warning", ""))
        return _object(answer.data), tuple(re.sub(r"\\(.)", r"\1", text) for text in warned)

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        *,
        body: object = None,
        sends: str = WHOLE,
        accept: str = WHOLE,
    ) -> Any:
        """A whole answer."""
        answer = self._send(method, path, query, body=body, sends=sends, accept=accept)
        try:
            answer.read()
        except (HTTPError, OSError) as error:
            raise ClusterError(innermost(error)) from None
        with self._counting:
            self.calls += 1
            self.size += len(answer.data)
        return answer

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        *,
        body: object = None,
        sends: str = WHOLE,
        accept: str = WHOLE,
        timeout: tuple[float, float] = TIMEOUT_SECONDS,
    ) -> Any:
        """An answer of which nothing but the head was read. As JSON the package writes a body itself."""
        sent = {} if body is None else {"Content-Type": sends}
        method, url, headers, *_ = self._api.param_serialize(
            method=method,
            resource_path=path,
            query_params=list(query.items()),
            header_params={"Accept": accept, **sent},
            auth_settings=["BearerToken"],
        )
        try:
            return self._api.call_api(method, url, header_params=headers, body=body, _request_timeout=timeout)
        except (HTTPError, OSError) as error:
            raise ClusterError(innermost(error)) from None

    def find(self, path: str) -> Object | None:
        """One object, None if it is not there.

        Raises:
            ClusterError: it can't be told.
        """
        return self._find(path, WHOLE)

    def find_metadata(self, path: str) -> Object | None:
        """The metadata of one object, None if it is not there; nothing else of it is sent.

        Raises:
            ClusterError: it can't be told.
        """
        found = self._find(path, METADATA_ONLY)
        return None if found is None else found["metadata"]

    def _find(self, path: str, accept: str) -> Object | None:
        try:
            return self._get(path, {}, accept)
        except ClusterError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def list(self, path: str, **query: str) -> list[Object]:
        """All objects of a collection, page by page.

        Raises:
            ClusterError: as for `get`.
        """
        items: list[Object] = []
        following: str | None = ""
        while following is not None:
            page = self.get(path, limit=str(PAGE), **query, **({"continue": following} if following else {}))
            items += page["items"]
            following = page["metadata"].get("continue") or None
        return items


def _object(body: bytes) -> Object:
    """What was answered.

    Raises:
        ClusterError: it is no JSON: a proxy's page, or half an answer.
    """
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise ClusterError("the answer is no JSON") from None


def refused(answer: Any) -> ClusterError:
    """What to raise of an answer that is an error, in the API server's words."""
    return ClusterError(_message(answer.data) or f"{answer.status} {answer.reason}", answer.status)


def _message(body: bytes) -> str | None:
    """What a `Status` says."""
    try:
        return json.loads(body)["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _why_unusable(error: BaseException, kubeconfig: Path | None) -> str:
    """One line about a kubeconfig, without what is written in it, since there are tokens, and without where it is.

    It ends up in reports, which others read on other machines.
    """
    match error:
        case yaml.MarkedYAMLError(problem_mark=yaml.Mark(line=line)):
            return f"the kubeconfig is no YAML (line {line + 1})"
        case yaml.YAMLError():
            return "the kubeconfig is no YAML"
        case _ if isinstance(error, WHAT_ODD_ENTRIES_RAISE):
            return f"the kubeconfig is malformed ({type(error).__name__})"
        case OSError():
            return (
                f"the kubeconfig, or a file that it names, could not be read: {error.strerror or type(error).__name__}"
            )
        case _:
            return re.sub(r"\{.*\}", "{...}", " ".join(_without_paths(str(error), kubeconfig).split()))


def _without_paths(said: str, kubeconfig: Path | None) -> str:
    """What the package says, with its names for entries left: they begin with the file's."""
    named = str(kubeconfig or os.environ.get("KUBECONFIG") or _config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION)
    for path in sorted(filter(None, named.split(os.pathsep)), key=len, reverse=True):
        written = re.escape(str(Path(path).expanduser()))
        said = re.sub(rf"(?<!\S){written}/", "", said)
        said = re.sub(rf"(?<!\S){written}(?!\S)", "the kubeconfig", said)
    return re.sub(r"(?<![^\s'\"])/\S*/", ".../", said)


def _is_loopback(server: str) -> bool:
    return urlsplit(server).hostname in {"127.0.0.1", "::1", "localhost"}


def innermost(error: BaseException) -> str:
    """The innermost cause in one line: urllib3 wraps it several times."""
    while isinstance(inner := getattr(error, "reason", None) or error.__cause__, BaseException):
        error = inner
    return " ".join(str(error).split())
