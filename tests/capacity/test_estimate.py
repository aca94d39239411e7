"""What bounds a tree is what the answer names, and an estimate is near what was measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import simpy

from tests.capacity.lattice_simulation import SimulatedLatticeTree
from tests.capacity.simulation import Machine, Port, Process, SimulatedTree, carry
from treetap.additive.sums.kernel_timings import KernelCosts
from treetap.additive.sums.key_holder import BLOCK
from treetap.commands.capacity.keyed import KeyedTree
from treetap.commands.capacity.lattice import LatticeTree
from treetap.commands.capacity.measuring import HostCosts, Measurements, kernel_name
from treetap.commands.capacity.question import Site, TrainingOptions
from treetap.commands.capacity.report import document, estimate
from treetap.commands.capacity.training import full_levels
from treetap.commands.capacity.tree import Tree
from treetap.errors import BadInput, ConfigError
from treetap.lattice.histogram_timings import LatticeCosts
from treetap.protocols.key_options import LATTICE, PAILLIER, KeyKind

pytestmark = pytest.mark.second_tier

KEY = KeyKind(PAILLIER, 2048)
#: Round figures, of no machine.
HOST = HostCosts(1e-4, 1e-9, 1e-4, 4e-9, 1e-4, 5e-10, 5e-10, 1e-8, 1e-8, 1e-8, 1e-8, 1e-9, 100.0, 50.0)
KERNELS = KernelCosts(0.2, 1e-4, 2e-6, 5e-7, 5e-6, 1e-2, 3e-3, 600.0)
ON_LATTICE = LatticeCosts(1.5e-8, 2e-9, 3e-10, 4e-6, 6e-5, 5e-5, 8e-7, 5e-6, 1e-6)
MEASURED = Measurements({"processor": "none"}, HOST, {kernel_name(KEY, "short-exponent"): KERNELS})
QUESTION = TrainingOptions(records=100_000, columns="8,12", trees=10)
SITE = Site(cores=4, bandwidth=1e4, delay=0.1)
RENDERERS = Path(__file__).parents[2] / "renderers"


def tree(site: Site = SITE, question: TrainingOptions = QUESTION, measured: Measurements = MEASURED) -> Tree:
    return estimate(question.training(), site, measured)


def ask(site: Site = SITE, question: TrainingOptions = QUESTION) -> dict[str, Any]:
    return document(tree(site, question), MEASURED.machine)


def test_processes_share_the_cores_of_one_machine() -> None:
    """A tree takes as long as all processors' work on them all, or longer; on one core, exactly."""
    for cores in (1, 2, 4):
        made = tree(replace(SITE, cores=cores, workers=2, one_machine=True))
        work = sum(party.main_s + party.workers_s for party in (made.holder, *made.others.values()))
        assert work / cores <= made.seconds * 1.001
        if cores == 1:
            assert made.seconds == pytest.approx(work, rel=0.02)


