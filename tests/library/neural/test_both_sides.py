"""Both sides of the cut against one graph: the same weights, losses and scores, bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs treetap[neural]")

from tests.library.neural.worlds import NAMES, World, assert_same  # noqa: E402
from treetap.errors import DataError  # noqa: E402
from treetap.neural.defences import GradientDefence, LabelDefences  # noqa: E402
from treetap.neural.numbers import rounded  # noqa: E402
from treetap.neural.params import Bottom, SplitnnParams, Top  # noqa: E402

pytestmark = pytest.mark.second_tier

NOISE = GradientDefence("noise", scale=0.001)
MLP, SMALL = Bottom(hidden=(5,), width=4), Bottom(hidden=(4,), width=3)


def job(**fields: Any) -> SplitnnParams:
    """Parameters of a small job of three epochs."""
    given_ = {
        "objective": "multi:softprob",
        "epochs": 3,
        "batch_size": 12,
        "bottom": {"default": MLP},
        "top": Top((6,)),
    }
    return SplitnnParams(**{**given_, "schedule": "cosine", **fields})


def check(world: World, *, resume_at: int | None = None) -> None:
    """Train both ways; compare weights, the loss of each epoch, and scores with a party away."""
    central, losses = world.central(), []
    for epoch in range(world.params.epochs):
        losses.append(central.train_epoch(epoch))
    sides = world.federation().train(resume_at=resume_at)
    assert_same(sides.weights(), {name: dict(each) for name, each in central.weights().items()})
    assert np.mean(np.reshape(sides.losses, (world.params.epochs, -1)), axis=1).tolist() == losses
    rows = np.arange(world.records)[::-1].copy()
    inputs = {name: own for name, own in world.inputs.items() if own is not None}
    for away in (frozenset(), frozenset({NAMES[1]})):
        assert np.array_equal(sides.scores(rows, away), central.scores(inputs, rows, away))


#: Each pair of values of two dimensions is in at least one row: optimiser, wire, norm or table, parties, dropout, λ,
#: gradient defence.
MATRIX = [
    ("sgd", "float32", "group", 2, 0.0, 0.0, None),
    ("adam", "bfloat16", "batch", 3, 0.4, 0.3, None),
    ("sgd", "bfloat16", "mlp", 3, 0.0, 0.3, NOISE),
    ("adam", "float32", "mlp", 2, 0.4, 0.0, None),
    ("adam", "float32", "group", 3, 0.4, 0.3, NOISE),
    ("sgd", "float32", "batch", 2, 0.4, 0.0, NOISE),
    ("adam", "bfloat16", "group", 2, 0.0, 0.0, NOISE),
    ("sgd", "bfloat16", "batch", 2, 0.0, 0.3, None),
    ("adam", "float32", "batch", 3, 0.0, 0.0, None),
    ("sgd", "bfloat16", "group", 3, 0.4, 0.0, None),
    ("adam", "bfloat16", "mlp", 2, 0.4, 0.3, NOISE),
]


@pytest.mark.parametrize(("optimizer", "wire_type", "norm", "parties", "dropout", "weight", "defence"), MATRIX)
def test_both_sides_equal_one_graph(
    optimizer: str,
    wire_type: str,
    norm: str,
    parties: int,
    dropout: float,
    weight: float,
    defence: GradientDefence | None,
) -> None:
    """Three epochs, with a state stored and read before the third."""
    images = norm != "mlp"
    bottom = Bottom(kind="cnn", channels=(2, 4), width=3, norm=norm) if images else MLP
    params = job(
        optimizer=optimizer, wire_type=wire_type, bottom={"default": bottom, "telco": bottom if images else SMALL},
        party_dropout={"shop": dropout} if dropout else {},
    )  # fmt: skip
    defences = LabelDefences({"shop": weight} if weight else {}, defence)
    check(World(params, [3] * parties, images=images, defences=defences), resume_at=2)


@pytest.mark.parametrize(
    "defence",
    [
        GradientDefence("compression", share=0.5),
        GradientDefence("ppdl", scale=1e-4, share=0.3, threshold=1e-4),
        GradientDefence("levels", levels=2),
    ],
)
def test_other_defences_and_an_amplified_optimiser(defence: GradientDefence) -> None:
    """Each change of gradients, with DIMIP before it, at a feature party that amplifies its steps."""
    defences = LabelDefences({"shop": 0.3}, defence, random_labels=False)
    check(World(job(epochs=2), defences=defences, amplified=True), resume_at=1)


@pytest.mark.parametrize(("objective", "classes"), [("binary:logistic", 2), ("reg:squarederror", 0)])
def test_other_objectives(objective: str, classes: int) -> None:
    """A margin of two classes, and targets of 0 to 200 that are standardised inside."""
    check(World(job(objective=objective, learning_rate=0.01), classes=classes), resume_at=1)


def test_a_batch_that_every_feature_party_sits_out() -> None:
    """Of a label holder without columns the biases move; no feature party's weight changes, none is sent a gradient."""
    world = World(job(optimizer="adam", weight_decay=0.1), [None, 3, 3])
    sides = world.federation()
    before = sides.weights()
    trained = sides.holder.train(world.schedule.epoch(0)[0], {}, 0, 0, 0.05)
    after = sides.weights()
    assert trained.gradients == {}
    assert_same({name: after[name] for name in NAMES[1:]}, {name: before[name] for name in NAMES[1:]})
    assert not np.array_equal(after["bank"]["top/linear1.bias"], before["bank"]["top/linear1.bias"])
    check(World(job(party_dropout={"shop": 0.9, "telco": 0.9}), [None, 3, 3]), resume_at=1)


