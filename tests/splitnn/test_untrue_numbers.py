"""Embeddings and gradients that are not what the job has: an error that names sender, epoch and batch."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs treetap[neural]")

from tests.simulator import Federation
from tests.splitnn.jobs import EMITS, PARAMS, spec
from tests.worlds import PARTIES, world
from treetap.wire.frame import content_of, name_of
from treetap.wire.v2 import exchange_pb2

pytestmark = pytest.mark.second_tier

HOLDER, FEATURE, _ = PARTIES
HERE = world(49, (2, 2, 1), seed=3)
#: What is changed in a body.
Change = Callable[[Any], None]


def _numbers(value: float) -> Change:
    """One of the numbers is another."""

    def change(body: Any) -> None:
        numbers = np.frombuffer(body.values, dtype="<f4").copy()
        numbers[5] = value
        body.values = numbers.tobytes()

    return change


def _fewer_rows(body: Any) -> None:
    body.rows -= 1
    body.values = body.values[: body.rows * body.width * 4]


def _more_rows(body: Any) -> None:
    body.rows += 1
    body.values += body.values[: body.width * 4]


def _narrower(body: Any) -> None:
    body.width -= 1


def _other_type(body: Any) -> None:
    body.wire_type = "bfloat16"


def _shorter(body: Any) -> None:
    body.values = body.values[:-1]


def _none(body: Any) -> None:
    body.rows, body.values = 0, b""


CHANGES: dict[str, tuple[Change, str]] = {
    "no number": (_numbers(float("nan")), "with a number that is not finite"),
    "infinite": (_numbers(float("-inf")), "with a number that is not finite"),
    "fewer rows": (_fewer_rows, "with 11 rows of 12"),
    "more rows": (_more_rows, "with more rows than the 12 that there are"),
    "no rows": (_none, "with 0 rows of 12"),
    "another width": (_narrower, "with width 3, where the job has 4"),
    "another type": (_other_type, "as 'bfloat16', where the job has float32"),
    "fewer bytes": (_shorter, "with 191 bytes for 12 × 4 numbers of float32"),
}
#: Kind, sender, receiver.
KINDS = {"embeddings": (FEATURE, HOLDER), "embedding_gradients": (HOLDER, FEATURE)}


#: All changes of embeddings, and of gradients, which are read by the same code, those of numbers.
CASES = [*((what, "embeddings") for what in CHANGES), *((what, "embedding_gradients") for what in list(CHANGES)[:3])]


@pytest.mark.parametrize(("what", "kind"), CASES)
async def test_the_error_names_sender_epoch_and_batch(what: str, kind: str, tmp_path: Path) -> None:
    """The job fails, and no model is published."""
    change, says = CHANGES[what]
    sender, receiver = KINDS[kind]

    federation = Federation(tmp_path, HERE.tables, policies=EMITS, silence_s=5.0)
    changed = []

    def tamper(by: str, to: str, message: exchange_pb2.PeerMessage) -> None:
        place = (message.round, message.stage)
        if (by, to, name_of(message), place) == (sender, receiver, kind, (1, 2)):
            changed.append(kind)
            change(content_of(message, kind))

    federation.tamper = tamper
    status = await federation.train(spec(PARAMS))
    assert changed
    assert status.state == "failed"
    assert f"{sender} sent {kind} of epoch 1, batch 2 {says}" in status.error
    assert not (federation.state(receiver) / "models" / "job").exists()


async def test_a_loss_that_is_not_finite_ends_the_job(tmp_path: Path) -> None:
    """Embeddings that are numbers, and far too large: the label holder names epoch, batch and what to change."""

    federation = Federation(tmp_path, HERE.tables, policies=EMITS)

    def tamper(by: str, _: str, message: exchange_pb2.PeerMessage) -> None:
        if (by, name_of(message), message.stage) == (FEATURE, "embeddings", 3):
            body = content_of(message, "embeddings")
            body.values = np.full(body.rows * body.width, 3e38, dtype="<f4").tobytes()

    federation.tamper = tamper
    status = await federation.train(spec(PARAMS))
    await federation.close()
    assert status.state == "failed"
    assert re.search(r"label-holder: the loss of epoch \d, batch \d is not finite; a smaller learning_", status.error)


async def test_a_network_that_diverges_ends_the_job(tmp_path: Path) -> None:
    """The first party whose numbers overflow is named."""

    says = "feature-b: the embeddings of batch 3 of epoch 0 are not finite; a smaller learning_rate keeps them so"
    federation = Federation(tmp_path, HERE.tables, policies=EMITS)
    params = replace(PARAMS, learning_rate=100.0, weight_decay=1.0, epochs=9, momentum=0.99)
    status = await federation.train(spec(params))
    await federation.close()
    assert status.state == "failed"
    assert status.error == says
