"""Screenings whose sums are shared: of each party one side of its best cut in the joined table, and nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.attacks.present import present
from tests.attacks.recorded import audit_file_of, laid_out
from tests.attacks.test_victims_of_trees import _file, _victim
from tests.boosting.categories import categorical_world
from tests.commands.command import treetap_here
from tests.growth.test_shared_sums import job_of
from tests.simulator import DEALER, Federation, failed, finished
from tests.worlds import FOUR, PARTIES, World, lacking, world
from treetap.arrays import Bools, Ints
from treetap.attacks.audit import audit
from treetap.attacks.sums.schema import NOTHING_OFFERED
from treetap.models.store import REPORT, SCREEN, read_model
from treetap.party.alignment import pairs as alignment
from treetap.party.defences.settings import Defences
from treetap.party.growth.rules import screening as rule
from treetap.trees.binning import bin_table
from treetap.trees.loss import UNIT
from treetap.trees.params import LEAST_H, BoostingParams
from treetap.trees.screening import LEVEL, best_cut, own_of, values_of
from treetap.trees.tree_bins import GlobalBins, left_sums_of
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2, setup_pb2

HOLDER, B, C = PARTIES
PARAMS = BoostingParams(max_bin=48, instance_spaces="withheld").screened()
THREE = partial(world, 150, (2, 2, 1), missing=0.1, levels=2)
TWO = partial(world, 60, (1, 1), levels=2)


def _job(here: World, **changes: Any) -> setup_pb2.JobSpec:
    return job_of(PARAMS, len(here.blocks), screen=True, **changes)


def _scores(records: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(7).uniform(0.45, 0.55, records)


@pytest.fixture(autouse=True)
def _own_scores_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the label holder's order is that of ids."""
    monkeypatch.setattr(rule, "own_scores", lambda _table, labels, _seed: _scores(len(labels)))
    monkeypatch.setattr(alignment, "permutation", np.arange)


@dataclass(frozen=True)
class Case:
    """A screening of a world. `fewest`: by party the records that it wants on either side."""

    here: Callable[[], World] = THREE
    job: dict[str, Any] = field(default_factory=dict)
    encode: Any = None
    fewest: dict[str, int] = field(default_factory=dict)


CASES = {
    "two feature parties": Case(),
    "one feature party": Case(partial(world, 120, (1, 3), missing=0.1, levels=3)),
    "three, and no own columns": Case(partial(world, 120, (0, 1, 0, 2), levels=2)),
    "categories": Case(partial(categorical_world, 160, missing=0.1), encode="categorical"),
    "from the left": Case(lambda: lacking(THREE(), 0.3), {"alignment": "psi", "join": "left"}),
    "sides of many records": Case(fewest={B: 70}),
    "none is heavy enough": Case(partial(world, 30, (1, 1, 1), levels=2)),
}


def _sides(column: np.ndarray[Any, Any], *, categories: bool) -> Iterator[Bools]:
    """The records on a side of each cut of a column, (N,)."""
    there = ~np.isnan(column)
    values = np.unique(column[there])
    for left in [column == value for value in values] if categories else [column < value for value in values[1:]]:
        yield left
        yield left | ~there
    yield there


def _best(here: World, at: int, values: Ints, least: int) -> tuple[Fraction, list[tuple[int, int]]]:
    """The largest Σ G²/(H + λ′) of a party's cuts, and the sums of the lighter sides that have it."""
    whole, best, sides = values.sum(axis=0).tolist(), Fraction(0), list[tuple[int, int]]()
    for j, column in enumerate(here.blocks[at].T):
        for left in _sides(column, categories=(FOUR[at], j) in here.categories):
            g, h = values[left].sum(axis=0).tolist()
            parts = [(g, h), (whole[0] - g, whole[1] - h)]
            if min(part[1] for part in parts) < LEAST_H * UNIT or min(left.sum(), (~left).sum()) < least:
                continue
            score = sum((Fraction(g * g, h + 1) for g, h in parts), Fraction(0))
            best, sides = (score, []) if score > best else (best, sides)
            sides += [min(parts, key=lambda part: part[1])] if score == best else []
    return best, sides