@pytest.mark.parametrize("timed", [KeyedTree, SimulatedTree])
def test_the_slowest_station_sets_the_pace_of_the_blocks(timed: type[KeyedTree] | type[SimulatedTree]) -> None:
    """With costs of encryption alone the blocks of the root take what their encryption takes, in whole rounds.

    With messages, the first block waits for the second, and in the end three are to go: the last of each worker, and
    the one before, which has waited for them. The arithmetic is by hand, for the estimate and for its oracle.
    """
    free = HostCosts(*[1e-15] * 14)
    kernels = replace(KernelCosts(*[1e-15] * 8), encrypt_s=1e-3)
    job = replace(QUESTION, records=4 * BLOCK).training()
    site = Site(cores=4, workers=2, bandwidth=1e12, delay=0)
    block = BLOCK / 1000  # seconds, on one of two workers
    assert timed(job, site, free, kernels).streamed_s == pytest.approx(2 * block)
    for delay, blocks in ((BLOCK // 4, 2 * block + 3 * block / 2), (BLOCK, block + 4 * 2 * block)):
        way = 2 * delay / 1000  # of a message and its answer; the coordinator's step, and the drawn records, come first
        assert timed(job, replace(site, delay=delay), free, kernels).streamed_s == pytest.approx(2 * way + blocks)


@pytest.mark.parametrize(
    ("site", "question", "first"),
    [
        (SITE, QUESTION, "label holder: workers"),
        (replace(SITE, bandwidth=100), QUESTION, "label holder to feature party: messages, one after the other"),
        (replace(SITE, delay=50), QUESTION, "label holder to feature party: messages, one after the other"),
        (SITE, replace(QUESTION, columns="8,90"), "feature party: workers"),
        (replace(SITE, nodes="8,1"), QUESTION, "label holder: workers"),
        (replace(SITE, nodes="16", delay=0, cluster_holds_key=True), QUESTION, "feature party: main process"),
        (replace(SITE, memory=0.2), QUESTION, "memory of label holder, feature party"),
        (replace(SITE, one_machine=True), QUESTION, "the machine: cores"),
    ],
)
def test_the_answer_names_what_bounds_a_tree(site: Site, question: TrainingOptions, first: str) -> None:
    """A tree takes at least its largest demand, and not much longer than all of them together."""
    said = ask(site, question)
    assert said["saturates_first"] == first
    demands = [demand["seconds"] for demand in said["demands"]]
    assert max(demands) <= said["seconds"]["tree"] * 1.001 <= 1.1 * sum(demands)


def test_a_line_at_the_bandwidth_that_is_named_is_in_use_as_long_as_the_next_resource() -> None:
    limit = ask()["line_saturates_below_bits_per_s"]
    slower = ask(replace(SITE, bandwidth=limit / 1e6))
    demands = {(demand["party"], demand["kind"]): demand["seconds"] for demand in slower["demands"]}
    busiest = max(seconds for (_, kind), seconds in demands.items() if kind in ("workers", "main process"))
    assert demands["label holder", "line"] == pytest.approx(busiest, rel=0.01)


def test_more_machines_that_hold_the_key_shorten_a_tree_that_encryption_bounds() -> None:
    """From one to two with the key more than half again as fast; without it the second machine changes nothing."""
    two_cores, question = replace(SITE, cores=2), replace(QUESTION, records=300_000)
    one = tree(two_cores, question)
    two = tree(replace(two_cores, nodes="2,1", cluster_holds_key=True), question)
    without = tree(replace(two_cores, nodes="2,1"), question)
    assert 1.5 < one.seconds / two.seconds <= 2.05
    assert without.seconds == pytest.approx(one.seconds)


def test_levels_of_a_full_tree() -> None:
    """The smaller child is built; both may be split; parties win in proportion to their columns."""
    root, middle, last = full_levels(1000, 3, (1, 3), 0.3)
    assert [level.built for level in (root, middle, last)] == [(1000,), (300,), (90, 210)]
    assert [len(level.owners) for level in (root, middle, last)] == [1, 2, 4]
    assert middle.parents == root.owners * 2
    won = [owner for level in (root, middle, last) for owner in level.owners]
    assert 4 <= won.count(1) <= 6


def test_the_answer_as_a_document_says_what_a_person_reads() -> None:
    said = ask()
    assert said["seconds"]["all_trees"] == pytest.approx(10 * said["seconds"]["tree"])
    assert said["operations_all_trees"]["label holder"]["encryptions"] == 1_000_000
    assert said["lines"][0]["bytes"] > 100_000 * 512
    assert said["fits"] is True
    assert set(said["phases"]) == {"prepare", "encrypt", "send", "sum", "pack", "open", "decide"}
    for span in said["phases"].values():
        assert 0 < span["seconds"] <= (span["last"] - span["first"]) * 1.001
        assert span["last"] <= said["seconds"]["tree"] * 1.001


@pytest.mark.parametrize(
    ("question", "site"),
    [
        ({"records": 50_000, "columns": "4,6"}, {"cores": 2}),
        ({"records": 1_000_000}, {"nodes": "4,4", "cluster_holds_key": True}),
        (
            {"records": 1_000_000, "missing": True, "depth": 5},
            {"nodes": "2,3", "inner_bandwidth": 100},
        ),
        ({"records": 20_000, "columns": "12,6,5", "subsample": 0.5}, {"one_machine": True, "cores": 2, "workers": 2}),
        ({"records": 30_000, "columns": "0,11", "smaller_share": 0.3, "max_bin": 16}, {}),
        ({"records": 36_000, "max_bin": 64}, {"one_machine": True}),
        ({"records": 250_000, "columns": "0,11", "max_bin": 64}, {"cores": 1, "workers": 4, "nodes": "2,2"}),
        ({"records": 5_500, "columns": "4,6"}, {"cores": 1, "nodes": "2,3"}),
        ({"records": 10_000_000}, {"nodes": "2,2", "bandwidth": 1e4, "delay": 0.5, "cluster_holds_key": True}),
        (
            {"records": 10_000_000},
            {"nodes": "32,32", "bandwidth": 1e4, "delay": 0.5, "cluster_holds_key": True},
        ),
    ],
)
def test_an_estimate_is_near_a_simulation_of_every_event(question: dict[str, Any], site: dict[str, Any]) -> None:
    """Within two per cent, with the costs that are measured and blocks as the key holder makes them."""
    measured = Measurements.load(RENDERERS / "capacity-measured.json")
    estimate = tree(Site(**site), TrainingOptions(**question), measured)
    simulated = SimulatedTree(estimate.job, estimate.site, estimate.host, estimate.kernels)
    assert estimate.seconds == pytest.approx(simulated.seconds, rel=0.02)


def test_the_simulation_shares_cores_and_lines() -> None:
    """Three processes with 3 s of work each take 4.5 s of two cores; a line carries one message after the other."""
    for processes, seconds in ((3, 4.5), (2, 3.0)):
        env = simpy.Environment()
        machine = Machine(env, 2)
        env.run(until=simpy.AllOf(env, [Process(env, machine).do(3.0) for _ in range(processes)]))
        assert env.now == pytest.approx(seconds)
    env = simpy.Environment()
    process = Process(env, Machine(env, 8))
    process.do(1.0)
    env.run(until=process.do(1.0))
    assert env.now == pytest.approx(2.0)
    env, out, into = simpy.Environment(), Port(8e-6), Port(16e-6)  # a byte in a second, and two
    carry(env, 1, out, into, 0.5)
    env.run(until=carry(env, 1, out, into, 0.5))
    assert env.now == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("question", "site"),
    [
        ({"records": 50_000, "columns": "4,6"}, {"cores": 2}),
        ({"records": 1_000_000}, {"cores": 4}),
        ({"records": 1_000_000, "missing": True, "depth": 5}, {"cores": 2, "nodes": "2,1", "cluster_holds_key": True}),
        ({"records": 200_000, "columns": "12,6,5", "max_bin": 255}, {"one_machine": True, "cores": 2, "workers": 2}),
        ({"records": 30_000, "columns": "0,11", "smaller_share": 0.3, "max_bin": 16}, {}),
        ({"records": 10_000_000}, {"cores": 4, "bandwidth": 1e4, "delay": 0.5}),
    ],
)
def test_an_estimate_on_a_lattice_is_near_a_simulation(question: dict[str, Any], site: dict[str, Any]) -> None:
    """Within three per cent, with costs of the size that they have."""
    measured = replace(MEASURED, lattice=ON_LATTICE)
    made = tree(Site(**site), TrainingOptions(scheme=LATTICE, **question), measured)
    assert isinstance(made, LatticeTree)
    assert made.seconds == pytest.approx(SimulatedLatticeTree(made).seconds, rel=0.03)


def test_the_first_tree_on_a_lattice_makes_the_products() -> None:
    """Once a job, cells times blocks, on the party's workers: by hand for the party's 12 columns of 32 bins."""
    question, of_cell = replace(QUESTION, scheme=LATTICE), 25 * ON_LATTICE.product_s + ON_LATTICE.inverse_s
    made = tree(SITE, question, replace(MEASURED, lattice=ON_LATTICE))
    assert made.once_cpu == {"feature party": pytest.approx(12 * 32 * of_cell)}
    assert made.once_s == pytest.approx(3 * 32 * of_cell)  # 4 workers have 3 columns each
    said = document(made, {})
    assert said["seconds"]["all_trees"] == pytest.approx(10 * made.seconds + made.once_s)
    assert said["training"]["scheme"] == LATTICE
    assert said["training"]["words"] == made.agreed.words  # type: ignore[attr-defined]


def test_costs_that_were_not_measured_are_named() -> None:
    with pytest.raises(ConfigError, match="no costs of lattice: measure them"):
        tree(SITE, replace(QUESTION, scheme=LATTICE))


def test_machines_of_a_party_wait_for_the_network_between_them() -> None:
    """Bins go out and come back one after the other, so that a tree takes longer than either direction."""
    said = ask(replace(SITE, nodes="1,4", inner_bandwidth=10), replace(QUESTION, max_bin=200))
    assert said["saturates_first"] == "feature party: network between its nodes"
    assert said["demands"][0]["seconds"] < said["seconds"]["tree"] < 2 * said["demands"][0]["seconds"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"records": 1}, "--records 1: too few"),
        ({"records": 5}, "too few for 3 levels"),
        ({"columns": "25"}, "--columns 25: needs the label holder's number"),
        ({"columns": "25,0"}, "1 to 4096 for each feature party"),
        ({"key_bits": 99}, "key_bits = 99"),
        ({"max_bin": 1}, "max_bin"),
    ],
)
def test_questions_that_no_training_fits_are_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        replace(QUESTION, **change).training()


def test_a_file_of_measurements_is_read_as_it_was_written_and_another_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "below" / "measured.json"
    MEASURED.save(path)
    assert Measurements.load(path) == MEASURED
    whole = path.read_text()
    path.write_text(whole.replace("0.0001", "-1", 1))
    with pytest.raises(ConfigError, match=r"send_message_s = -1 is no number above 0"):
        Measurements.load(path)
    for text in ("[]", whole.replace("0.0001", '"1"', 1), whole.replace('"version": 1', '"version": 2')):
        path.write_text(text)
        with pytest.raises(ConfigError, match="is no file of measurements"):
            Measurements.load(path)
