"""Reads how long requests took from a file: a table (CSV), lines of JSON, or a gateway's access log.

In blocks of whole lines, so that a million of them take about a second and many millions little memory. What is not
understood is refused with its line; nothing is guessed where a guess could be wrong by a factor of a thousand. Of an
access log only requests that were answered well are taken, and the others are counted: other lines (a Pod's log holds
some), other methods, other statuses, and answers that were cut. Needs numpy (extra `advice`).
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Final, cast

import numpy as np
import pydantic_core

from cli.asked import Layout, Unit
from stack.errors import EMPTY, MISSING, Problem, UnusableError, show

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from stack.durations import Numbers

BLOCK: Final = 16 * 2**20
LONGEST_LINE: Final = 2**20
LOOKED_AT: Final = 200
"""Lines from which the layout is told."""
WEEK: Final = 7 * 86_400.0
IMPLAUSIBLE: Final = 600.0
"""Seconds: where half of all requests took longer and no unit was given, these are milliseconds."""
COLUMNS: Final = (
    "duration",
    "request_duration",
    "e2e_request_latency",
    "e2e_latency",
    "latency",
    "elapsed",
    "response_time",
    "request_time",
    "total_time",
    "time_taken",
)
"""Names under which durations are looked for, with a unit at the end or without."""
_UNITS: Final = {
    "seconds": 1.0,
    "second": 1.0,
    "secs": 1.0,
    "sec": 1.0,
    "s": 1.0,
    "milliseconds": 1e-3,
    "millis": 1e-3,
    "msec": 1e-3,
    "ms": 1e-3,
    "microseconds": 1e-6,
    "micros": 1e-6,
    "us": 1e-6,
    "nanoseconds": 1e-9,
    "nanos": 1e-9,
    "ns": 1e-9,
}
_PACKED: Final = {
    b"PK\x03\x04": ("zip", "unzip -p"),
    b"\x28\xb5\x2f\xfd": ("zstd", "zstd -dc"),
    b"\xfd7zXZ\x00": ("xz", "xz -dc"),
    b"BZh": ("bzip2", "bzip2 -dc"),
}
_NO_SEPARATOR: Final = "\x1f"
"""Of a table with one column: with a comma `12,5` would be read as 12."""
_GZIP: Final = b"\x1f\x8b"
# What agentgateway writes of each request (`crates/agentgateway/src/telemetry/log.rs`): fields in this order, others
# between them, `error` and `reason` only where something went wrong. It says `ms`.
_AGENTGATEWAY: Final = re.compile(
    rb'(?<![^ \t])http\.method="?([A-Z]+)"? [^\n]*?(?<= )http\.status="?(\d{1,3})"? ([^\n]*?)(?<= )'
    rb'duration="?(\d+(?:\.\d+)?)(ms|s)"?(?![^\s])'
)
_WENT_WRONG: Final = re.compile(rb"(?<![^ ])(?:error|reason)=")
# Envoy's default format and Istio's, which puts three fields and a quoted one before the bytes (Envoy: Access logging,
# Default Format String; Istio: Getting Envoy's Access Logs). Times are whole milliseconds there.
_ACCESS: Final = re.compile(
    rb'\] "([A-Z]+) [^"\n]*" (\d{1,3}) (\S+) (?:\S+ \S+ (?:"[^"\n]*"|-) )?(?:\d+|-) (?:\d+|-) (\d+|-) (?:\d+|-) '
)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What a file holds.

    Attributes:
        seconds: of each request that was answered well.
        source: where they are from, in words.
        is_gateway: a gateway measured them, so each is a whole answer, through whichever Pods it went.
        left_out: why requests or lines are not in it, and how many each.
        broken: how many were answered with status 2xx and did not come to their end.
    """

    seconds: Numbers
    source: str
    is_gateway: bool
    left_out: Mapping[str, int]
    broken: int


