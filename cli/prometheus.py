"""Asks a Prometheus, or what speaks its HTTP API (VictoriaMetrics, Thanos, Mimir), and says in a letter why it cannot.

It only reads. A token goes to the given address and nowhere else: redirects are not followed. What a query means is not
known here.
"""

from __future__ import annotations

import base64
import http.client
import json
import math
import ssl
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from stack.errors import Problem, UnusableError, looks_like_secret, show

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KEY: Final = "--prometheus"
TIMEOUT: Final = 60.0
MOST_POINTS: Final = 10_000
"""Of a series in one answer: Prometheus refuses more than 11,000."""
MOST_BYTES: Final = 256 * 2**20
NOT_SCRAPED: Final = "Look whether monitoring.enabled is set and the Pods are scraped, or give labels with --selector"
"""What to do where there is no series of a role."""
_SAID: Final = 300
"""Letters of what a server says that are shown."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One series of an answer: its labels, and its values at times in seconds since 1970."""

    labels: Mapping[str, str]
    times: tuple[float, ...]
    values: tuple[float, ...]


class _Stay(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token elsewhere, and a login page would come back as an answer."""

    def http_error_302(self, *_: Any, **__: Any) -> None:
        return None  # so it is an error as any other, whatever the address may be

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


class Prometheus:
    """One server.

    Attributes:
        warnings: what it warned of in all answers so far, such as a part of its stores that did not answer.
    """

    def __init__(
        self, url: str, *, token: str | None = None, ca_file: Path | None = None, timeout: float = TIMEOUT
    ) -> None:
        """Take the address under which `/api/v1/query` is found.

        Raises:
            UnusableError: it is no address of a web server, or the certificates cannot be read.
        """
        parts = _parts(url.strip())
        if parts is None or parts.query or parts.fragment:
            raise UnusableError(
                Problem(
                    key=KEY,
                    value=show(url),
                    why="is no address of a Prometheus",
                    fix="Give what stands before /api/v1/query, such as http://prometheus.monitoring.svc:9090",
                )
            )
        self._headers = {"Accept": "application/json", "User-Agent": "serving-stack"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        elif parts.username is not None:
            pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        place = parts.netloc.rpartition("@")[2]
        self.address = urllib.parse.urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
        self.warnings: list[str] = []
        self._timeout = timeout
        try:
            context = ssl.create_default_context(cafile=ca_file)
        except (OSError, ssl.SSLError) as error:
            why = f"holds no certificates that can be read ({type(error).__name__})"
            raise UnusableError(
                Problem(key="--ca-file", value=str(ca_file), why=why, fix="Give a file of certificates in PEM")
            ) from None
        self._opener = urllib.request.build_opener(_Stay(), urllib.request.HTTPSHandler(context=context))

    def instant(self, query: str, *, at: float | None = None) -> tuple[Series, ...]:
        """Each series of an instant query, with one value.

        Raises:
            UnusableError: no answer, or none that can be used.
        """
        data = self._ask("query", {"query": query} | ({} if at is None else {"time": f"{at:.3f}"}))
        match data.get("resultType"), data.get("result"):
            case "vector", [*found]:
                return tuple(self._series(each, [each.get("value")]) for each in self._maps(found))
            case "scalar", [_, _] as value:
                return (self._series({"metric": {}}, [value]),)
            case _:
                return self._refuse("answered with something else than a vector", fix=_NOT_PROMETHEUS)

    def buckets(self, query: str) -> dict[float, float]:
        """The histogram that a query by `le` gives: count up to each upper edge.

        Raises:
            UnusableError: no answer, or none that can be used.
        """
        found: dict[float, float] = {}
        for series in self.instant(query):
            try:
                edge = float(series.labels["le"])
            except (KeyError, ValueError):
                edge = math.nan
            if math.isnan(edge):
                self._refuse("has a bucket without a number as its edge", fix="Look at the series in Prometheus itself")
            found[edge] = found.get(edge, 0.0) + series.values[0]  # `5` and `5.0`, of before and after an upgrade
        return found

    def range(self, query: str, *, start: float, end: float, step: float) -> tuple[Series, ...]:
        """Each series of a range query; asked for in parts where it is long, and joined again.

        Raises:
            UnusableError: no answer, or none that can be used.
        """
        times: dict[frozenset[tuple[str, str]], list[float]] = {}
        values: dict[frozenset[tuple[str, str]], list[float]] = {}
        steps = math.floor((end - start) / step)
        for first in range(0, steps + 1, MOST_POINTS):
            last = min(first + MOST_POINTS - 1, steps)
            asked = {"query": query, "start": f"{start + first * step:.3f}", "end": f"{start + last * step:.3f}"}
            data = self._ask("query_range", asked | {"step": f"{step:g}"})
            if data.get("resultType") != "matrix" or not isinstance(data.get("result"), list):
                self._refuse("answered with something else than a matrix", fix=_NOT_PROMETHEUS)
            for each in self._maps(data["result"]):
                series = self._series(each, each.get("values"))
                key = frozenset(series.labels.items())
                times.setdefault(key, []).extend(series.times)
                values.setdefault(key, []).extend(series.values)
        return tuple(
            Series(labels=dict(sorted(key)), times=tuple(times[key]), values=tuple(values[key]))
            for key in sorted(times, key=sorted)
        )

    def _maps(self, found: list[Any]) -> list[dict[str, Any]]:
        if not all(isinstance(each, dict) for each in found):
            self._refuse("answered with a series that is no map", fix=_NOT_PROMETHEUS)
        return cast("list[dict[str, Any]]", found)

    def _series(self, each: dict[str, Any], points: Any) -> Series:
        try:
            labels = {str(name): str(value) for name, value in each["metric"].items()}
            pairs = [(float(time), float(value)) for time, value in points]
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            self._refuse("answered with values that are no pairs of time and number", fix=_NOT_PROMETHEUS)
        return Series(labels=labels, times=tuple(time for time, _ in pairs), values=tuple(value for _, value in pairs))

    def _ask(self, what: str, form: Mapping[str, str]) -> dict[str, Any]:
        """The `data` of an answer. Sent as a form: selectors make long queries."""
        request = urllib.request.Request(  # noqa: S310  # only http and https come this far
            f"{self.address}/api/v1/{what}", data=urllib.parse.urlencode(form).encode(), headers=self._headers
        )
        try:
            with self._opener.open(request, timeout=self._timeout) as answer:
                text = answer.read(MOST_BYTES + 1)
                missing = answer.length
        except urllib.error.HTTPError as error:
            self._refuse_status(error)
        except urllib.error.URLError as error:
            self._refuse_silence(error.reason)
        except (TimeoutError, OSError, http.client.HTTPException, UnicodeError) as error:  # the last: of a host's name
            self._refuse_silence(error)
        if len(text) > MOST_BYTES:
            self._refuse(
                f"answered with more than {MOST_BYTES // 2**20} MiB", fix="Choose a shorter --window or a longer --step"
            )
        if missing:
            self._refuse("broke off in the middle of its answer", fix="Try again, or choose a shorter --window")
        return self._data(text)

    def _data(self, text: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            self._refuse("answered with something else than JSON", fix=_NOT_PROMETHEUS)
        said = cast("dict[str, Any]", answer)
        if said.get("status") != "success" or not isinstance(said.get("data"), dict):
            self._refuse(f"could not answer{_quoted(said.get('error'))}", fix="Look at the query in Prometheus itself")
        if said.get("isPartial") is True:  # VictoriaMetrics' cluster
            self._warn("some of its stores did not answer, so the answer is partial")
        warnings = said.get("warnings")
        for warning in cast("list[Any]", warnings) if isinstance(warnings, list) else ():
            self._warn(str(warning))
        return cast("dict[str, Any]", said["data"])

    def _warn(self, text: str) -> None:
        shown = _plain(text)
        if shown not in self.warnings:
            self.warnings.append(shown)

    def _refuse_status(self, error: urllib.error.HTTPError) -> NoReturn:
        with error:
            try:
                body = json.loads(error.read(2**16))
            except (ValueError, RecursionError, OSError, http.client.HTTPException):
                body = None
        said = _quoted(cast("dict[str, Any]", body).get("error")) if isinstance(body, dict) else ""
        if error.code in {301, 302, 303, 307, 308}:
            where = _parts(error.headers.get("Location", ""))
            place = f" to {where.scheme}://{where.netloc.rpartition('@')[2]}" if where is not None else ""
            self._refuse(
                f"redirects{place} (status {error.code}), which is not followed since it would get the token too",
                fix="Give the address that it redirects to, or a token if that is a login page",
            )
        match error.code:
            case 401 | 403:
                has = "does not accept the token or password" if "Authorization" in self._headers else "wants a token"
                self._refuse(f"{has} (status {error.code})", fix="Give one with --token-file")
            case 404 | 405:
                self._refuse(
                    f"has nothing at /api/v1 there (status {error.code})",
                    fix="Give what stands before /api/v1/query; in VictoriaMetrics' cluster that ends in /prometheus",
                )
            case _:
                self._refuse(
                    f"could not answer (status {error.code}){said}",
                    fix="Choose a shorter --window, or look at the query in Prometheus itself",
                )

    def _refuse_silence(self, reason: object) -> NoReturn:
        if isinstance(reason, TimeoutError):
            why = f"did not answer within {self._timeout:g} s"
        elif isinstance(reason, ssl.SSLError):
            why = f"could not be trusted ({_plain(getattr(reason, 'verify_message', '') or reason.reason or 'TLS')})"
            self._refuse(why, fix="Give its certificates with --ca-file")
        else:
            why = (
                f"does not answer ({_plain(getattr(reason, 'strerror', None) or str(reason) or type(reason).__name__)})"
            )
        self._refuse(why, fix="Look whether it runs and can be reached from here, for example by kubectl port-forward")

    def _refuse(self, why: str, *, fix: str) -> NoReturn:
        raise UnusableError(Problem(key=KEY, value=self.address, why=why, fix=fix)) from None


_NOT_PROMETHEUS: Final = "Look whether a Prometheus is behind this address, and not a login page or another program"


def _parts(url: str) -> urllib.parse.SplitResult | None:
    """An address of a web server in its parts; None if it is none."""
    try:
        parts = urllib.parse.urlsplit(url)
        has_host, _ = bool(parts.hostname), parts.port
    except ValueError:
        return None
    is_plain = parts.path.isascii() and parts.path.isprintable() and " " not in parts.path
    return parts if parts.scheme in {"http", "https"} and has_host and is_plain else None


def _quoted(text: object) -> str:
    return f': "{_plain(text)}"' if isinstance(text, str) and text else ""


def _plain(text: str) -> str:
    """What a server says, on one line, short, and without what looks like a secret."""
    shown = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    if looks_like_secret(shown):
        return "(not shown)"
    return shown if len(shown) <= _SAID else f"{shown[: _SAID - 3]}..."


def quoted(value: str) -> str:
    """A text as PromQL writes it in a selector."""
    return json.dumps(value, ensure_ascii=False)


def numbers(series: Series) -> dict[float, float]:
    """Values by time, without those that are no numbers."""
    return {t: v for t, v in zip(series.times, series.values, strict=True) if math.isfinite(v)}
