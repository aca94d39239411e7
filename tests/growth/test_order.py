"""Every step at every moment: what may not come is refused, a repeat is answered as before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from party.protocols import role_for_training
from party.runtime.context import Role
from party.runtime.step_order import id_of
from tests.replay import HERE, JOB, ORACLE, Conducted, Replay, ask, with_word
from tests.simulator import Federation, run
from tests.step_tables import Asked
from tests.worlds import PARTIES, assert_oracles_model, assert_oracles_scores
from treetap.errors import Conflict, OutOfOrder, UnknownJob
from treetap.wire.frame import filled, name_of
from treetap.wire.v2 import control_pb2, setup_pb2

LABEL_HOLDER, FEATURE = PARTIES[0], PARTIES[1]

Answered = tuple[control_pb2.StepRequest, control_pb2.StepResult]
#: What may come after the last step of a party.
Expects = Callable[[Answered], list[Asked]]


def feature_party_expects(last: Answered) -> list[Asked]:
    """The transition table of a feature party, written down once more."""
    request, _ = last
    t, level = request.round, request.stage
    deeper_or_done = [("build_histograms", t, level + 1), ("store_tree", t, 0)]
    return {
        "prepare": [("send_digest", 0, 0)],
        "send_digest": [("bin", 0, 0)],
        "bin": [("take_key", 0, 0), ("publish", 0, 0)],
        "take_key": [("build_histograms", 0, 0), ("publish", 0, 0)],
        "build_histograms": [("apply_splits", t, level), *deeper_or_done],
        "apply_splits": deeper_or_done,
        "store_tree": [("build_histograms", t + 1, 0), ("publish", 0, 0)],
        "publish": [],
    }[name_of(request)]


def label_holder_expects(last: Answered) -> list[Asked]:
    """The transition table of the label holder, written down once more."""
    request, result = last
    t, level = request.round, request.stage
    winners = {decision.owner for decision in result.growth.chosen_splits.decisions}
    own_first = ("apply_splits" if LABEL_HOLDER in winners else "relay_children", t, level)
    build = result.growth.relayed_children.build
    return {
        "prepare": [("compare_digests", 0, 0)],
        "compare_digests": [("bin", 0, 0)],
        "bin": [("make_keys", 0, 0), ("publish", 0, 0)],
        "make_keys": [("begin_tree", 0, 0), ("publish", 0, 0)],
        "begin_tree": [("choose_splits", t, 0)],
        "choose_splits": [own_first if winners else ("finish_tree", t, 0)],
        "apply_splits": [("relay_children", t, level)],
        "relay_children": [("choose_splits", t, level + 1) if build else ("finish_tree", t, 0)],
        "finish_tree": [("store_tree", t, 0)],
        "store_tree": [("begin_tree", t + 1, 0), ("publish", 0, 0)],
        "publish": [],
    }[name_of(request)]


def asker_expects(last: Answered) -> list[Asked]:
    """The transition table of a label holder that predicts: blocks of four for six records, hence two."""
    request, result = last
    block, level = request.round, request.stage
    next_block = ("ask_directions", block + 1, 0) if block == 0 else ("write_predictions", 0, 0)
    return {
        "open_model": [("compare_digests", 0, 0)],
        "compare_digests": [("ask_directions", 0, 0)],
        "ask_directions": [
            ("take_directions", block, level) if result.protocol.interactive.asked_directions.asked else next_block
        ],
        "take_directions": [("ask_directions", block, level + 1)],
        "write_predictions": [],
    }[name_of(request)]


def router_expects(last: Answered) -> list[Asked]:
    """The transition table of a feature party that predicts: it cannot know which block it is asked about next."""
    request, _ = last
    if name_of(request) == "open_model":
        return [("send_digest", 0, 0)]
    now = (request.round, request.stage) if name_of(request) == "answer_directions" else (-1, 0)
    return [("answer_directions", b, level) for b in range(2) for level in range(3) if (b, level) > now]


async def every_step_now(replay: Replay, party: str, expects: Expects) -> int:
    """Ask a party for every step of the job, except for those that may come now."""
    done = {id_of(request): (request, result) for request, result in replay.answers[party]}
    allowed = expects(replay.answers[party][-1])
    refused = 0
    for request in replay.vocabulary(party):
        if id_of(request) in done:
            again, answer = done[id_of(request)]
            assert await ask(replay.federation, party, again) == answer
            continue
        if id_of(request) in allowed:
            continue
        with pytest.raises(OutOfOrder, match=f"^{name_of(request)} .*cannot come now; expected"):
            await ask(replay.federation, party, request)
        refused += 1
    return refused


def test_every_wrong_order_of_a_training_is_refused(jobs: tuple[Conducted, Conducted], tmp_path: Path) -> None:
    """After each wave of steps every other step of the job is asked for too; the model is the oracle's all the same."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        replay = Replay(federation, jobs[0])
        refused = 0
        async for _ in replay.waves():
            for party in PARTIES:
                expects = label_holder_expects if party == LABEL_HOLDER else feature_party_expects
                if replay.answers[party]:
                    refused += await every_step_now(replay, party, expects)
                    continue
                for request in replay.vocabulary(party)[1:]:
                    with pytest.raises(UnknownJob, match="holds no job 'job'; was it restarted"):
                        await ask(federation, party, request)
        assert refused > 400
        assert_oracles_model(federation.states, ORACLE)
        await federation.close()

    run(main())