@dataclass
class _Reader:
    """What is known of a file while it is read."""

    name: str
    column: str | None
    unit: Unit | None
    layout: Layout | None = None
    separator: str = ","
    position: int = 0
    width: int = 1
    line: int = 0
    """Lines before the block that is being read."""
    of_gateway: bool = False
    left_out: Counter[str] = field(default_factory=Counter[str])
    broken: int = 0
    lines: int = 0
    has_names: bool = False


def read_sample(
    stream: IO[bytes],
    name: str,
    *,
    column: str | None = None,
    unit: Unit | None = None,
    layout: Layout | None = None,
) -> Sample:
    """Read durations.

    Args:
        stream: the file, opened for bytes; may be packed by gzip.
        name: what to call it in letters.
        column: name or number (from 1) of a CSV column, or path of keys (`a.b`) in JSON; None looks for a usual one.
        unit: of the durations; None takes it from the column's name or the layout, and seconds without either.
        layout: None tells it from the first lines.

    Raises:
        UnusableError: it cannot be read, or holds something that is no duration.
    """
    reader = _Reader(name=name, column=column, unit=unit, layout=layout)
    parts: list[Numbers] = []
    for block in blocks(stream, name):
        if reader.layout is None or reader.line == 0:
            block = _begin(reader, block)  # noqa: PLW2901  # without the line of names
        match reader.layout:
            case None:
                found = np.zeros(0)  # nothing but empty lines so far
            case Layout.CSV:
                found = _of_table(reader, block)
            case Layout.JSON:
                found = _of_json(reader, block)
            case _:
                found = _of_access_log(reader, block)
        parts.append(found)
        reader.line += block.count(b"\n")
    seconds = np.concatenate(parts) if parts else np.zeros(0)
    return _finish(reader, seconds)


def blocks(stream: IO[bytes], name: str) -> Iterator[bytes]:
    """The file in blocks of whole lines; packed by gzip or not.

    Raises:
        UnusableError: it is no text in UTF-8, is packed by something else, or has a line of more than 1 MiB.
    """
    source = _unpacked(stream, name)
    rest = b""
    for read in _reads(source, name):
        whole, newline, after = read.rpartition(b"\n")
        if newline:
            yield rest + whole + newline
            rest = after
        else:
            rest += read
        if len(rest) > LONGEST_LINE:
            why = f"has a line of more than {LONGEST_LINE // 2**20} MiB"
            raise _refuse(name, "", why, fix="Write one request a line; of a JSON array: jq -c '.[]'")
    if rest:
        yield rest + b"\n"


