"""Every step at every moment: what may not come is refused; every line of the tables of steps is taken in some job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from party.pivodl.party import Party
from party.runtime.step_order import id_of, table_of
from tests.growth.test_order import Answered, every_step_now
from tests.growth.test_step_tables import attempts
from tests.pivodl.federations import assert_central_model, centralised, federation_of, job_of, transparent
from tests.pivodl.jobs import SMALL, SPREAD, WITHOUT_SPLITS
from tests.replay import Replay, steps_of
from tests.simulator import Federation, Message, run
from tests.step_tables import Asked, Line, TableReader, lines_of, taken
from tests.worlds import PARTIES, manifest
from treetap.trees.pivodl_params import PivodlParams

pytestmark = [
    pytest.mark.xdist_group("pivodl-steps"),
    pytest.mark.filterwarnings("ignore:a 512-bit Paillier key"),
]

FIRST, B, C = PARTIES
SECRET = replace(SMALL, gain_comparison="secure", n_estimators=1)
#: Steps of a level, in order.
LEVEL = ("sum_candidates", "forward_sums", "open_sums", "divide_nodes", "settle_children")


def expects(last: Answered) -> list[Asked]:
    """The transition table of every party, written down once more; two trees of two levels."""
    request, result = last
    word, t, level = id_of(request)
    if word in LEVEL[:-1]:
        return [(LEVEL[LEVEL.index(word) + 1], t, level)]
    deeper = result.protocol.pivodl.settled_level.open
    return {
        "prepare": [("compare_digests", 0, 0), ("send_digest", 0, 0)],
        "compare_digests": [("bin", 0, 0)],
        "send_digest": [("bin", 0, 0)],
        "bin": [("exchange_party_keys", 0, 0), ("publish", 0, 0)],
        "exchange_party_keys": [("open_nonces", 0, 0)],
        "open_nonces": [("share_ownership", 0, 0)],
        "share_ownership": [("share_moments", 0, 0)],
        "share_moments": [("share_bins", 0, 0)],
        "share_bins": [("open_root", 0, 0), ("publish", 0, 0)],
        "open_root": [("sum_candidates", t, 0)],
        "settle_children": [("sum_candidates", t, level + 1) if deeper else ("close_tree", t, 0)],
        "close_tree": [("store_tree", t, 0)],
        "store_tree": [("open_root", t + 1, 0), ("publish", 0, 0)],
        "publish": [],
    }[word]


def expects_in_secret(last: Answered) -> list[Asked]:
    """The same where gains are compared without revealing them."""
    word, t, level = id_of(last[0])
    if word == "open_sums":
        return [("compare_gains", t, level)]
    return [("divide_nodes", t, level)] if word == "compare_gains" else expects(last)


JOBS = {
    "gains announced": (SMALL, expects),
    "gains compared": (SECRET, expects_in_secret),
}


def _federation(folder: Path, params: PivodlParams) -> Federation:
    return federation_of(folder, SPREAD, job_of(SPREAD, params))


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("name", JOBS)
def test_every_wrong_order_is_refused(name: str, tmp_path: Path) -> None:
    """After each wave of steps every other step of the job is asked for; the model is the centralised one all the same.

    The replay's parties have other nonces, so that their roles are drawn anew; the steps are the same.
    """
    params, transitions = JOBS[name]
    job = job_of(SPREAD, params)

    async def main() -> None:
        once = _federation(tmp_path / "once", params)
        events = await steps_of(once, job)
        await once.close()
        federation = _federation(tmp_path / "again", params)
        replay = Replay(federation, events)
        refused = 0
        async for _ in replay.waves():
            for party in PARTIES:
                if replay.answers[party]:
                    refused += await every_step_now(replay, party, transitions)
        assert refused > 100
        assert_central_model(federation.states, centralised(SPREAD, params))
        await federation.close()

    with transparent():
        run(main())


def test_every_line_is_taken(tmp_path: Path) -> None:
    """Interrupted in a tree, while models are published, and when all trees of a model without splits are stored."""
    params = replace(SMALL, objective="reg:squarederror")  # its scales outlast the attempt that found them
    lines: set[Line] = set()

    def follow(federation: Federation) -> None:
        for party in PARTIES:
            aligning = "compare_digests" if party == FIRST else "send_digest"
            for steps in attempts(federation, party):
                lines.update(taken(TableReader(table_of(Party), aligning, resumes=range(4)), steps))

    def break_off(
        federation: Federation, step: str, to: str, round: int | None = None, *, served: bool = False
    ) -> None:
        """Kill the party that a step, of a round, goes to, once, before or after the step."""

        def hook(message: Message) -> None:
            if (message.word, message.to, message.served) != (step, to, served):
                return
            if round in (None, federation.jobs.status("job")[0].round):
                federation.hook = None
                federation.kill(to)

        federation.hook = hook

    async def main() -> None:
        federation = _federation(tmp_path / "trees", params)
        job = job_of(SPREAD, params)
        break_off(federation, "close_tree", B, 2)
        assert (await federation.train(job)).state == "interrupted"
        federation.start(B)
        for party in (B, C):
            break_off(federation, "publish", party)
            again = await federation.resume()
            assert again.state == "interrupted", again.error
            federation.start(party)
        assert (await federation.resume()).state == "finished"
        assert_central_model(federation.states, centralised(SPREAD, params))
        follow(federation)
        scales = {(each["label_scale"], each["base_score"]) for each in map(manifest, federation.states.values())}
        loss = centralised(SPREAD, params).loss
        assert scales == {(loss.label_scale, loss.base_score)}
        await federation.close()
        others = _federation(tmp_path / "stumps", WITHOUT_SPLITS)
        job = job_of(SPREAD, WITHOUT_SPLITS)
        break_off(others, "store_tree", FIRST, WITHOUT_SPLITS.n_estimators, served=True)
        assert (await others.train(job)).state == "interrupted"
        others.start(FIRST)
        assert (await others.resume()).state == "finished"
        assert_central_model(others.states, centralised(SPREAD, WITHOUT_SPLITS))
        follow(others)
        await others.close()
        compared = _federation(tmp_path / "compared", SECRET)
        assert (await compared.train(job_of(SPREAD, SECRET))).state == "finished"
        follow(compared)
        await compared.close()

    with transparent():
        run(main())
    assert lines == lines_of(table_of(Party))
