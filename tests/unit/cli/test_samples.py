"""Files of durations: what is understood, and what is refused with its line."""

from __future__ import annotations

import gzip
import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli import samples
from cli.asked import Layout, Unit
from cli.loads import load_of_file
from cli.samples import Sample, read_sample
from stack.errors import UnusableError

ENVOY = (
    '[2026-11-30T08:15:00.123Z] "POST /v1/chat/completions HTTP/2" 200 - 154 2048 12500 100 "10.0.35.28" "curl/8.5.0" '
    '"cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "models.example" "10.0.2.1:8000"'
)
ISTIO = (
    '[2026-11-30T08:15:00.123Z] "POST /v1/chat/completions HTTP/1.1" 200 - via_upstream - "-" 154 2048 12500 100 '
    '"10.0.35.28" "curl/8.5.0" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "models.example" "10.0.2.1:8000" '
    "outbound|8000||rel.ns.svc.cluster.local 10.0.0.9:41210 10.0.0.9:80 10.0.35.28:52144 - default"
)
AGENTGATEWAY = (
    "2026-11-30T08:15:00.123456Z\tinfo\trequest gateway=llm/coding listener=http route=llm/coding "
    "endpoint=10.0.2.1:8000 src.addr=10.0.35.28:40852 http.method=POST http.host=models.example "
    "http.path=/v1/chat/completions http.version=HTTP/1.1 http.status=200 protocol=llm duration=12500ms"
)
WIDE = "\uff11\uff12"
"""Digits that Python takes for 12, and numpy and other programs do not."""
DEEP = '{"a":' + "[" * 200_000


PIECES = st.sampled_from(
    [
        *(b"duration", b"time,pod,running,waiting\n", b"\n", b"\n", b"\r", b",", b";", b"\t", b'"', b" ", b"\x1c"),
        *(b"1", b"2.5", b"-", b"nan", b"1e400", b"\xff", b"\xef\xbb\xbf", b"\x1f\x8b", b"{", b"}", b"["),
        *(b'{"duration": 1}', b'{"duration":1e999}', b'{"duration": 1' + b"0" * 400 + b"}", b'{"duration":[]}'),
        *(b'{"duration":"5","response_code":200}', b'{"duration":[],"response_code":{}}'),
        *(DEEP.encode(), AGENTGATEWAY.encode(), WIDE.encode(), b'{"duration":"\xef\xbc\x91","response_code":200}'),
        *(ENVOY.encode(), ISTIO.encode()[:90], b'{"time":1e300,"pod":[],"running":1,"waiting":2}'),
    ]
)


def read(text: str | bytes, **options: object) -> Sample:
    data = text.encode() if isinstance(text, str) else text
    return read_sample(io.BytesIO(data), "given", **options)  # pyright: ignore[reportArgumentType]  # by name


def refusal(text: str | bytes, **options: object) -> str:
    with pytest.raises(UnusableError) as caught:
        read(text, **options)
    letter = caught.value.problem
    assert letter.key
    assert letter.fix
    return str(letter)


def istio_json(**fields: object) -> str:
    usual = {
        "method": "POST",
        "response_code": 200,
        "response_flags": "-",
        "duration": 12500,
        "path": "/v1/completions",
    }
    return json.dumps(usual | fields)


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("12.5\n3\n", [12.5, 3.0]),
        ("12.5\n3", [12.5, 3.0]),
        ("duration\r\n12.5\r\n3\r\n", [12.5, 3.0]),
        ("\ufeffduration_seconds\n12.5\n\n3\n", [12.5, 3.0]),
        ("time,duration_ms,status\n2026-11-30T08:00:00Z,12500,200\n2026-11-30T08:00:01Z,3000,200\n", [12.5, 3.0]),
        ('path,"requestDurationMs"\n"/a,b",12500\n"/c",3000\n', [12.5, 3.0]),
        ("status;latency\n200;12.5\n200;3\n", [12.5, 3.0]),
        ("status\tElapsed (s)\n200\t12.5\n200\t3\n", [12.5, 3.0]),
        ("e2e_latency_us\n12500000\n3000000\n", [12.5, 3.0]),
    ],
)
def test_a_table_is_understood_with_its_unit(text: str, want: list[float]) -> None:
    assert read(text).seconds.tolist() == pytest.approx(want)