def test_every_wrong_order_of_a_prediction_is_refused(jobs: tuple[Conducted, Conducted], tmp_path: Path) -> None:
    """The same for the steps of an interactive prediction."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        await federation.train(JOB)
        replay = Replay(federation, jobs[1])
        refused = 0
        async for _ in replay.waves():
            for party in PARTIES:
                expects = asker_expects if party == LABEL_HOLDER else router_expects
                if replay.answers[party]:
                    refused += await every_step_now(replay, party, expects)
        assert refused > 50
        path = replay.answers[LABEL_HOLDER][-1][1].prediction.written_predictions.path
        assert_oracles_scores(path, ORACLE, HERE.newcomers, 16)
        await federation.close()

    run(main())


def test_what_a_step_refuses_while_it_waits(jobs: tuple[Conducted, Conducted], tmp_path: Path) -> None:
    """While a step is under way its repeat joins it, another step is out of order, other content is a conflict."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        replay = Replay(federation, jobs[0])
        await replay.to(before="begin_tree")
        build = next(request for request in replay.vocabulary(FEATURE) if name_of(request) == "build_histograms")
        waiting = [asyncio.ensure_future(ask(federation, FEATURE, build)) for _ in range(2)]
        await asyncio.sleep(0.1)
        other = control_pb2.StepRequest.FromString(build.SerializeToString())
        other.growth.build_histograms.nodes.append(2)
        with pytest.raises(Conflict, match="build_histograms of round 0, stage 0 came again with other content"):
            await ask(federation, FEATURE, other)
        store = control_pb2.StepRequest(job="job", attempt=1)
        filled(store, "store_tree")
        with pytest.raises(OutOfOrder, match="came while build_histograms of round 0, stage 0 is under way"):
            await ask(federation, FEATURE, store)
        begin = control_pb2.StepRequest(job="job", attempt=1)
        filled(begin, "begin_tree")
        others = [asyncio.ensure_future(ask(federation, PARTIES[2], build))]
        await asyncio.gather(ask(federation, LABEL_HOLDER, begin), *waiting, *others)
        assert waiting[0].result() == waiting[1].result()
        await federation.close()

    run(main())


def test_a_caller_that_goes_away_does_not_take_the_step_with_it(
    jobs: tuple[Conducted, Conducted], tmp_path: Path
) -> None:
    """A step whose caller hangs up is done all the same, once; asking again gives its answer."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        replay = Replay(federation, jobs[0])
        async for _ in replay.waves():
            pass
        publish = replay.vocabulary(FEATURE)[-1]
        fresh = Federation(tmp_path / "fresh", HERE.tables)
        again = Replay(fresh, jobs[0])
        await again.to(before="publish")
        call = asyncio.ensure_future(ask(fresh, FEATURE, publish))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert await ask(fresh, FEATURE, publish) == replay.answers[FEATURE][-1][1]
        assert (fresh.state(FEATURE) / "models" / "job" / "manifest.json").is_file()
        await federation.close()
        await fresh.close()

    run(main())


def test_a_step_with_other_content_is_a_conflict(jobs: tuple[Conducted, Conducted], tmp_path: Path) -> None:
    """For every done step that has content: the same step with other content is refused and nothing changes."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        replay = Replay(federation, jobs[0])
        words = set()
        async for _ in replay.waves():
            for party in PARTIES:
                for request, _ in replay.answers[party]:
                    other = control_pb2.StepRequest.FromString(request.SerializeToString())
                    if name_of(other) == "prepare":
                        other.setup.prepare.spec.table = "predict"
                    elif name_of(other) == "build_histograms":
                        other.growth.build_histograms.nodes.append(7)
                    else:
                        continue
                    words.add(name_of(other))
                    with pytest.raises(Conflict, match=f"{name_of(other)} of .* came again with other content"):
                        await ask(federation, party, other)
        assert words == {"prepare", "build_histograms"}
        assert_oracles_model(federation.states, ORACLE)
        await federation.close()

    run(main())


def test_an_opening_that_comes_twice_opens_once(
    jobs: tuple[Conducted, Conducted], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two copies of an attempt's first step, while the last attempt's session is being closed, find one session."""
    opened = []

    def counted(*args: Any) -> Role:
        opened.append(args)
        return role_for_training(*args)

    monkeypatch.setattr("party.opening.role_for_training", counted)

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        await Replay(federation, jobs[0]).to(before="make_keys")
        waiting = asyncio.ensure_future(ask(federation, FEATURE, with_word("take_key")))
        await asyncio.sleep(0.1)
        opened.clear()
        prepare = with_word("prepare", attempt=2)
        first, second = await asyncio.gather(*(ask(federation, FEATURE, prepare) for _ in range(2)))
        assert first == second
        assert len(opened) == 1
        await asyncio.gather(waiting, return_exceptions=True)
        await federation.close()

    run(main())


def test_a_new_attempt_ends_the_old_one(jobs: tuple[Conducted, Conducted], tmp_path: Path) -> None:
    """A step that waits is ended by the next attempt's opening, and the party works for the new attempt alone."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        replay = Replay(federation, jobs[0])
        await replay.to(before="make_keys")
        take = with_word("take_key")
        waiting = asyncio.ensure_future(ask(federation, FEATURE, take))
        await asyncio.sleep(0.1)
        prepared = await ask(federation, FEATURE, with_word("prepare", attempt=2))
        assert prepared.setup.prepared == setup_pb2.Prepared(aligned_attempt=1)
        (ended,) = await asyncio.gather(waiting, return_exceptions=True)
        assert "feature-b left the job or was stopped while this step was under way" in str(ended)
        with pytest.raises(OutOfOrder, match="attempt 1 of job job is over: attempt 2 has begun"):
            await ask(federation, FEATURE, take)
        await federation.close()

    run(main())
