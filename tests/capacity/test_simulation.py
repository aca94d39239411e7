"""Machines share their cores, lines queue, and what bounds a tree is what the verdict names."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
import simpy

from treetap.additive.sums.kernel_timings import KernelCosts
from treetap.capacity.machines import Activity, Line, Machine, Port, Process
from treetap.capacity.measurements import HostCosts, Measurements, kernel_name
from treetap.capacity.site import Nodes, Site
from treetap.capacity.training import full_levels
from treetap.commands.capacity.document import Answer, Question, answer, document
from treetap.errors import BadInput, ConfigError
from treetap.protocols.key_options import OKAMOTO_UCHIYAMA, PAILLIER, KeyKind
from treetap.trees.params import BoostingParams

pytestmark = pytest.mark.second_tier

KEY = KeyKind(PAILLIER, 2048)
#: Round figures, of no machine.
HOST = HostCosts(1e-4, 1e-9, 1e-4, 4e-9, 1e-4, 5e-10, 5e-10, 1e-8, 1e-8, 1e-8, 1e-8, 1e-9, 100.0, 50.0)
KERNELS = KernelCosts(0.2, 1e-4, 2e-6, 5e-7, 5e-6, 1e-2, 3e-3, 600.0)
MEASURED = Measurements({"processor": "none"}, HOST, {kernel_name(KEY, "short-exponent"): KERNELS})
PARAMS = BoostingParams(n_estimators=10, max_depth=3)
QUESTION = Question(100_000, (8, 12), PARAMS, KEY, "short-exponent", 0.5)
SITE = Site(Nodes(1, 4, 4, 64.0), Nodes(1, 4, 4, 64.0), 1e10, 1e-4, 1e10)


def ask(site: Site = SITE, question: Question = QUESTION, measured: Measurements = MEASURED) -> Answer:
    return answer(question, question.training(), site, measured)


def test_processes_share_the_cores_of_a_machine() -> None:
    """Three seconds of work each: of three processes on two cores all take 4.5 s, of two on two 3 s."""
    for processes, seconds in ((3, 4.5), (2, 3.0)):
        env = simpy.Environment()
        machine = Machine(env, "a", 2)
        activity = Activity(env)
        ends = [Process(machine, str(k), {"work": activity}).do(3.0, "work") for k in range(processes)]
        env.run(until=simpy.AllOf(env, ends))
        assert env.now == pytest.approx(seconds)
        assert activity.seconds == pytest.approx(seconds)
        assert machine.busy == 3.0 * processes


def test_a_process_does_one_thing_after_another_and_a_line_carries_one_message_at_a_time() -> None:
    """Two messages of a second each and a delay of half a second: the second arrives after 2.5 s."""
    env = simpy.Environment()
    process = Process(Machine(env, "a", 8), "p", {"work": Activity(env)})
    process.do(1.0, "work")
    env.run(until=process.do(1.0, "work"))
    assert env.now == pytest.approx(2.0)
    env = simpy.Environment()
    line = Line(env, Port(100.0), Port(100.0), 0.5)
    line.carry(100)
    env.run(until=line.carry(100))
    assert env.now == pytest.approx(2.5)
    assert line.bytes == 200


@pytest.mark.parametrize(
    ("site", "first"),
    [
        (SITE, "label holder: workers"),
        (replace(SITE, bits_per_s=1e8), "label holder to feature party: messages, one after the other"),
        (replace(SITE, delay_s=0.05), "label holder to feature party: messages, one after the other"),
        (replace(SITE, feature_party=Nodes(1, 1, 1, 64.0)), "feature party: workers"),
        (replace(SITE, label_holder=Nodes(8, 4, 4, 64.0)), "label holder: workers"),
        (
            Site(Nodes(16, 4, 4, 64.0), Nodes(16, 4, 4, 64.0), 1e10, 0.0, 1e10, cluster_holds_key=True),
            "feature party: main process",
        ),
        (replace(SITE, feature_party=Nodes(1, 4, 4, 0.2)), "memory of feature party"),
        (replace(SITE, one_machine=True), "the machine: cores"),
    ],
)
def test_the_verdict_names_what_bounds_a_tree(site: Site, first: str) -> None:
    """A tree takes at least its largest demand, and not much longer than all of them together."""
    found = ask(site)
    assert found.verdict.first == first
    demands = [each.seconds for each in found.verdict.demands]
    assert max(demands) <= found.tree.seconds * 1.001 <= 1.1 * sum(demands)


def test_a_line_at_the_bandwidth_that_is_named_is_in_use_as_long_as_the_next_resource() -> None:
    found = ask()
    limit = found.verdict.line_bits_per_s
    slower = ask(replace(SITE, bits_per_s=limit))
    demands = {(each.party, each.kind): each.seconds for each in slower.verdict.demands}
    busiest = max(seconds for (_, kind), seconds in demands.items() if kind in ("workers", "main process"))
    assert demands["label holder", "line"] == pytest.approx(busiest, rel=0.01)


def test_more_machines_that_hold_the_key_shorten_a_tree_that_encryption_bounds() -> None:
    """From one to two with the key nearly twice as fast; without it the second machine changes nothing."""
    one = ask(replace(SITE, label_holder=Nodes(1, 2, 2)))
    two = ask(replace(SITE, label_holder=Nodes(2, 2, 2), cluster_holds_key=True))
    without = ask(replace(SITE, label_holder=Nodes(2, 2, 2)))
    assert 1.6 < one.tree.seconds / two.tree.seconds <= 2.05
    assert without.tree.seconds == pytest.approx(one.tree.seconds)


def test_many_blocks_together_take_as_long_as_each_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of large tables are followed in groups, which changes the time by a little."""
    whole = ask().tree.seconds
    monkeypatch.setattr("treetap.capacity.simulation.MOST_BLOCKS", 25)
    assert ask().tree.seconds == pytest.approx(whole, rel=0.08)


