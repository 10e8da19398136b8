"""Whether two kinds of devices can be the same devices; most of it is shown where releases wait for one another."""

from __future__ import annotations

from typing import Any

import pytest

from stack.spares.kinds import Kind, Kinds, Meeting, kinds_of_claim, kinds_of_resources
from tests import devices as make

Object = dict[str, Any]
NPU = "npu.x"
CLASSES = {
    name: make.device_class(name, f'device.attributes["{NPU}"].model == "{name}"') for name in ("large", "small")
} | {"any": make.device_class("any", f'device.driver == "{NPU}"')}
LARGE, SMALL, ANY, RESOURCE = Kind("large"), Kind("small"), Kind("any"), Kind("x/npu", is_plugins=True)


def pool(*models: str, **pool: int) -> Object:
    held = [make.device(f"d-{index}", model=model) for index, model in enumerate(models)]
    return make.resource_slice(NPU, held, on="a", pool=pool)


@pytest.mark.parametrize(
    ("one", "other", "slices", "want"),
    [
        pytest.param(LARGE, ANY, [pool("large")], Meeting.SHARED, id="one is among all"),
        pytest.param(LARGE, SMALL, [pool("large", "small")], Meeting.APART, id="none is both"),
        pytest.param(LARGE, ANY, [pool("small")], Meeting.APART, id="none is there of one"),
        pytest.param(
            LARGE,
            ANY,
            [pool("large"), pool("small", generation=2)],
            Meeting.APART,
            id="it was there in an older generation of the pool",
        ),
        pytest.param(
            LARGE, ANY, [pool("large", resourceSliceCount=2)], Meeting.SHARED, id="the pool is not published in whole"
        ),
        pytest.param(LARGE, LARGE, None, Meeting.SHARED, id="the same, whatever is there"),
        pytest.param(LARGE, ANY, None, Meeting.UNKNOWN, id="what is there could not be read"),
        pytest.param(RESOURCE, RESOURCE, [], Meeting.SHARED, id="the same resource of a plugin"),
        pytest.param(RESOURCE, ANY, [pool("large")], Meeting.APART, id="a plugin's devices are in no claim"),
    ],
)
def test_kinds_meet(one: Kind, other: Kind, slices: list[Object] | None, want: Meeting) -> None:
    kinds = Kinds(CLASSES, slices)
    assert kinds.meet(one, other) is want
    assert kinds.meet(other, one) is want


def test_a_claim_asks_for_each_alternative_and_a_resource_for_the_class_that_provides_it() -> None:
    either = {"name": "e", "firstAvailable": [{"deviceClassName": "large"}, {"deviceClassName": "small"}]}
    spec = make.claim_spec(make.request("r", "any", 2, "true"), either, make.request("seen", "any", adminAccess=True))
    assert set(kinds_of_claim(spec)) == {Kind("any", ("true",)), LARGE, SMALL}
    assert set(kinds_of_resources(["x/npu", "y/npu"], {"y/npu": "any"})) == {RESOURCE, ANY}