def _unpacked(stream: IO[bytes], name: str) -> IO[bytes]:
    """The text; what is packed by gzip is unpacked on the way."""
    buffered: Any = stream if hasattr(stream, "peek") else io.BufferedReader(cast("Any", stream))
    magic: bytes = buffered.peek(8)[:8]
    for start, (kind, tool) in _PACKED.items():
        if magic.startswith(start):
            fix = f"Unpack it first: {tool} {name} | serving-stack drain-budget -"
            raise _refuse(name, "", f"is packed by {kind}", fix=fix)
    if magic[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        raise _refuse(name, "", "is text in UTF-16", fix="Save it in UTF-8")
    return cast("IO[bytes]", gzip.GzipFile(fileobj=buffered)) if magic.startswith(_GZIP) else buffered


def _reads(source: IO[bytes], name: str) -> Iterator[bytes]:
    """Parts of the text, wherever they end."""
    is_first = True
    while True:
        try:
            read = source.read(BLOCK)
        except (EOFError, gzip.BadGzipFile, zlib.error):
            raise _refuse(name, "", "is a gzip file that ends too early or is damaged", fix="Copy it anew") from None
        if not read:
            return
        if is_first:
            read = read.removeprefix(b"\xef\xbb\xbf")
            is_first = False
        if b"\0" in read:
            raise _refuse(name, "", "holds zero bytes, so it is no text", fix="Give a text: CSV, JSON lines or a log")
        yield read


def _begin(reader: _Reader, block: bytes) -> bytes:
    """Tell the layout, and find the column; the block without the line that names columns."""
    lines = [line.strip() for line in block.split(b"\n", LOOKED_AT)[:LOOKED_AT]]
    given = [line for line in lines if line]
    if not given:
        return block
    reader.layout = reader.layout or _layout(reader, given)
    match reader.layout:
        case Layout.CSV:
            return _begin_table(reader, block, given[0])
        case Layout.JSON:
            _begin_json(reader, given[0])
        case Layout.ACCESS_LOG:
            reader.of_gateway = True
            if reader.column is not None:
                raise _refuse("--column", reader.column, "names a column of an access log", fix="Leave it out")
    return block


def _layout(reader: _Reader, lines: Sequence[bytes]) -> Layout:
    if any(_ACCESS.search(line) or _AGENTGATEWAY.search(line) or _is_access_json(line) for line in lines):
        return Layout.ACCESS_LOG if reader.column is None else Layout.JSON
    if lines[0].startswith(b"{"):
        return Layout.JSON
    if lines[0].startswith(b"["):
        fix = f"Write one request a line: jq -c '.[]' {reader.name} | serving-stack drain-budget -"
        raise _refuse(reader.name, "", "is one JSON array, or a log of an unknown form", fix=fix)
    return Layout.CSV


def _is_access_json(line: bytes) -> bool:
    if not line.startswith(b"{"):
        return False
    try:
        item = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return {"duration", "response_code"} <= _map(item).keys()


# --- CSV --------------------------------------------------------------------------------------------------------------


def _begin_table(reader: _Reader, block: bytes, first: bytes) -> bytes:
    text = _text(reader, first)
    reader.separator = max(",;\t", key=text.count)
    cells = [cell.strip() for cell in _cells(reader, text, 1)]
    reader.width = len(cells)
    if reader.width == 1:
        reader.separator = _NO_SEPARATOR
    has_names = not any(_float(cell) is not None for cell in cells)
    reader.position = _position(reader, cells if has_names else None)
    if not has_names:
        return block
    reader.column, reader.has_names = cells[reader.position], True
    before = block.index(first) + len(first)
    return b"\n" * block.count(b"\n", 0, before) + block[before:]  # lines keep their numbers


def _position(reader: _Reader, names: Sequence[str] | None) -> int:
    asked = reader.column
    if asked is not None and names is not None and asked in names:
        return names.index(asked)
    if asked is not None and asked.isdecimal() and 1 <= int(asked) <= reader.width:
        return int(asked) - 1
    there = f"has the columns {', '.join(names)}" if names else f"has {reader.width} columns without names"
    if asked is not None:
        raise _refuse(
            "--column", asked, f"is not in {reader.name}, which {there}", fix="Name one of them, or its number"
        )
    if reader.width == 1:
        return 0
    usual = [at for at, name in enumerate(names or ()) if _is_usual(name)]
    if len(usual) != 1:
        why = f"{there}, of which {'several' if usual else 'none'} could be the durations"
        raise _refuse(reader.name, "", why, fix="Say which with --column")
    return usual[0]


def _is_usual(name: str) -> bool:
    words = _words(name)
    return "_".join(words[:-1] if len(words) > 1 and words[-1] in _UNITS else words) in COLUMNS


def _words(name: str) -> list[str]:
    """`durationMs`, `duration_ms`, `Duration (ms)` -> duration, ms."""
    return re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())


def _of_table(reader: _Reader, block: bytes) -> Numbers:
    if not block.strip():
        return np.zeros(0)
    if not _is_even(reader, block):
        raise _blame_table(reader, block)
    try:
        return np.loadtxt(
            io.BytesIO(block),
            delimiter=reader.separator,
            usecols=[reader.position],
            comments=None,
            quotechar='"',
            ndmin=1,
            encoding="utf-8",
        )
    except (ValueError, OverflowError):
        raise _blame_table(reader, block) from None


