"""A feature party takes no layout of plaintexts but that which the job implies, for some number of classes."""

from __future__ import annotations

import pytest

from treetap.errors import Malformed
from treetap.party.boosting import ciphers as boosting
from treetap.party.forest import ciphers as forest
from treetap.trees.job_params import OBJECTIVES
from treetap.trees.params import BoostingParams, ForestParams
from treetap.trees.slots import Slots

N = 1000
SOFTMAX = {"objective": "multi:softprob", "multi_strategy": "multi_output_tree"}


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("strategy", ["one_output_per_tree", "multi_output_tree"])
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_boosting_has_two_slots_for_each_output_and_one_for_the_count(
    objective: str, strategy: str, classes: int
) -> None:
    """The label holder's layout for its classes is the one that the job implies for that number of slots."""
    params = BoostingParams(objective=objective, multi_strategy=strategy)
    made = boosting.layout(params, N, params.outputs_per_tree(classes))
    of_job, slots = boosting.BoostingLayout(params), len(made.widths)
    assert of_job.implied(N, slots, 0, ()) == made
    assert of_job.implied(N + 24, slots, 0, ()) != made
    assert of_job.implied(N + 23, slots, 0, ()) == made  # sums of up to 1023 records are as wide


@pytest.mark.parametrize(
    ("changes", "slots"),
    [({}, 0), ({}, 1), ({}, 2), ({}, 4), ({}, 5), (SOFTMAX, 3), (SOFTMAX, 6), ({"objective": "multi:softprob"}, 7)],
)
def test_numbers_of_slots_that_no_boosting_has(changes: dict[str, str], slots: int) -> None:
    """One output, or as many as classes where a tree has them all: two at least."""
    with pytest.raises(Malformed, match=f"{slots} slots are not g and h of each output and a count"):
        boosting.BoostingLayout(BoostingParams(**changes)).implied(N, slots, 0, ())


def test_a_forest_has_a_slot_for_each_class_or_a_target_and_a_count() -> None:
    """Counts are all of one width; one class alone is nothing to learn; a number needs two slots and no third."""
    counts, numbers = ForestParams(), ForestParams(criterion="squared_error")
    of_counts, of_numbers = forest.ForestLayout(counts, False), forest.ForestLayout(numbers, False)
    for classes in (2, 3, 40):
        assert of_counts.implied(N, classes, 0, ()) == forest.layout(counts, N, classes) == Slots((11,) * classes)
    assert of_numbers.implied(N, 2, 0, ()) == forest.layout(numbers, N, 1) == Slots((43, 11))
    assert len(of_numbers.implied(N, 3, 0, ()).widths) == 2
    for of_job in (of_counts, of_numbers):
        with pytest.raises(Malformed, match="1 slots, 0 of all records, are not counts of classes"):
            of_job.implied(N, 1, 0, ())


@pytest.mark.parametrize("strategy", ["one_output_per_tree", "multi_output_tree"])
def test_the_class_of_a_record_may_be_behind_its_gradients(strategy: str) -> None:
    """As many slots as a count of records is wide, for two classes or more that fit the outputs."""
    params = BoostingParams(objective="multi:softprob", multi_strategy=strategy)
    for classes in (3, 7):
        made = boosting.layout(params, N, params.outputs_per_tree(classes), classes)
        assert made.widths[-classes:] == (11,) * classes
        assert boosting.BoostingLayout(params).implied(N, len(made.widths), classes, ()) == made
    for slots, classes in [(3 + 1, 1), (7 + 4, 4)]:
        with pytest.raises(Malformed, match=f"{classes} slots for classes do not go with|slots are not g and h"):
            boosting.BoostingLayout(params).implied(N, slots, classes, ())


def test_counts_of_all_records_are_behind_those_of_the_drawn_ones_on_a_lattice() -> None:
    """As many, and of classes alone; with a key the same ciphertexts are summed again."""
    counts = ForestParams()
    assert forest.ForestLayout(counts, True).implied(N, 4, 2, ()) == forest.layout(counts, N, 2, 2) == Slots((11,) * 4)
    for params, on_lattice, slots in (
        (counts, False, 4),
        (counts, True, 5),
        (ForestParams(criterion="squared_error"), True, 4),
    ):
        with pytest.raises(Malformed, match=f"{slots} slots, 2 of all records, are not counts of classes"):
            forest.ForestLayout(params, on_lattice).implied(N, slots, 2, ())