def test_a_column_is_named_or_counted_where_none_has_a_usual_name() -> None:
    text = "start,took\n1,12.5\n2,3\n"
    assert read(text, column="took").seconds.tolist() == [12.5, 3.0]
    assert read(text, column="2").seconds.tolist() == [12.5, 3.0]
    assert "has the columns start, took, of which none could be the durations" in refusal(text)
    assert "--column = end: is not in given, which has the columns start, took" in refusal(text, column="end")
    assert "has 2 columns without names" in refusal("1,2\n3,4\n")


def test_two_columns_that_could_be_it_are_not_chosen_between() -> None:
    assert "several could be the durations" in refusal("latency,duration\n1,2\n")


@pytest.mark.parametrize(
    ("unit", "want"),
    [
        *(("s", 2e6), ("sec", 2e6), ("secs", 2e6), ("second", 2e6), ("seconds", 2e6)),
        *(("ms", 2e3), ("msec", 2e3), ("millis", 2e3), ("milliseconds", 2e3)),
        *(("us", 2), ("micros", 2), ("microseconds", 2), ("ns", 2e-3), ("nanos", 2e-3), ("nanoseconds", 2e-3)),
    ],
)
def test_each_way_to_write_a_unit_in_a_name_means_what_it_says(unit: str, want: float) -> None:
    for name in (f"duration_{unit}", f"duration{unit.title()}", f"Duration ({unit})"):
        if want > 604_800:
            assert "days in" in refusal(f"{name}\n2000000\n")
        else:
            assert read(f"{name}\n2000000\n").seconds.tolist() == pytest.approx([want])


def test_a_unit_that_is_said_counts_more_than_the_name() -> None:
    assert read("duration_ms\n12\n", unit=Unit.S).seconds.tolist() == [12.0]


# --- lines of JSON ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "column", "want"),
    [
        ('{"duration": 12.5}\n{"duration": 3}\n', None, [12.5, 3.0]),
        ('{"id": 1, "latencyMs": 12500}\n\n{"id": 2, "latencyMs": 3000}\n', None, [12.5, 3.0]),
        ('{"a": {"b": 12.5}}\n{"a": {"b": 3}}\n', "a.b", [12.5, 3.0]),
        ('{"a.b": 12.5}\n', "a.b", [12.5]),
    ],
)
def test_lines_of_json_are_understood(text: str, column: str | None, want: list[float]) -> None:
    assert read(text, column=column).seconds.tolist() == pytest.approx(want)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ('{"duration": 1}\n{"duration": "2"}\n', "line 2, column duration"),
        ('{"duration": 1}\n{"other": 2}\n', "line 2, column duration is missing"),
        ('{"duration": 1}\n{"duration": true}\n', "is no number"),
        ('{"duration": 1}\n{"duration": 2\n', "line 2, column duration"),
        ('{"duration": 1}\n2.5\n', "line 2, column duration is missing"),
        ('{"duration": 1}\nduration,2\n', "is no JSON"),
        ('{"duration": 1}\n{"duration": 2\n"a": 3}\n', "line 2, column duration"),  # together two lines were one map
        ('{"start": 1}\n', "has the keys start, of which none could be the durations"),
        ('[{"duration": 1}, {"duration": 2}]\n', "jq -c"),
    ],
)
def test_a_line_that_does_not_say_it_is_named(text: str, want: str) -> None:
    assert want in refusal(text)


# --- access logs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        *(ENVOY, ISTIO, istio_json(), istio_json(duration="12500", response_flags=None)),
        *(AGENTGATEWAY, AGENTGATEWAY.replace("12500ms", "12.5s"), f'{AGENTGATEWAY} user="a b"'),
    ],
)
def test_the_access_log_of_a_gateway_is_understood_in_milliseconds(line: str) -> None:
    sample = read(f"{line}\n{line}\n")
    assert sample.seconds.tolist() == [12.5, 12.5]
    assert sample.is_gateway
    assert sample.left_out == {}


