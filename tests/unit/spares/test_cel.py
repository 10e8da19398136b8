from __future__ import annotations

import sys

import pytest

from stack.spares.cel import Answer, DeviceView, selector_of

DEVICE = DeviceView(
    driver="npu.x",
    attributes={
        "npu.x/count": ("int", 3),
        "npu.x/model": ("string", "CA25"),
        "npu.x/fast": ("bool", True),
        "npu.x/firmware": ("version", "1.2.3"),
        "resource.kubernetes.io/numaNode": ("int", 0),
    },
    capacity={"npu.x/memory": "80Gi"},
)
A, C = 'device.attributes["npu.x"]', 'device.capacity["npu.x"]'

YES = (
    'device.driver == "npu.x"',
    f"{A}.count == 3 && {A}.fast",
    f"{A}.count in [1, 3]",
    f"{A}.count == 3.0",
    f'{A}.count != "3"',
    f'{A}["model"].startsWith("CA")',
    f'{A}.model.matches("^CA[0-9]+$")',
    f'"model" in {A}',
    f'!("gone" in {A})',
    f"!has({A}.gone)",
    '!has(device.attributes["other"].model)',
    'device.attributes["resource.kubernetes.io"].numaNode == 0',
    f"{A}.gone == 1 || true",
    f"true || {A}.gone == 1",
    f"!(false && {A}.gone == 1)",
    f'{C}.memory.compareTo(quantity("80Gi")) == 0',
    f'{C}.memory == quantity("81920Mi")',
    f'{C}.memory.isGreaterThan(quantity("79Gi"))',
    f'{A}.firmware.isLessThan(semver("1.10.0"))',
    f'{A}.firmware.compareTo(semver("1.2.3-rc.1")) > 0',
    f'{A}.firmware == semver("1.2.3+build.7")',
    f"{A}.firmware.major() == 1 && {A}.firmware.minor() == 2 && {A}.firmware.patch() == 3",
    'semver("1.0.0-alpha.2").isLessThan(semver("1.0.0-alpha.10"))',
    'semver("1.0.0-9").isLessThan(semver("1.0.0-a"))',
    'isSemver("1.0.0") && !isSemver("v1.0") && isQuantity("3Gi") && !isQuantity("3Gib")',
    "!device.allowMultipleAllocations",
    f'{A}.exists(name, name == "model")',
)
NO = ('device.driver == "nic.x"', f"{A}.count > 3", f"{A}.model == 3", f'{C}.memory.isLessThan(quantity("80Gi"))')
FAILS = (
    f'{A}.gone == "x"',
    'device.attributes["other"].model == "x"',
    f'{C}.gone.compareTo(quantity("1")) > 0',
    f"{A}.count",
    f"{A}.gone == 1 && true",
)
UNKNOWN = (
    f'{A}.?model.orValue("") == "CA25"',
    f"cel.bind(own, {A}, own.fast)",
    f'{A}.model.lowerAscii() == "ca25"',
    f"{A}.count < 2.5",
    f'{A}.firmware == "1.2.3"',
    "device.health == true",
    "not an expression",
    "",
    'device.driver == "npu.x" && (',
)


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        *((expression, Answer.YES) for expression in YES),
        *((expression, Answer.NO) for expression in NO),
        *((expression, Answer.FAILS) for expression in FAILS),
        *((expression, Answer.UNKNOWN) for expression in UNKNOWN),
    ],
)
def test_a_selector_answers_as_kubernetes_would_or_not_at_all(expression: str, want: Answer) -> None:
    assert selector_of(expression).ask(DEVICE) is want


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        (f'{A}.model == "x" && {C}["memory"] == quantity("1")', {"attributes npu.x/model", "capacity npu.x/memory"}),
        (f'"model" in {A}', {"attributes npu.x/model"}),
        ('device.driver == "device.attributes"', set[str]()),
        (f'{A}["mo" + "del"] == "x"', None),
        (f'{A}.exists(name, name == "model")', None),
        (f"size({A}) == 3", None),
        (f'{A}["mod\\u0065l"] == "x"', None),
        ("device == device", None),
    ],
)
def test_what_an_expression_can_read_is_known_or_everything(expression: str, want: set[str] | None) -> None:
    reads = selector_of(expression).reads
    assert (None if reads is None else {" ".join(read) for read in reads}) == want


def test_devices_that_differ_in_what_is_read_are_told_apart_and_others_are_not_asked_about_twice() -> None:
    selector = selector_of(f'{A}.model == "CA25" && {A}.count >= 0')

    def like(**over: object) -> DeviceView:
        return DeviceView(driver="npu.x", attributes=DEVICE.attributes | over, capacity={})  # type: ignore[operator]

    assert selector.ask(like()) is Answer.YES
    assert selector.ask(like(**{"npu.x/model": ("string", "CA12")})) is Answer.NO
    assert selector.ask(like(**{"npu.x/uuid": ("string", "1")})) is Answer.YES


def test_a_version_that_is_none_is_not_known() -> None:
    broken = DeviceView(driver="npu.x", attributes={"npu.x/firmware": ("version", "one")}, capacity={})
    assert selector_of(f'{A}.firmware == semver("1.0.0")').ask(broken) is Answer.UNKNOWN


def test_compiling_leaves_the_recursion_limit_of_the_process_alone() -> None:
    limit = sys.getrecursionlimit()
    selector_of("device.driver != 'limit'")
    assert sys.getrecursionlimit() == limit
