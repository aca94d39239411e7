"""PIVODL: jobs that no federation could do end with an error that says what to mend, before any ciphertext; so do lies.

The roles of a resumed job are those of the attempt before; see `test_roles` of what each role sends.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.blindness.observed import Observed
from tests.pivodl.federations import job_of, transparent
from tests.pivodl.jobs import SMALL, SPREAD, policies
from tests.pivodl.worlds import some_params, some_world
from tests.simulator import run
from tests.worlds import PARTIES, World, spread
from treetap.party.pivodl.division import Divisions, Source
from treetap.trees.pivodl_params import PivodlParams
from treetap.wire.disclosure import bytes_by_class
from treetap.wire.frame import content_of, name_of
from treetap.wire.v2 import exchange_pb2

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit Paillier key")

FIRST, B, C = PARTIES
N = len(SPREAD.y)
SEALED = {"CIPHERTEXT", "CANDIDATE_SUM"}
Columns = dict[str, list[Any]]


def _train(folder: Path, here: World, params: PivodlParams, **policy: Any) -> tuple[str, str, set[str]]:
    """State, error, and the classes of all that crossed between parties."""
    job = job_of(here, params)
    federation = Observed(folder, here.tables, policies=policies(job, **policy))

    async def main() -> tuple[str, str]:
        status = await federation.train(job)
        return status.state, status.error

    with transparent():
        state, error = run(main())
    crossed: set[str] = set()
    for each in federation.crossed:
        if isinstance(each.message, exchange_pb2.PeerMessage):
            crossed |= set(bytes_by_class(each.message))
    return state, error, crossed


def _edited(party: str, edit: Callable[[Columns], object]) -> World:
    """The world with another training table of one party."""
    columns, tables = SPREAD.tables[party]
    content = {name: tables["train"].column(name).to_pylist() for name in tables["train"].column_names}
    edit(content)
    names = [name for name in columns if name in content]
    return replace(SPREAD, tables={**SPREAD.tables, party: (names, {**tables, "train": pa.table(content)})})


def _label(value: Any, *records: str) -> Callable[[Columns], None]:
    """Write a label into the cells of some records."""

    def edit(content: Columns) -> None:
        for record in records:
            content["y"][content["id"].index(record)] = value

    return edit


def _without_features(content: Columns) -> None:
    for name in set(content) - {"id", "y"}:
        del content[name]


CASES: dict[str, tuple[World, dict[str, Any], str]] = {
    "labels of two parties": (
        _edited(B, _label(1, "r00000", "r00003")),
        {},
        f"2 of {N} records are labelled by more than one party ({FIRST}, {B}): empty the label cells of all but one",
    ),
    "labels of no party": (
        _edited(FIRST, _label(None, "r00000")),
        {},
        f"1 of {N} records are labelled by no party: add their labels to one party's table",
    ),
    "a party without features": (
        _edited(C, _without_features),
        {},
        f"{C}: {{folder}}/{C}/train.parquet: the configuration names no columns of features for this table",
    ),
    "a label that is no class": (
        _edited(C, _label(7, "r00002")),
        {},
        "is none of the job's classes ('0', '1')",
    ),
    "a threshold larger than every node": (
        SPREAD,
        {"instance_threshold": 6},
        f"instance_threshold = 6 stops every node: {FIRST}, {B}, {C} label fewer than 12 records",
    ),
    "the paper's threshold": (
        SPREAD,
        {"instance_threshold": 11, "as_published": True},
        "instance_threshold = 11 stops every node",
    ),
    "too few records": (
        SPREAD,
        {"min_samples": 31},
        "min_samples = 31 is larger than every node: there are 30 records",
    ),
    "a label beyond the slot": (
        SPREAD,
        {"objective": "reg:squarederror", "label_scale": 1e-9, "base_score": 0.0},
        "labels are beyond ±4096 in units of label_scale = 1e-09; use a larger label_scale",
    ),
    "labels beyond the secure sums": (
        _edited(B, _label(10**13, "r00001", "r00004")),
        {"objective": "reg:squarederror", "classes": []},
        f"{B}: 2 of 10 labels are beyond ±1.09951e+12; state label_scale and base_score in the job",
    ),
}


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_named_before_any_ciphertext(name: str, tmp_path: Path) -> None:
    """The job fails; nothing encrypted has crossed, no file is left. Labels and values are not in the error."""
    here, changes, message = CASES[name]
    state, error, crossed = _train(tmp_path, here, replace(SMALL, **changes))
    assert state == "failed"
    assert message.format(folder=tmp_path) in error
    assert not crossed & SEALED
    assert [path for part in ("jobs", "models") for path in tmp_path.glob(f"*/state/{part}/*")] == []


@pytest.mark.second_tier
def test_a_party_without_labels_is_allowed(tmp_path: Path) -> None:
    """Also one whose table has no label column at all."""
    here = spread(SPREAD, [i % 2 for i in range(N)])
    columns, tables = here.tables[C]
    bare = {**tables, "train": tables["train"].drop_columns("y")}
    for each in (here, replace(here, tables={**here.tables, C: (columns, bare)})):
        assert _train(tmp_path / str(len(each.tables[C][1]["train"].column_names)), each, SMALL)[:2] == ("finished", "")


def _opens_all(self: Divisions, child: int, rows: Any) -> bool:
    """True above the greatest depth, however few records a child has."""
    del rows
    return child.bit_length() - 1 < self._me.params.max_depth


def _cuts_one_off(self: Source, *asked: Any) -> Any:
    """A division that sends one record left, in the place of the one that won."""
    split, left, right, place = divide(self, *asked)
    rows = np.sort(np.concatenate([left, right]))
    return split, rows[:1], rows[1:], place


may_be_split, divide = Divisions._may_be_split, Source.divide

#: What a source does in the place of its step, and the error.
DIVISIONS: dict[str, tuple[type, str, Any, Any, str]] = {
    "children that the rules make leaves": (
        Divisions, "_may_be_split", may_be_split, _opens_all, "may be split, which the stopping rules do not say",
    ),
    "a side of one record": (
        Source, "divide", divide, _cuts_one_off, "with fewer than instance_threshold = 3 labelled records of",
    ),
}  # fmt: skip


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("name", DIVISIONS)
def test_divisions_that_the_rules_do_not_make(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every source lies: the others name it; without the check they go on with its nodes."""
    owner, step, honest, lie, message = DIVISIONS[name]
    params = replace(SMALL, max_depth=3, instance_threshold=3, min_samples=12)
    job, lying = job_of(SPREAD, params), False

    def told(self: Any, *asked: Any) -> Any:
        return lie(self, *asked) if lying and sys._getframe(1).f_code.co_name == "_divide_own" else honest(self, *asked)

    async def trained(folder: Path) -> tuple[str, set[int]]:
        federation = Observed(folder, SPREAD.tables, policies=policies(job), silence_s=5.0)
        status = await federation.train(job)
        await federation.close()
        parcels = [it.message for it in federation.crossed if isinstance(it.message, exchange_pb2.PeerMessage)]
        return status.error, {parcel.stage for parcel in parcels if name_of(parcel) == "forwarded_sums"}

    monkeypatch.setattr(owner, step, told)
    with transparent():
        assert run(trained(tmp_path / "honest"))[0] == ""
        lying = True
        error, stages = run(trained(tmp_path / "checked"))
        assert re.search(f"(label-holder|feature-.) sent, of tree 0, .*{message}", error), error
        assert "what it runs before any other job with it" in error
        assert stages == {0}
        monkeypatch.setattr(Divisions, "_check_sizes", lambda *_: None)
        error, stages = run(trained(tmp_path / "unchecked"))
        assert message not in error
        assert stages > {0}