@pytest.mark.parametrize(
    ("good", "other", "why"),
    [
        (ENVOY, ENVOY.replace("POST", "GET"), "requests that are no POST"),
        (ISTIO, ISTIO.replace('" 200 -', '" 503 UH'), "requests without an answer of status 2xx"),
        (ISTIO, "2026-11-30T08:15:00.000Z\tinfo\tEnvoy proxy is ready", "lines of another kind"),
        (istio_json(), istio_json(method="GET"), "requests that are no POST"),
        (istio_json(), istio_json(response_code=429), "requests without an answer of status 2xx"),
        (istio_json(), istio_json(duration=None), "requests without an answer of status 2xx"),
        (istio_json(), "{broken", "lines of another kind"),
        (istio_json(), istio_json(duration=WIDE), "requests without an answer of status 2xx"),
        (istio_json(), DEEP, "lines of another kind"),
        (AGENTGATEWAY, AGENTGATEWAY.replace("POST", "GET"), "requests that are no POST"),
        (AGENTGATEWAY, AGENTGATEWAY.replace("=200", "=503"), "requests without an answer of status 2xx"),
        (AGENTGATEWAY, AGENTGATEWAY.replace("http.status=200 ", ""), "lines of another kind"),
        (istio_json(), '{"level": "info"}', "lines of another kind"),
    ],
)
def test_what_is_no_good_answer_is_left_out_and_counted(good: str, other: str, why: str) -> None:
    sample = read(f"{other}\n{good}\n{other}\n")
    assert sample.seconds.tolist() == [12.5]
    assert sample.left_out == {why: 2}


@pytest.mark.parametrize(
    "line",
    [
        *(ISTIO.replace('" 200 -', '" 200 UC'), ENVOY.replace('" 200 -', '" 200 DC'), istio_json(response_flags="UR")),
        AGENTGATEWAY.replace("duration", 'error="upstream call failed" reason=UpstreamFailure duration'),
    ],
)
def test_answers_that_were_cut_are_counted_since_they_are_missing_from_the_sample(line: str) -> None:
    sample = read(f"{ISTIO if line.startswith('[') else istio_json()}\n{line}\n")
    assert (sample.seconds.tolist(), sample.broken) == ([12.5], 1)


def test_a_log_of_agentgateway_in_one_line_is_a_log() -> None:
    assert read(AGENTGATEWAY).seconds.tolist() == [12.5]


def test_a_log_in_which_nothing_was_answered_well_says_what_there_was() -> None:
    letter = refusal(f"{ENVOY.replace('POST', 'GET')}\n{ENVOY.replace('200', '503')}\n")
    assert "1 requests that are no POST" in letter
    assert "1 requests without an answer of status 2xx" in letter


def test_a_log_that_begins_with_other_lines_is_recognised() -> None:
    head = "2026-11-30T08:15:00.000Z\tinfo\tstarting\n" * 50
    assert read(f"{head}{ISTIO}\n").seconds.tolist() == [12.5]


# --- packed, broken, strange ------------------------------------------------------------------------------------------


def test_gzip_is_unpacked_on_the_way() -> None:
    assert read(gzip.compress(b"duration\n12.5\n")).seconds.tolist() == [12.5]


