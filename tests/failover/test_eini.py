"""Fed-EINI while feature parties are away: the others' chain, the covers, and how much is to be expected as guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.failover.test_protocol import EXACT, LABEL_HOLDER, B, C, N, blocks_of, killing, request, written
from tests.oracle import OracleLeaf, oracle_without
from tests.replay import HERE, JOB, ORACLE
from tests.simulator import Federation, Message


def expected_guesses(away: set[str]) -> list[float]:
    """Of the splits to be expected on each record's way by the covers, and by the label holder's, those of `away`."""
    columns = dict(HERE.newcomers)[LABEL_HOLDER]
    shares = []
    for record in range(N):
        passed = guessed = 0.0
        for tree in ORACLE:
            parts = [(1, 1.0)]
            while parts:
                node, part = parts.pop()
                here = tree.nodes[node]
                if isinstance(here, OracleLeaf):
                    continue
                passed += part
                guessed += part if here.owner in away else 0.0
                cover = tree.nodes[2 * node].cover, tree.nodes[2 * node + 1].cover
                left = cover[0] / sum(cover)
                if here.owner == LABEL_HOLDER:
                    left = float(columns[record, here.feature] < here.cut)
                parts += [(2 * node, part * left), (2 * node + 1, part * (1 - left))]
        shares.append(guessed / passed)
    return shares


async def test_degrade_in_the_middle(tmp_path: Path) -> None:
    """Blocks scored before stay exact; later ones are the covers' scores, and flagged with what is to be expected."""
    federation = Federation(tmp_path, HERE.tables)
    await federation.train(JOB)
    done = killing(federation, B, "mask_block", 1, back=False)
    status = await federation.predict(request("p", "degrade", protocol="eini"))
    assert done
    table = written(status)
    assert (list(status.away), status.attempt) == ([B], 2)
    scores, _ = oracle_without(ORACLE, HERE.newcomers, {B})
    assert table.column("score").to_pylist() == pytest.approx(EXACT[:2] + [s for (s,) in scores[2:]], abs=1e-9)
    guessed = expected_guesses({B})
    assert table.column("guessed").to_pylist() == pytest.approx([0.0, 0.0, *guessed[2:]], abs=1e-12)
    assert max(guessed[2:]) > 0
    assert blocks_of(federation, "p", 2) == [0, 1]


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("away", [[B], [C], [B, C]], ids=["the first", "the last", "all but the label holder"])
async def test_degrade_from_the_start(away: list[str], tmp_path: Path) -> None:
    """Whoever of the chain is left; alone, the label holder encrypts nothing and knows every way."""
    federation = Federation(tmp_path, HERE.tables)
    await federation.train(JOB)
    for party in away:
        federation.kill(party)
    status = await federation.predict(request("p", "degrade", protocol="eini"))
    table = written(status)
    assert sorted(status.away) == away
    scores, shares = oracle_without(ORACLE, HERE.newcomers, set(away))
    assert table.column("score").to_pylist() == pytest.approx([s for (s,) in scores], abs=1e-9)
    alone = len(away) == 2
    expected = shares if alone else expected_guesses(set(away))
    assert table.column("guessed").to_pylist() == pytest.approx(expected, abs=1e-12)
    made = [count.name for each in status.accounts for count in each.account.ciphertexts if count.count]
    assert bool(made) != alone


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("protocol", ["interactive", "eini"])
async def test_exact_scores_stay_when_only_the_file_was_left(protocol: str, tmp_path: Path) -> None:
    """All blocks were scored when the label holder died and a party went away: no score of theirs becomes a guess."""
    federation = Federation(tmp_path, HERE.tables)
    await federation.train(JOB)
    died = []

    def hook(message: Message) -> None:
        if not died and message.word == "write_predictions" and not message.served:
            died.append(message)
            federation.kill(LABEL_HOLDER)
            federation.kill(B)
            federation.start(LABEL_HOLDER)

    federation.hook = hook
    status = await federation.predict(request("p", "degrade", protocol=protocol))
    assert died
    table = written(status)
    assert list(status.away) == [B]
    assert (status.scored, status.records) == (N, N)
    assert table.column("score").to_pylist() == pytest.approx(EXACT, abs=1e-9)
    assert table.column("guessed").to_pylist() == [0.0] * N
