"""Jobs that do not fit a party's table, and networks that diverge: the error names the party, the field and the fix."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs treetap[neural]")

from tests.splitnn.networks import federation
from tests.splitnn.test_faults import THREE, TINY
from tests.worlds import World, spec, world
from treetap.neural.params import DEFAULT, Bottom, SplitnnParams, Top

pytestmark = pytest.mark.second_tier

REGRESSION = world(20, (1, 1, 1), objective="reg:squarederror", seed=3)
CLASSES = world(20, (1, 1, 1), objective="multi:softprob", classes=3, seed=3)
DIVERGING = replace(
    TINY,
    epochs=40,
    objective="reg:squarederror",
    learning_rate=100.0,
    bottom={DEFAULT: Bottom(hidden=(8,), width=4)},
    top=Top((8,)),
)
_SMALLER = r"(epoch|of) \d+(, batch \d+)? (is|are) not finite; a smaller learning_rate keeps (it|them) so"
#: World, parameters, and the error.
MISFITS: dict[str, tuple[World, SplitnnParams, str]] = {
    "larger than the training set": (
        THREE,
        replace(TINY, batch_size=10),
        r"(label-holder|feature-[bc]): batch_size = 10: there are 9 records to train on; name a smaller one",
    ),
    "larger than what validation leaves": (
        THREE,
        replace(TINY, batch_size=8, early_stopping_rounds=1, validation_share=0.4),
        r"batch_size = 8: there are 5 records to train on",
    ),
    "three classes for two": (CLASSES, TINY, r"^label-holder: .*(classes|labels)"),
    "numbers for classes": (REGRESSION, TINY, r"^label-holder: .*(classes|labels)"),
    "images that are none": (
        THREE,
        replace(TINY, bottom={DEFAULT: Bottom("cnn", channels=(2,), width=2)}),
        r"(label-holder|feature-[bc]): .*takes one column of images and no other",
    ),
    "diverging": (REGRESSION, DIVERGING, rf"^(label-holder|feature-[bc]): .*{_SMALLER}"),
    "diverging, bfloat16": (REGRESSION, replace(DIVERGING, wire_type="bfloat16"), rf": .*{_SMALLER}"),
    "diverging with validation records": (
        REGRESSION,
        replace(DIVERGING, early_stopping_rounds=40, validation_share=0.3),
        rf": .*{_SMALLER}",
    ),
}


@pytest.mark.parametrize("what", MISFITS)
async def test_it_is_named(what: str, tmp_path: Path) -> None:
    """The job fails as bad input, no party keeps a file of it, and no party is blamed that did as the job says."""
    here, params, says = MISFITS[what]

    running = federation(tmp_path, here)
    status = await running.train(spec(params))
    assert status.state == "failed"
    assert re.search(says, status.error), status.error
    assert status.bad_input
    for state in running.states.values():
        assert list((state / "jobs").iterdir()) == []
        assert list((state / "models").iterdir()) == []