@given(st.data())
@settings(max_examples=25)
def test_any_sizes(data: st.DataObject) -> None:
    """Sizes, batches with a last one of one record, parties, dropout, and an epoch at which all begin anew."""
    parties = data.draw(st.integers(2, 3), label="parties")
    records = data.draw(st.integers(4, 26), label="records")
    size = st.integers(1, 6)
    bottom = {
        name: Bottom(hidden=tuple(data.draw(st.lists(size, max_size=2))), width=data.draw(size)) for name in NAMES
    }
    params = job(
        epochs=2,
        batch_size=data.draw(st.integers(2, records) | st.just(max(2, records // 2)), label="batch"),
        optimizer=data.draw(st.sampled_from(["sgd", "adam"])),
        wire_type=data.draw(st.sampled_from(["float32", "bfloat16"])),
        bottom=bottom,
        top=Top(tuple(data.draw(st.lists(size, max_size=2)))),
        party_dropout={"shop": data.draw(st.sampled_from([0.0, 0.5, 0.9]))},
        seed=data.draw(st.integers(0, 5)),
    )
    columns = [
        data.draw(st.none() | st.integers(0, 4)),
        *data.draw(st.lists(st.integers(0, 4), min_size=2, max_size=2)),
    ]
    check(World(params, columns[:parties], records), resume_at=data.draw(st.sampled_from([None, 1])))


def test_embeddings_of_one_number() -> None:
    """In one graph their gradient is a column between others, whose sum PyTorch rounds in another order."""
    bottom = {"shop": Bottom(width=1), "telco": Bottom(width=2)}
    params = job(epochs=2, batch_size=10, optimizer="adam", bottom=bottom, top=Top(), schedule="constant")
    check(World(params, [None, 0, 0], records=20))


def test_records_that_are_not_trained_on_change_nothing() -> None:
    """Embeddings and scores of validation and prediction are by running means: no buffer moves, no batch matters."""
    bottom = {"default": Bottom(kind="cnn", channels=(2,), width=3, norm="batch")}
    sides = World(job(bottom=bottom), images=True).federation().train()
    before, rows = sides.weights(), np.arange(8)
    together = sides.others["shop"].embed(rows)
    assert np.allclose(together[:1], sides.others["shop"].embed(rows[:1]), atol=1e-6)
    assert np.allclose(sides.scores(rows)[:1], sides.scores(rows[:1]), atol=1e-6)
    assert_same(sides.weights(), before)
    assert not np.allclose(together, sides.others["shop"].forward(rows), atol=1e-3)


def test_each_side_returns_the_numbers_that_are_read() -> None:
    """Embeddings and gradients are rounded to the type of the wire before they are bytes."""
    world = World(job(wire_type="bfloat16"), defences=LabelDefences(gradient=NOISE))
    sides, rows = world.federation(), np.arange(12)
    sent = sides.others["shop"].forward(rows)
    returned = sides.holder.train(rows, {"shop": sent}, 0, 0, 0.1).gradients["shop"]
    for values in (sent, returned, sides.others["shop"].embed(rows)):
        assert torch.equal(values, rounded(values, "bfloat16"))
        assert values.dtype == torch.float32


def test_early_stopping_takes_the_best_epoch() -> None:
    """The weights are those after the epoch with the smallest validation loss, and training ends two epochs later."""
    params = job(epochs=12, learning_rate=1.0, schedule="constant", early_stopping_rounds=2, validation_share=0.3)
    world = World(params, records=60)
    seen: list[tuple[float, dict[str, Any]]] = []
    inputs = {name: own for name, own in world.inputs.items() if own is not None}

    def after(epoch: int, network: Any) -> None:
        rows = world.schedule.validation
        loss = network.objective.watched(network.scores(inputs, rows), world.labels[rows])
        seen.append((loss, {name: dict(each) for name, each in network.weights().items()}))

    trained = world.central().train(after)
    best = min(range(len(seen)), key=lambda epoch: seen[epoch][0])
    assert trained.stopping.best_round == best
    assert len(seen) == best + 3 < 12
    assert_same({name: dict(each) for name, each in trained.weights().items()}, seen[best][1])


def test_a_loss_that_is_not_finite_is_an_error() -> None:
    """It names the epoch, the batch and the field to change, on both sides and in one graph."""
    world = World(job(learning_rate=100.0, objective="reg:squarederror", epochs=40), classes=0)
    with pytest.raises(DataError, match=r"the loss of epoch \d+, batch \d is not finite; a smaller learning_rate"):
        world.federation().train()
    with pytest.raises(DataError, match=r"the loss of epoch \d+, batch \d is not finite"):
        world.central().train()


@pytest.mark.parametrize(
    ("fields", "defences"),
    [
        ({"optimizer": "adam"}, {}),
        ({"momentum": 0.0}, {}),
        ({"weight_decay": 0.1}, {}),
        ({"schedule": "constant"}, {}),
        ({"wire_type": "bfloat16"}, {}),
        ({"party_dropout": {"shop": 0.5}}, {}),
        ({"seed": 1}, {}),
        ({}, {"dimip": {"shop": 0.3}}),
        ({}, {"gradient": NOISE}),
    ],
)
def test_each_setting_changes_the_feature_party(fields: dict[str, Any], defences: dict[str, Any]) -> None:
    """Two sides that ignored a setting would be equal too."""
    plain = World(job(epochs=1)).federation().train().weights()["shop"]
    other = World(job(epochs=1, **fields), defences=LabelDefences(**defences)).federation().train().weights()["shop"]
    assert not any(np.array_equal(values, other[name]) for name, values in plain.items())


@pytest.mark.parametrize(("before", "after"), [({}, {"shop": 0.3}), ({"shop": 0.3}, {})])
def test_each_epoch_has_the_defences_of_its_time(before: dict[str, float], after: dict[str, float]) -> None:
    """A label holder that adds or removes DIMIP between two attempts goes on: the predictor begins, or ends."""
    first = World(job(epochs=2), defences=LabelDefences(before)).federation()
    first.train_epoch(0)
    second, plain = (World(job(epochs=2), defences=LabelDefences(each)).federation() for each in (after, {}))
    for sides in (second, plain):
        sides.holder.load(first.holder.state())
        sides.others["shop"].load(first.others["shop"].state())
        sides.train_epoch(1)
    assert bool([name for name in second.holder.state() if name.startswith("dimip")]) == bool(after)
    same = [np.array_equal(values, plain.weights()["shop"][name]) for name, values in second.weights()["shop"].items()]
    assert same == [not after] * 4


def test_the_state_of_other_models_is_refused() -> None:
    """A folder of another job is no reason to begin anew."""
    other = World(job(top=Top((7,)))).federation()
    with pytest.raises(ValueError, match=r"weight top/linear0\.weight: shape \(7, 8\), not \(6, 8\)"):
        World(job()).federation().holder.load(other.holder.state())
    with pytest.raises(ValueError, match=r"weights of bottom: .* are missing or superfluous"):
        World(job()).federation().others["shop"].load({})
