"""Party-wise Dropout in a federation: parties that sit out, batches of no party, batches and parties of all sizes."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.simulator import run
from tests.splitnn.networks import assert_same_bits, federation, oracle, published, trained
from tests.splitnn.test_faults import THREE, TINY
from tests.worlds import PARTIES, SIX, World, spec, world
from treetap.models.arrays import read_arrays
from treetap.neural.optimiser import Optimiser
from treetap.neural.params import DEFAULT, Bottom, SplitnnParams
from treetap.neural.schedule import Schedule
from treetap.neural.sides import FeatureSide
from treetap.tables.cells import tensor_column
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2

pytest.importorskip("torch", reason="needs treetap[neural]")


pytestmark = pytest.mark.second_tier

HOLDER, B, C = PARTIES


def _assert_network(folder: Path, here: World, params: SplitnnParams, **options: Any) -> None:
    """A federation finds the network of one graph."""
    status = run(trained(folder, here, params, **options))
    assert (status.state, status.error) == ("finished", "")
    network, _ = oracle(folder, here, params)
    assert_same_bits(published(folder, here), network.weights())


async def test_who_sits_out_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No message of the batch either way, no forward, no step; an epoch without the party leaves its state as it is.

    With Adam and weight decay a step without a gradient would change weights too.
    """
    params = replace(TINY, epochs=3, optimizer="adam", weight_decay=0.01, party_dropout={B: 0.5}, seed=33)
    schedule = Schedule.of(params, 9)
    places = [(epoch, batch) for epoch in range(3) for batch in range(2)]
    takes = {place: schedule.takes_part(*place, B) for place in places}
    assert [takes[1, 0], takes[1, 1]] == [False, False]
    assert [takes[0, 0], takes[0, 1]] == [True, False]
    calls: Counter[str] = Counter()
    forward, step = FeatureSide.forward, Optimiser.step

    def counted(self: FeatureSide, rows: Any) -> Any:
        calls["forward"] += 1
        return forward(self, rows)

    def stepped(self: Optimiser, rate: float) -> None:
        calls["step"] += 1
        step(self, rate)

    monkeypatch.setattr(FeatureSide, "forward", counted)
    monkeypatch.setattr(Optimiser, "step", stepped)
    seen: Counter[tuple[int, int]] = Counter()
    states: list[dict[str, bytes]] = []

    running = federation(tmp_path, THREE)

    def watch(sender: str, to: str, message: exchange_pb2.PeerMessage) -> None:
        if name_of(message) in ("embeddings", "embedding_gradients") and B in (sender, to):
            seen[message.round, message.stage] += 1

    def keep(message: Any) -> None:
        if (message.word, message.to, message.served) == ("store_epoch", HOLDER, True):
            folder = running.state(B) / "jobs" / "job"
            arrays = read_arrays(folder / f"epochs-{'odd' if len(states) % 2 == 0 else 'even'}.npz")
            assert int(arrays.pop("epochs")) == int(arrays.pop("best")) == len(states) + 1
            states.append({name: values.tobytes() for name, values in arrays.items()})

    running.tamper, running.hook = watch, keep
    assert (await running.train(spec(params))).state == "finished"
    await running.close()
    assert seen == {place: 2 for place, taken in takes.items() if taken}
    both = sum(takes.values()) + len(places)
    assert calls == {"forward": both, "step": both + len(places)}  # the label holder's, and that of each who takes part
    assert states[0] == states[1]
    assert any("optimiser" in name for name in states[0])
    network, _ = oracle(tmp_path, THREE, params)
    assert_same_bits(published(tmp_path, THREE), network.weights())


def test_a_batch_of_no_party(tmp_path: Path) -> None:
    """The label holder has no columns, and every feature party sits out: the top learns from its biases alone."""
    here = world(9, (0, 1, 1), seed=3)
    params = replace(TINY, epochs=3, party_dropout={B: 0.6, C: 0.6}, seed=4)
    schedule = Schedule.of(params, 9)
    taking = [
        {party for party in (B, C) if schedule.takes_part(epoch, batch, party)}
        for epoch in range(3)
        for batch in range(2)
    ]
    assert set() in taking
    assert {B, C} & set.union(*taking) == {B, C}
    _assert_network(tmp_path, here, params)


def _with_images(here: World, party: str) -> World:
    """The world with a column of images, of 4 × 4 pixels that depend on the label, in place of the party's columns."""
    rng = np.random.default_rng(8)
    tables = {}
    for name, table in here.tables[party][1].items():
        pixels = rng.integers(0, 256, size=(len(table), 4, 4), dtype=np.uint8)
        tables[name] = table.select(["id"]).append_column("image", tensor_column(pixels))
    return replace(here, tables={**here.tables, party: (["image"], tables)})


@pytest.mark.parametrize("records", [9, 11], ids=["a last batch of one record", "a last batch of three"])
def test_a_short_last_batch_with_batch_norm(records: int, tmp_path: Path) -> None:
    """A batch of one record has no variance where images have shrunk to a pixel: it joins the batch before it."""
    here = _with_images(world(records, (1, 1), seed=3), B)
    image = Bottom("cnn", channels=(2, 3), width=2, norm="batch")
    params = replace(TINY, bottom={DEFAULT: Bottom(width=2), B: image}, party_dropout={B: 0.3})
    sizes = [len(rows) for rows in Schedule.of(params, records).epoch(0)]
    assert sizes == ([4, 5] if records == 9 else [4, 4, 3])
    _assert_network(tmp_path, here, params)
    weights = published(tmp_path, here)[B]
    assert any("running_var" in name for name in weights)


@settings(max_examples=5, deadline=None)
@given(
    records=st.integers(6, 24),
    dims=st.lists(st.integers(0, 2), min_size=2, max_size=4).filter(any),
    batch=st.integers(2, 24),
    dropout=st.lists(st.sampled_from([0.0, 0.3, 0.9]), min_size=3, max_size=3),
    seed=st.integers(0, 2**63 - 1),
    validation=st.sampled_from([None, 0.3]),
)
def test_any_sizes(
    records: int, dims: list[int], batch: int, dropout: list[float], seed: int, validation: float | None
) -> None:
    """Records, columns, parties, batches and dropout of any number: the network of one graph, bit by bit."""
    stopping = {} if validation is None else {"early_stopping_rounds": 1, "validation_share": validation}
    held = 0 if validation is None else max(1, round(validation * records))
    params = replace(
        TINY,
        batch_size=max(2, min(batch, records - held)),
        party_dropout=dict(zip(SIX[1 : len(dims)], dropout, strict=False)),
        seed=seed,
        **stopping,  # type: ignore[arg-type]
    )
    here = world(records, tuple(dims), seed=seed % 97)
    assume(len(set(here.y.tolist())) == 2)
    with tempfile.TemporaryDirectory() as folder:
        _assert_network(Path(folder), here, params)