def _is_even(reader: _Reader, block: bytes) -> bool:
    """Whether every line has as many columns as the first: numpy takes those that it needs, and minds no others."""
    lines = [line for line in block.split(b"\n") if line and not line.isspace()]
    if b'"' not in block:
        return block.count(reader.separator.encode()) == len(lines) * (reader.width - 1)
    try:
        rows = csv.reader((line.decode("utf-8", "replace") for line in lines), delimiter=reader.separator)
        return all(len(cells) == reader.width for cells in rows)
    except csv.Error:
        return False


def _cells(reader: _Reader, text: str, number: int) -> list[str]:
    try:
        return next(csv.reader([text.rstrip("\r")], delimiter=reader.separator))
    except csv.Error as error:
        fix = "Write one request a line, and quote what holds a separator"
        why = f"is no line of a table ({error})"
        raise _refuse(f"{reader.name}, line {number}", text[:200], why, fix=fix) from None


def _blame_table(reader: _Reader, block: bytes) -> UnusableError:
    """The letter about the first line that cannot be read."""
    for number, line in enumerate(block.split(b"\n"), reader.line + 1):
        if not line.strip():
            continue
        try:
            cells = _cells(reader, _text(reader, line, number), number)
        except UnusableError as error:
            return error
        key = _at(reader, number)
        if len(cells) != reader.width:
            has = f"has {len(cells)} column{'s' * (len(cells) != 1)}, and the first line has {reader.width}"
            fix = "Correct the line, quote what holds a separator, and write a point before decimals"
            return _refuse(key, _text(reader, line, number).strip(), has, fix=fix)
        value = cells[reader.position].strip()
        if not _is_number(value):
            return _refuse(key, value, "is no number", fix=_hint(value))
    return _refuse(reader.name, "", "could not be read as a table", fix="Write one request a line")


def _hint(value: str) -> str:
    if re.fullmatch(r"\d+,\d+", value):
        return "Write a point before the decimals"
    if re.fullmatch(r"[\d.]+ *[a-zµ]+", value):
        return "Write the number alone, and give the unit with --unit or in the column's name"
    return "Correct the line or leave it out; --column names another column"


# --- JSON -------------------------------------------------------------------------------------------------------------


def _begin_json(reader: _Reader, first: bytes) -> None:
    if reader.column is not None:
        return
    item = _json_line(reader, first, 1)
    if not isinstance(item, dict):
        return  # each line is a number, or is refused below
    names = list(cast("dict[str, Any]", item))
    usual = [name for name in names if _is_usual(name)]
    if len(usual) != 1:
        why = f"has the keys {', '.join(names)}, of which {'several' if usual else 'none'} could be the durations"
        raise _refuse(reader.name, "", why, fix="Say which with --column; a.b is the key b below a")
    reader.column = usual[0]


def _of_json(reader: _Reader, block: bytes) -> Numbers:
    items, key = _json_items(reader, block), reader.column
    try:
        values = items if key is None else [item[key] for item in items]
    except (KeyError, TypeError):  # a path of keys, or a line that has none
        values = [_below(item, key) for item in items]
    if not set(map(type, values)) <= {int, float}:
        raise _blame_json(reader, block)
    try:
        return np.array(values, dtype=np.float64)
    except OverflowError:  # a whole number of hundreds of digits
        return np.array([_float(value) for value in values], dtype=np.float64)


def _json_items(reader: _Reader, block: bytes) -> list[Any]:
    """Each line's value. All at once, which is many times faster than line by line, and checked by their number."""
    text = block.strip()
    count = text.count(b"\n") + bool(text)
    try:
        items = cast("list[Any]", pydantic_core.from_json(b"[" + text.replace(b"\n", b",") + b"]"))
    except ValueError:  # or an empty line
        items = []
    if len(items) == count:
        return items
    return [
        _json_line(reader, line, number)
        for number, line in enumerate(block.split(b"\n"), reader.line + 1)
        if line and not line.isspace()
    ]


def _json_line(reader: _Reader, line: bytes, number: int) -> Any:
    try:
        return pydantic_core.from_json(line)
    except ValueError:
        text = _text(reader, line, number)
        fix = "Write one JSON value a line, or leave the line out; several layouts in one file are not read"
        raise _refuse(_at(reader, number), text[:200], "is no JSON", fix=fix) from None