def _cuts(federation: Federation) -> dict[str, list[int]]:
    """What the label holder has stored: by party the number of cuts, and the sums of g and h on a side of the best."""
    stored: dict[str, list[int]] = read_model(federation.state(HOLDER) / "models" / "job")[1][0][SCREEN]["cuts"]
    return stored


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("name", CASES)
async def test_the_best_cut_is_that_of_the_joined_table(name: str, tmp_path: Path) -> None:
    """By a loop over all cuts of each party's columns, in fractions; p by its definition."""
    case = CASES[name]
    here, scores = case.here(), _scores(len(case.here().y))
    defences = {party: Defences(min_side_records=least) for party, least in case.fewest.items()}
    federation = Federation(tmp_path, here.tables, dealer=True, encode=case.encode, defences=defences)
    finished(await federation.train(_job(here, **case.job)))
    report = json.loads((federation.state(HOLDER) / "models" / "job" / REPORT).read_bytes())
    values, found = values_of(scores, here.y), []
    own = own_of(scores, values)
    for at, (party, said) in enumerate(zip(FOUR[1 : len(here.blocks)], report["parties"], strict=True), start=1):
        best, sides = _best(here, at, values[:, :2], case.fewest.get(party, 0))
        cuts, *side = _cuts(federation)[party]
        assert tuple(side) in (sides or [(0, 0)])
        statistic = 0.0 if not sides else (float(best) / UNIT - own.g**2 / own.h) / own.spread
        assert (said["party"], said["cuts"]) == (party, cuts)
        assert said["p_value"] == pytest.approx(min(1.0, cuts * math.erfc(math.sqrt(statistic / 2))), rel=1e-6)
        found += sides
    assert bool(found) == (name != "none is heavy enough")


async def test_what_leaves(tmp_path: Path) -> None:
    """No set, no place of a cut, no column's bins, and no figure to the coordinator; of each party two numbers."""
    here, sent = THREE(), dict[str, set[tuple[str, str]]]()
    refuses: dict[str, Any] = {party: {"emits": {"COLUMN_BINS": []}} for party in (B, C)}
    federation = Federation(tmp_path, here.tables, dealer=True, policies=refuses)

    def noted(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> None:
        sent.setdefault(name_of(parcel), set()).add((sender, to))

    federation.tamper = noted
    status = finished(await federation.train(_job(here)))
    assert not status.metrics
    told = {"screened_columns", "won_splits", "children", "champion_share", "sampled_records", "left_choices"}
    assert not told & {*sent}
    assert sent["winner_shares"] == {(B, HOLDER), (C, HOLDER)}


def _flipped(numbers: bytes) -> bytes:
    return bytes([numbers[0] ^ 1]) + numbers[1:]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_flipped, "no share of the score of a candidate"),
        (lambda numbers: numbers[8:], "bytes of winner_shares, where"),
    ],
)
async def test_a_share_of_no_score_is_refused_by_name(change: Any, said: str, tmp_path: Path) -> None:
    here = TWO()

    def tamper(_sender: str, _to: str, parcel: exchange_pb2.PeerMessage) -> None:
        if name_of(parcel) == "winner_shares":
            parcel.growth.winner_shares.numbers = change(parcel.growth.winner_shares.numbers)

    federation = Federation(tmp_path, here.tables, dealer=True)
    federation.tamper = tamper
    failed(await federation.train(_job(here)), B, said)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("victim", "word"),
    [(B, "winner_shares"), (B, "choose_shares"), (HOLDER, "shares"), (HOLDER, "store_tree"), (DEALER, "deal")],
)
async def test_a_killed_screening_goes_on(victim: str, word: str, tmp_path: Path) -> None:
    """Its sums are those of one which was not."""
    here = TWO()
    federation = Federation(tmp_path, here.tables, dealer=True)
    federation.kill_at(victim, lambda message: message.word == word, back=True)
    status = await federation.train(_job(here))
    finished(status if status.state == "finished" else await federation.resume())
    best, sides = _best(here, 1, values_of(_scores(60), here.y)[:, :2], 0)
    assert best > 0
    assert tuple(_cuts(federation)[B][1:]) in sides


async def test_the_report_says_what_it_has_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = TWO()
    federation = Federation(tmp_path, here.tables, dealer=True)
    finished(await federation.train(_job(here)))
    for words in ((), ("--json",)):
        assert treetap_here("screen", str(federation.state(HOLDER) / "models" / "job"), *words) == 0
    printed, report = (said := capsys.readouterr().out)[: said.index("{")], json.loads(said[said.index("{") :])
    assert "no IV, WOE or redundancy, nor an interval of AUC" in printed
    assert report["parties"][0]["said"] in printed
    assert {*report["parties"][0]} == {"party", "cuts", "gain_beyond", "p_value", "said"}