def test_levels_of_a_full_tree() -> None:
    """The smaller child is built; both may be split; parties win in proportion to their columns."""
    root, middle, last = full_levels(1000, 3, (1, 3), 0.3)
    assert [level.built for level in (root, middle, last)] == [(1000,), (300,), (90, 210)]
    assert [len(level.owners) for level in (root, middle, last)] == [1, 2, 4]
    assert middle.parents == root.owners * 2
    won = [owner for level in (root, middle, last) for owner in level.owners]
    assert 4 <= won.count(1) <= 6


def test_the_answer_as_a_document_says_what_a_person_reads() -> None:
    found = ask()
    said = document(found)
    assert said["seconds"]["all_trees"] == pytest.approx(10 * said["seconds"]["tree"])
    assert said["saturates_first"] == "label holder: workers"
    assert said["operations_all_trees"]["label holder"]["encryptions"] == 1_000_000
    assert said["lines"][0]["bytes"] > 100_000 * 512
    assert said["fits"] is True
    assert set(said["phases"]) == {"prepare", "encrypt", "send", "sum", "pack", "open", "decide"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"records": 1}, "--records 1: must be from 2"),
        ({"records": 5}, "too few for 3 levels"),
        ({"columns": (25,)}, "--columns: needs the label holder's number"),
        ({"columns": (25, 0)}, "a feature party has 1 to"),
        ({"smaller_share": 0.7}, "--smaller-share 0.7"),
        ({"key": KeyKind(OKAMOTO_UCHIYAMA, 512)}, "key_bits = 512"),
        ({"params": BoostingParams(max_bin=1)}, "max_bin"),
    ],
)
def test_questions_that_no_training_fits_are_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        replace(QUESTION, **change).training()


@pytest.mark.parametrize(
    ("site", "says"),
    [
        (replace(SITE, label_holder=Nodes(0)), "nodes of the label holder = 0"),
        (replace(SITE, bits_per_s=0.0), "bandwidth of the line"),
        (replace(SITE, delay_s=inf), "delay = inf s"),
        (replace(SITE, feature_party=Nodes(1, 1, 1, -1.0)), "memory of the feature party"),
    ],
)
def test_machines_that_cannot_be_are_refused(site: Site, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        ask(site)


def test_a_file_of_measurements_is_read_as_it_was_written_and_another_is_refused(tmp_path: object) -> None:
    path = tmp_path / "below" / "measured.json"  # type: ignore[operator]
    MEASURED.save(path)
    assert Measurements.load(path) == MEASURED
    path.write_text(path.read_text().replace("0.0001", "-1", 1))
    with pytest.raises(ConfigError, match="is no number above 0"):
        Measurements.load(path)
    path.write_text("[]")
    with pytest.raises(ConfigError, match="is no file of measurements"):
        Measurements.load(path)