def _below(item: Any, path: str | None) -> Any:
    """What is under a key, or under a path of keys; None if nothing is."""
    if path is None:
        return item
    if path in _map(item):
        return _map(item)[path]
    for key in path.split("."):
        item = _map(item).get(key)
    return item


def _map(value: Any) -> dict[str, Any]:
    """The value if it is a map, else one without keys."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _blame_json(reader: _Reader, block: bytes) -> UnusableError:
    for number, line in enumerate(block.split(b"\n"), reader.line + 1):
        if not line.strip():
            continue
        value = _below(_json_line(reader, line, number), reader.column)
        if type(value) not in {int, float}:
            key = _at(reader, number)
            if value is None:
                return _refuse(
                    key, MISSING, "is in no such line", fix="Leave the line out, or name a key with --column"
                )
            return _refuse(key, show(value), "is no number", fix="Write a number without quotes, or leave the line out")
    return _refuse(reader.name, "", "could not be read as lines of JSON", fix="Write one JSON value a line")


# --- access log of a gateway ------------------------------------------------------------------------------------------


def _of_access_log(reader: _Reader, block: bytes) -> Numbers:
    """Milliseconds of requests that were answered well. Lines that are none of a request's are counted."""
    lines = block.count(b"\n") - block.count(b"\n\n")
    rows: list[tuple[bytes, bytes, bytes, bytes]] = _ACCESS.findall(block)
    if len(rows) < lines:
        rows += _agentgateway(block)
    if len(rows) < lines:
        rows += _access_json(line for line in block.split(b"\n") if line.startswith(b"{"))
    reader.lines += len(rows)
    if (others := lines - len(rows)) > 0:
        reader.left_out["lines of another kind"] += others
    kept: list[bytes] = []
    for method, status, flags, milliseconds in rows:
        if method != b"POST":
            reader.left_out["requests that are no POST"] += 1
        elif not status.startswith(b"2") or milliseconds == b"-":
            reader.left_out["requests without an answer of status 2xx"] += 1
        elif flags not in {b"-", b""}:
            reader.broken += 1
        else:
            kept.append(milliseconds)
    if reader.broken:
        reader.left_out["answers that were cut"] = reader.broken
    return np.array(kept, dtype=np.bytes_).astype(np.float64) if kept else np.zeros(0)


def _agentgateway(block: bytes) -> Iterator[tuple[bytes, bytes, bytes, bytes]]:
    """The same four of agentgateway's lines."""
    for method, status, between, duration, unit in _AGENTGATEWAY.findall(block):
        milliseconds = duration if unit == b"ms" else f"{float(duration) * 1000:.3f}".encode()
        yield method, status, b"error" if _WENT_WRONG.search(between) else b"-", milliseconds


def _access_json(lines: Iterator[bytes]) -> list[tuple[bytes, bytes, bytes, bytes]]:
    """The same four of lines in JSON, with the keys that Istio gives them."""
    found = list(lines)
    try:
        items = cast("list[Any]", pydantic_core.from_json(b"[" + b",".join(found) + b"]"))
    except ValueError:
        items = []
    if len(items) != len(found):
        items = [item for item in map(_or_none, found) if item is not None]
    rows: list[tuple[bytes, bytes, bytes, bytes]] = []
    for item in items:
        entry = _map(item)
        if not {"duration", "response_code"} <= entry.keys():
            continue
        method, flags = entry.get("method") or "POST", entry.get("response_flags") or "-"
        milliseconds = str(entry["duration"])
        rows.append(
            (
                str(method).encode(),
                str(entry["response_code"]).encode(),
                str(flags).encode(),
                milliseconds.encode() if _is_number(milliseconds) else b"-",
            )
        )
    return rows


def _or_none(line: bytes) -> Any:
    try:
        return pydantic_core.from_json(line)
    except ValueError:
        return None


# --- at the end -------------------------------------------------------------------------------------------------------