@pytest.mark.parametrize(("records", "share", "columns"), [(600, 0.3, 4), (1500, 0.02, 4)])
def test_noise_reads_nothing_found_in_95_of_100_draws(records: int, share: float, columns: int) -> None:
    """And gains nothing on average; what is there is found."""
    rng, gains, wrong = np.random.default_rng(5), list[float](), 0
    for draw in range(60):
        p = 1 / (1 + np.exp(-(math.log(share / (1 - share)) + rng.normal(size=records))))
        labels, drawn = (rng.random(records) < p).astype(np.int64), rng.normal(size=(records, columns))
        if not draw:
            drawn[:, 0] = labels + 0.3 * rng.normal(size=records)
        names, values = [*map(str, range(columns))], values_of(p, labels)
        bins, own = GlobalBins(bin_table(drawn, names, 32), np.arange(columns)), own_of(p, values)
        sums = left_sums_of(bins, values, [1], [np.arange(records)])[0][:, :2]
        of_cuts = [best_cut(B, len(sums), g, h, own) for g, h in sums.tolist()]
        best = max(of_cuts, key=lambda it: it.gain_beyond)
        assert (best.p_value <= LEVEL and best.gain_beyond > 0) != best.said.endswith(
            "beyond your own model by one cut"
        )
        if draw:
            gains, wrong = [*gains, best.gain_beyond], wrong + (best.p_value <= LEVEL)
        else:
            assert best.p_value < 1e-6
    assert wrong <= 3
    assert np.mean(gains) <= 0


# ---- what the two numbers tell


@pytest.mark.second_tier
async def test_an_audit_places_no_cell(tmp_path: Path) -> None:
    """Feature parties know no node but the root, and the label holder no set and no sum of a known column."""
    here = world(120, (1, 2, 2), seed=5)
    federation = Federation(tmp_path / "federation", here.tables, dealer=True, record="both")
    finished(await federation.train(_job(here)))
    laid_out(tmp_path, {party: federation.state(party) for party in PARTIES}, here.tables)
    spaces = audit(audit_file_of(tmp_path, here, federation.states, [B, C]), by_tree=False, progress=lambda *_: None)
    assert [party.attacks["uni"].v_measure for party in spaces.parties.values()] == pytest.approx([0.0, 0.0])
    columns = audit(_file(tmp_path, _victim(B), _victim(C)), by_tree=False, progress=lambda *_: None).columns_read
    assert {present(read.reasons)["sums"] for read in columns.values()} == {NOTHING_OFFERED}
    assert not any(present(read.left_sets).claims for read in columns.values())


def _subsets(values: Ints, whole: tuple[int, int]) -> list[Bools]:
    """All sets of records with these sums of g and h (N, 2), by the sums of each half's sets."""
    halves = [values[: len(values) // 2], values[len(values) // 2 :]]
    keys = []
    for half in halves:
        sums = np.zeros((1, 2), dtype=np.int64)
        for value in half:
            sums = np.concatenate([sums, sums + value])
        keys.append(sums[:, 0] * 0x9E37 + sums[:, 1])  # a match is looked at again
    order = np.argsort(keys[1])
    due = whole[0] * 0x9E37 + whole[1] - keys[0]
    at = np.searchsorted(keys[1][order], due).clip(max=len(order) - 1)
    sets = list[Bools]()
    for first in np.flatnonzero(keys[1][order[at]] == due).tolist():
        bits = [first >> k & 1 for k in range(len(halves[0]))]
        bits += [int(order[at[first]]) >> k & 1 for k in range(len(halves[1]))]
        left = np.array(bits, dtype=bool)
        sets += [left] if tuple(values[left].sum(axis=0).tolist()) == whole else []
    return sets


@pytest.mark.second_tier
async def test_in_a_table_of_42_records_they_name_those_of_a_side(tmp_path: Path) -> None:
    here = world(42, (1, 1))
    federation = Federation(tmp_path, here.tables, dealer=True)
    finished(await federation.train(_job(here)))
    _, g, h = _cuts(federation)[B]
    (side,) = _subsets(values_of(_scores(42), here.y)[:, :2], (g, h))
    assert _is_a_side(side, here)


def _is_a_side(side: Bools, here: World, some: slice = slice(None)) -> bool:
    """True if some of the first feature party's records are so on a side of a cut."""
    sides = [left[some] for left in _sides(here.blocks[1][:, 0], categories=False) if 0 < left.sum() < len(left)]
    return any((side == left).all() or (side == ~left).all() for left in sides)


async def test_crafted_gradients_read_the_side_of_as_many_records_as_a_sum_has_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crafted(scores: Any, labels: Ints) -> Ints:
        values = values_of(scores, labels)
        values[:, 0] = 0
        values[:30, 0] = 1 << np.arange(30)
        return values

    monkeypatch.setattr(rule, "values_of", crafted)
    here = TWO()
    federation = Federation(tmp_path, here.tables, dealer=True)
    finished(await federation.train(_job(here)))
    _, g, _ = _cuts(federation)[B]
    assert _is_a_side(np.array([g >> place & 1 for place in range(30)], dtype=bool), here, slice(30))