@pytest.mark.second_tier
async def test_a_job_that_is_resumed_has_the_same_roles(tmp_path: Path) -> None:
    """Killed in a tree and resumed: the nonces are the same, and no sums go to a second split party."""
    params = some_params(3, max_depth=3, gamma=0.0, instance_threshold=1)
    here = some_world(3, params.objective, 4)
    job = job_of(here, params)
    federation = Observed(tmp_path, here.tables, policies=policies(job))
    victim = list(here.tables)[2]

    with transparent():
        federation.kill_at(victim, lambda message: (message.word, message.to) == ("close_tree", victim), back=True)
        assert (await federation.train(job)).state == "interrupted"
        assert (await federation.resume()).state == "finished"
        await federation.close()
    nonces: defaultdict[str, set[bytes]] = defaultdict(set)
    openers: defaultdict[tuple[int, int, str], set[str]] = defaultdict(set)
    attempts = set()
    for sender, to, parcel in [
        (each.sender, each.to, each.message)
        for each in federation.crossed
        if isinstance(each.message, exchange_pb2.PeerMessage)
    ]:
        if name_of(parcel) == "party_nonce":
            nonces[sender].add(content_of(parcel, "party_nonce").nonce)
        if name_of(parcel) == "forwarded_sums":
            attempts.add(parcel.attempt)
            openers[parcel.round, content_of(parcel, "forwarded_sums").node, sender].add(to)
    assert attempts == {1, 2}
    assert {len(each) for each in nonces.values()} == {1}
    assert {len(each) for each in openers.values()} == {1}