def _finish(reader: _Reader, found: Numbers) -> Sample:
    if not found.size:
        if reader.has_names:
            why = "holds one line, which was taken for names, so there is nothing to learn from"
            fix = "Write one request a line below it; what is read is a table, lines of JSON, or a gateway's access log"
            raise _refuse(reader.name, "", why, fix=fix)
        if not reader.left_out:
            raise _refuse(reader.name, EMPTY, "there is nothing to learn from", fix="Give a sample of ended requests")
        why = f"holds no request that was answered well, only {_counted(reader.left_out)}"
        raise _refuse(reader.name, "", why, fix="Give the log of a time with traffic")
    for is_bad, why in ((~np.isfinite(found), "is no duration"), (found < 0, "is negative")):
        if is_bad.any():
            value = float(found[np.argmax(is_bad)])
            key = f"{reader.name}{_column(reader)}"
            many = f", and so are {int(is_bad.sum()) - 1} others" if is_bad.sum() > 1 else ""
            raise _refuse(key, f"{value:g}", f"{why}{many}", fix="Leave such requests out")
    factor, unit, is_said = _factor(reader)
    seconds = found * factor
    middle = float(np.median(seconds))
    if not is_said and middle >= IMPLAUSIBLE:
        why = f"is the duration in the middle; in seconds half of all requests took longer than {middle / 60:.0f} min"
        fix = "Say --unit ms if these are milliseconds, or --unit s if they really are seconds"
        raise _refuse(f"{reader.name}{_column(reader)}", f"{middle:g}", why, fix=fix)
    if (longest := float(seconds.max())) > WEEK:
        why = f"is a request of {longest / 86_400:.0f} days in {unit}"
        fix = "Correct the unit with --unit, or leave such requests out"
        raise _refuse(f"{reader.name}{_column(reader)}", f"{found.max():g}", why, fix=fix)
    kind = "gateway access log" if reader.of_gateway else f"{'JSON lines' if reader.layout is Layout.JSON else 'CSV'}"
    return Sample(
        seconds=seconds,
        source=f"{reader.name} ({kind}{_column(reader)}, in {unit})",
        is_gateway=reader.of_gateway,
        left_out=dict(reader.left_out),
        broken=reader.broken,
    )


def _factor(reader: _Reader) -> tuple[float, str, bool]:
    """By what to multiply, what the unit is called, and whether somebody said so."""
    if reader.unit is not None:
        return _UNITS[reader.unit], reader.unit.value, True
    if reader.of_gateway:
        return _UNITS["ms"], "ms", True
    words = _words((reader.column or "").rpartition(".")[2])
    if len(words) > 1 and words[-1] in _UNITS:
        return _UNITS[words[-1]], words[-1], True
    return 1.0, "s, for want of a unit", False


def _counted(left_out: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {why}" for why, count in sorted(left_out.items()))


def _column(reader: _Reader) -> str:
    if reader.of_gateway:
        return ""
    return f", column {reader.column or reader.position + 1}" if reader.width > 1 or reader.column else ""


def _at(reader: _Reader, number: int) -> str:
    return f"{reader.name}, line {number}{_column(reader)}"


def _float(value: float | str) -> float | None:
    """Whatever Python takes for a number; None if it does not."""
    try:
        return float(value)
    except OverflowError:
        return math.inf
    except ValueError:
        return None


def _is_number(text: str) -> bool:
    """Whether a text is a number as files have them: in ASCII, as numpy reads it, and without `_`."""
    return text.isascii() and "_" not in text and _float(text) is not None


def _text(reader: _Reader, line: bytes, number: int = 1) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise _refuse(
            f"{reader.name}, line {number}", "", "is no text in UTF-8", fix="Save the file in UTF-8"
        ) from None


def _refuse(key: str, value: str, why: str, *, fix: str) -> UnusableError:
    shown = value if value in {EMPTY, MISSING, ""} or _is_number(value) else show(value)
    return UnusableError(Problem(key=key, value=shown, why=why, fix=fix))
