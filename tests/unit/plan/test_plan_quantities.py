from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.scalars import amount, canonical


@pytest.mark.parametrize(
    ("written", "want"),
    [
        pytest.param("8Gi", "8Gi", id="canonical already"),
        pytest.param("1024Mi", "1Gi", id="the largest binary unit"),
        pytest.param("1000Mi", "1000Mi", id="no whole number of the next binary unit"),
        pytest.param("460Gi", "460Gi", id="memory of the reference"),
        pytest.param("1.5Gi", "1536Mi", id="a fraction of a binary unit"),
        pytest.param("0.5Ki", "512", id="less than 1Ki loses its unit"),
        pytest.param("512Ki", "512Ki", id="512 of a binary unit keep it"),
        pytest.param("0.1Gi", "107374182400m", id="no whole bytes: decimal"),
        pytest.param("16Ei", "9223372036854775807", id="more than 63 bits hold is cut there"),
        pytest.param("4000m", "4", id="millis to units"),
        pytest.param("1500m", "1500m", id="no whole number of units"),
        pytest.param("0.5", "500m", id="a fraction"),
        pytest.param(".5", "500m", id="a fraction without a whole part"),
        pytest.param("1.25", "1250m", id="a fraction above 1"),
        pytest.param("1.0005", "1000500u", id="finer than millis"),
        pytest.param("0.1n", "1n", id="finer than anything is rounded up"),
        pytest.param("1000", "1k", id="units to thousands"),
        pytest.param("1000000", "1M", id="units to millions"),
        pytest.param("1500k", "1500k", id="no whole number of millions"),
        pytest.param("40", "40", id="CPUs of the reference"),
        pytest.param("5.", "5", id="a point and nothing after it"),
        pytest.param("+5", "5", id="a plus"),
        pytest.param("007", "7", id="zeros in front"),
        pytest.param("1e3", "1e3", id="an exponent stays one"),
        pytest.param("1E3", "1e3", id="in lower case"),
        pytest.param("1e4", "10e3", id="in steps of three"),
        pytest.param("5e-1", "500e-3", id="also below zero"),
        pytest.param("1E", "1E", id="a capital E alone is exa"),
        pytest.param("0", "0", id="nothing"),
        pytest.param("0Gi", "0", id="nothing, of some unit"),
        pytest.param("0.0", "0", id="nothing, with a point"),
    ],
)
def test_the_api_server_keeps(written: str, want: str) -> None:
    assert canonical(written) == want


@pytest.mark.parametrize("text", ["", "8GB", "five", "1 Gi", "1e", "--5"])
def test_what_is_no_quantity_has_no_canonical_form(text: str) -> None:
    with pytest.raises(ValueError, match=text or "^$"):
        canonical(text)


SUFFIXES = st.sampled_from(["", "n", "u", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "e3", "e-2", "E4"])
QUANTITIES = st.tuples(st.integers(0, 10**6), st.integers(0, 3), SUFFIXES).map(
    lambda parts: f"{parts[0] / 10 ** parts[1]:.{parts[1]}f}{parts[2]}"
)


@given(QUANTITIES)
def test_writing_it_again_changes_nothing(quantity: str) -> None:
    assert canonical(canonical(quantity)) == canonical(quantity)


@given(QUANTITIES)
def test_the_amount_stays_the_same_but_for_less_than_a_billionth(quantity: str) -> None:
    assert 0 <= amount(canonical(quantity)) - amount(quantity) < amount("1n")


@given(st.integers(1, 10**6), st.integers(0, 4))
def test_equal_amounts_of_one_family_have_one_form(number: int, power: int) -> None:
    units = ["Ki", "Mi", "Gi", "Ti", "Pi"]
    assert canonical(f"{number * 1024}{units[power]}") == canonical(f"{number}{[*units, 'Ei'][power + 1]}")