@pytest.mark.parametrize(
    ("data", "want"),
    [
        (b"", "there is nothing to learn from"),
        (b"\n \n", "there is nothing to learn from"),
        (b"duration\n", "holds one line, which was taken for names, so there is nothing to learn from"),
        (b"2026-11-30T08:15:00Z 12.5 ms\n\n", "holds one line, which was taken for names"),
        (f"duration\n3\n{WIDE}\n".encode(), f"given, line 3, column duration = {WIDE}: is no number"),
        (f"{WIDE}\n3\n".encode(), f"given, line 1 = {WIDE}: is no number"),
        (b"1_000\n3\n", 'given, line 1 = "1_000": is no number'),
        (istio_json(duration=WIDE).encode(), "no request that was answered well"),
        (DEEP.encode(), "is no JSON"),
        (b"duration\n1\n-2\n", "given, column duration = -2: is negative"),
        (b"duration\n1\nnan\nnan\n", "is no duration, and so are 1 others"),
        (b"duration\n1\ninf\n", "is no duration"),
        (b"duration\n1\n\nabc\n", "given, line 4, column duration = abc: is no number"),
        (b"duration\n1\n12,5\n", "Write a point before the decimals"),
        (b"status,duration\n200,1\n200,12,5\n", "has 3 columns, and the first line has 2"),
        (b'path,duration\n"/a,b",1\n"/c",12,5\n', "has 3 columns, and the first line has 2"),
        (b"a;duration\n1;12,5\n", "Write a point before the decimals"),
        (b"duration\n1\n12ms\n", "give the unit with --unit"),
        (b"a,duration\n1,2\n3\n", "line 3, column duration = 3: has 1 column, and the first line has 2"),
        (b"a,duration\n1,2\n3,\n", "line 3"),
        (b"duration\n1\n{}\n", "line 3"),
        (gzip.compress(b"duration\n12.5\n" * 1000, mtime=0)[:-9], "ends too early"),
        (b"\x1f\x8b\x08\x00garbage-garbage", "gzip"),
        (b"PK\x03\x04rest", "packed by zip"),
        (b"\x28\xb5\x2f\xfdrest", "zstd -dc given"),
        (b"BZh9rest", "packed by bzip2"),
        (b"\xfd7zXZ\x00rest", "packed by xz"),
        ("duration\n1\n".encode("utf-16"), "UTF-16"),
        (b"\x7fELF\x02\x01\x01\x00\x00", "zero bytes"),
        (b"dur\xe9e\n1\n", "no text in UTF-8"),
        (b"1" * (2 * 2**20), "more than 1 MiB"),
    ],
)
def test_what_is_no_sample_is_refused_in_a_letter(data: bytes, want: str) -> None:
    assert want in refusal(data)


def test_milliseconds_that_nobody_called_so_are_not_taken_for_seconds() -> None:
    letter = refusal("duration\n900\n12500\n30000\n")
    assert "12500" in letter
    assert "--unit ms" in letter
    assert read("duration\n900\n12500\n30000\n", unit=Unit.MS).seconds.tolist() == [0.9, 12.5, 30.0]
    assert read("duration\n900\n12500\n30000\n", unit=Unit.S).seconds.tolist() == [900, 12500, 30000]


def test_a_request_longer_than_a_week_is_a_mistake_in_the_unit() -> None:
    assert "days in ms" in refusal("duration_ms\n1000\n1000000000\n")


def test_a_secret_in_a_bad_line_is_not_shown() -> None:
    assert "hf_" not in refusal("duration\n1\nhf_abcdefghijklmnopqrstuvwxyz\n")


def test_a_layout_that_is_given_is_believed() -> None:
    assert read("5\n6\n", layout=Layout.JSON).seconds.tolist() == [5.0, 6.0]
    assert "names a column of an access log" in refusal(f"{ENVOY}\n", layout=Layout.ACCESS_LOG, column="duration")


@pytest.mark.parametrize("layout", ["csv", "json", "istio", "istio json"])
def test_a_file_of_many_blocks_reads_as_one_and_keeps_its_line_numbers(
    layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "BLOCK", 100)
    lines = {
        "csv": ["id,duration", *(f"{at},{at}.5" for at in range(1, 200))],
        "json": [f'{{"duration": {at}.5}}' for at in range(1, 200)],
        "istio": [ISTIO.replace(" 12500 ", f" {at}500 ") for at in range(1, 200)],
        "istio json": [istio_json(duration=at * 1000 + 500) for at in range(1, 200)],
    }[layout]
    assert read("\n".join(lines)).seconds.tolist() == [at + 0.5 for at in range(1, 200)]
    if layout in {"csv", "json"}:
        assert "line 151" in refusal("\n".join([*lines[:150], '"x', *lines[150:]]))


@settings(max_examples=400)
@given(
    st.one_of(st.binary(max_size=200), st.lists(PIECES, max_size=30).map(b"".join)),
    st.sampled_from([None, "1", "duration", "a.b"]),
    st.sampled_from([None, *Layout]),
)
def test_whatever_a_file_holds_it_is_read_or_refused_in_a_letter(
    data: bytes, column: str | None, layout: Layout | None
) -> None:
    try:
        assert all(value >= 0 for value in read(data, column=column, layout=layout).seconds.tolist())
    except UnusableError as error:
        assert error.problem.fix  # noqa: PT017  # either is right
    try:
        assert load_of_file(io.BytesIO(data), "given", step=None).pods.min() >= 1
    except UnusableError as error:
        assert error.problem.fix  # noqa: PT017  # either is right
