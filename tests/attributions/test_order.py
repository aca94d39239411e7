"""Steps of an explained Fed-EINI prediction: wrong orders refused, repeats answered as before, bad lines survived."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.replay import CLOSING, HERE, JOB, Conducted, Replay, ask, asked
from tests.simulator import Faults, Federation, run
from tests.worlds import PARTIES
from treetap.errors import OutOfOrder
from treetap.protocols.prediction import predict_request
from treetap.wire.frame import name_of

pytestmark = pytest.mark.xdist_group("explain-steps")

LABEL_HOLDER, FIRST, LAST = PARTIES
ALLOWED = {party: {"emits": {"EXPLANATION": ["parties"], "FEATURE_NAME": ["parties"]}} for party in (FIRST, LAST)}
EXPLAINED: dict[str, Any] = {"explain": True, "attributions": True}
#: What may come after a step, at the label holder and at a feature party, for six new records: two blocks.
NEXT = {
    ("open_model", 0): [("compare_digests", 0), ("send_digest", 0)],
    ("compare_digests", 0): [("take_names", 0)],
    ("send_digest", 0): [("name_features", 0)],
    ("take_names", 0): [("make_keys", 0)],
    ("name_features", 0): [("take_key", 0)],
    ("make_keys", 0): [("score_block", 0)],
    ("take_key", 0): [("mask_block", 0)],
    **{("score_block", block): [("attribute_block", block)] for block in (0, 1)},
    **{("mask_block", block): [("mask_attributions", block)] for block in (0, 1)},
    ("attribute_block", 0): [("score_block", 1)],
    ("mask_attributions", 0): [("mask_block", 1)],
    ("attribute_block", 1): [("write_predictions", 0)],
}


@pytest.fixture(scope="module")
def prediction(tmp_path_factory: pytest.TempPathFactory) -> Conducted:
    """The steps that a coordinator asks for in such a prediction."""

    async def main() -> Conducted:
        federation = Federation(tmp_path_factory.mktemp("explain") / "federation", HERE.tables, policies=ALLOWED)
        await federation.train(JOB)
        before = len(federation.conducted)
        assert (await federation.predict(asked("predict", **EXPLAINED))).state == "finished"
        await federation.close()
        return [event for event in federation.conducted[before:] if name_of(event[2]) not in CLOSING]

    return run(main())


def test_every_wrong_order_is_refused_and_every_repeat_answered(prediction: Conducted, tmp_path: Path) -> None:
    """After each wave every step of the prediction is asked for: done ones answer as before, early ones are refused."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables, policies=ALLOWED)
        await federation.train(JOB)
        replay = Replay(federation, prediction)
        refused = repeated = 0
        async for _ in replay.waves():
            for party in PARTIES:
                if not replay.answers[party]:
                    continue
                done = {
                    (name_of(request), request.round): (request, answer) for request, answer in replay.answers[party]
                }
                allowed = NEXT.get(list(done)[-1], [])
                for request in replay.vocabulary(party):
                    step = (name_of(request), request.round)
                    if step in done:
                        again, answer = done[step]
                        assert await ask(federation, party, again) == answer
                        repeated += 1
                    elif step not in allowed:
                        with pytest.raises(OutOfOrder, match=f"^{step[0]} .*cannot come now; expected"):
                            await ask(federation, party, request)
                        refused += 1
        assert refused > 40
        assert repeated > 60
        written = replay.answers[LABEL_HOLDER][-1][1].prediction.written_predictions
        assert pq.read_table(written.attributions).num_rows == pq.read_table(written.explanations).num_rows == 6
        await federation.close()

    run(main())


def test_without_being_asked_nobody_explains(tmp_path: Path) -> None:
    """The steps belong to the predictions that ask for them, and to no other."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables, policies=ALLOWED)
        await federation.train(JOB)
        await federation.predict(predict_request(model="job", protocol="eini"))
        words = {name_of(request) for _, _, request in federation.conducted}
        assert not words & {"name_features", "take_names", "attribute_block", "mask_attributions"}
        await federation.close()

    run(main())


def test_a_bad_network_changes_nothing(tmp_path: Path) -> None:
    """Lost, late and doubled messages: the same attributions and paths."""

    async def main() -> None:
        faults = Faults(seed=5)
        federation = Federation(tmp_path, HERE.tables, faults=faults, policies=ALLOWED)
        await federation.train(JOB)
        expected = await federation.predict(asked("predict", **EXPLAINED))
        faults.drop = faults.lose_reply = faults.double = 0.1
        faults.delay_s, faults.late_s = 0.5, 3.0
        status = await federation.predict(asked("again", **EXPLAINED))
        assert (status.state, status.error) == ("finished", "")
        assert pq.read_table(status.explanations) == pq.read_table(expected.explanations)
        found, sure = pq.read_table(status.attributions), pq.read_table(expected.attributions)
        for name in sure.column_names[1:]:
            np.testing.assert_allclose(found.column(name), sure.column(name), rtol=0, atol=1e-9)
        await federation.close()

    run(main())
