"""A process killed at every message of a job, started again, the job resumed: always the oracle's model.

A small job (16 records, three parties that each win splits, two trees) has some 80 messages. At each of them
one of the four processes, by turns, is killed: whoever sends or receives the message before it arrives and again after
it was served but not answered, another before it arrives. Every second time the process is back at once, so that
its peers meet a process that knows nothing of the job; every other time it stays away until they have given up.
(`python -m tests.campaign kills` kills every process at every message.)

Four of five of these jobs compute with a transparent cipher (`tests.campaign.cipher`): keys and steps are the same.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.campaign.cipher import KeysMade, ciphers
from tests.forest import test_disturbed
from tests.lattice_ways import take_way
from tests.oracle import OracleModel, OracleSplit
from tests.replay import HERE, JOB, ORACLE, PARAMS, faultless
from tests.simulator import COORDINATOR, Federation, Message, finished, run
from tests.trainings import jobs_of
from tests.trainings import oracle as train
from tests.worlds import PARTIES, World, assert_oracles_model, spec
from treetap.lattice.histogram_ways import Way
from treetap.protocols.key_options import LATTICE
from treetap.wire.frame import PATHS
from treetap.wire.transcript import TranscriptReader
from treetap.wire.v2 import setup_pb2
from treetap.wire.v2.control_pb2 import StepRequest
from treetap.wire.v2.exchange_pb2 import PeerMessage

#: Virtual seconds within which the operator learns who is away.
SOON_S = 15.0
#: Virtual seconds after which everybody who waited for a dead process has given up.
GIVEN_UP_S = 200.0
#: One message in this many is tried with real ciphertexts.
REAL = 5
ON_LATTICE = spec(PARAMS, scheme=LATTICE)


class Assassin:
    """Kills one process at one message, and watches that no model shows before its time."""

    def __init__(self, federation: Federation, victim: str, number: int, served: bool, back_at_once: bool) -> None:
        self.federation, self.victim = federation, victim
        self.at, self.back_at_once = (number, served), back_at_once
        self.done = False
        self._asked: set[str] = set()  # parties that have been told to publish
        self._models = {name: f"{state}/models" for name, state in federation.states.items()}

    def __call__(self, message: Message) -> None:
        """The hook."""
        if message.word == "publish":
            self._asked.add(message.to)
        self.watch()
        if (message.number, message.served) == self.at and not self.done:
            self.done = True
            self.federation.kill(self.victim)
            if self.back_at_once:
                self.federation.start(self.victim)

    def watch(self) -> None:
        """A party's model is there only after it was told; the label holder's means that everybody's is there."""
        published = {name for name, folder in self._models.items() if os.listdir(folder)}
        assert published <= self._asked
        assert PARTIES[0] not in published or published == set(PARTIES)


def test_the_job_has_all_that_a_job_can_have(tmp_path: Path) -> None:
    """Every party wins a split in each of the two trees, and every kind of message of a training is sent."""
    for tree in ORACLE:
        assert {node.owner for node in tree.nodes.values() if isinstance(node, OracleSplit)} == set(PARTIES)
    words = {message.word for message in faultless(tmp_path)}
    paths = [item for frame in (StepRequest, PeerMessage) for item in PATHS[frame].items()]
    kinds = {name for name, path in paths if not {"pivodl", "masked", "splitnn"} & set(path)}
    predicting = ("open_", "await_", "ask_", "answer_", "take_d", "write_", "route_", "spent_")
    serving = ("look", "listed_", "number_columns", "reason_", "record_ways")
    masking = ("score_block", "mask_block", "entry_layout", "constant_", "block_records", "leaf_entries", "leaf_sums")
    lattices = (
        "lattice_",
        "column_layout",
        "candidate_count",
        "seed_",
        "encrypted_words",
        "base_p",
        "base_c",
        "left_c",
    )
    explaining = ("name_features", "take_names", "split_names", "attribut", "mask_attributions")
    blinding = ("blind", "pass_", "raise_", "relay_ids", "combine_", "refresh_", "trace_", "match_", "agree_")  # of psi
    forests = ("share_labels", "take_labels", "encrypted_labels")
    categories = ("chosen_partitions", "noised_sums")  # by the parties' own tables and files
    previewing = ("charge_", "count_", "take_count", "least_", "shared_")
    sharing = ("deal", "shares", "champion_", "winner_", "choose_shares", "correlations", "opened_pairs", "screened_")
    checks = (
        "check_job",
        "alignment_key",
        "sum_of_list",
        "prove_ids",
        "lacked_records",
    )  # before a job, or if asked for
    others = (
        *checks,
        *sharing,
        *previewing,
        *predicting,
        *serving,
        *masking,
        *lattices,
        *explaining,
        *blinding,
        *forests,
        *categories,
    )
    assert words == {kind for kind in kinds if not kind.startswith(others)}


def _kill_and_resume(
    folder: Path,
    victim: str,
    number: int,
    served: bool,
    back_at_once: bool,
    job: setup_pb2.JobSpec = JOB,
    here: World = HERE,
    oracle: OracleModel = ORACLE,
) -> str:
    """Returns the state in which the killing left the job."""

    async def main() -> str:
        federation = Federation(folder, here.tables)
        hook = federation.hook = Assassin(federation, victim, number, served, back_at_once)
        status = await federation.train(job)
        state = status.state
        assert hook.done
        if victim != COORDINATOR and state != "finished":
            assert victim in status.error
            assert status.seconds < SOON_S
        if not back_at_once:
            await asyncio.sleep(GIVEN_UP_S)
            federation.start(victim)
        hook.watch()
        assert [status.state for status in federation.jobs.status("job")] == [state]
        if state != "finished":
            assert state == "interrupted"
            finished(await federation.resume())
        assert_oracles_model(federation.states, oracle)
        for party in federation.states.values():
            assert list((party / "jobs").iterdir()) == []
            assert list(party.rglob("secret*")) == []
        return state

    with ciphers(KeysMade(), transparent=number % REAL != 0):
        return run(main())


@pytest.mark.second_tier
@pytest.mark.campaign(but=1)
@pytest.mark.long
@pytest.mark.parametrize("victim", [COORDINATOR, *PARTIES])
def test_killed_at_every_message(victim: str, tmp_path: Path) -> None:
    """The resumed job finds the oracle's model, nobody hangs, no model or key is where it should not be."""
    _killed_at(faultless(tmp_path / "faultless"), victim, tmp_path, JOB)


@pytest.mark.second_tier
@pytest.mark.campaign(but=1)
@pytest.mark.long
@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize("victim", [*PARTIES, COORDINATOR])
def test_killed_at_every_message_of_a_lattice(
    victim: str, way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same with words of a lattice, for each node or tree, that are drawn anew."""
    take_way(monkeypatch, way)
    _killed_at(faultless(tmp_path / "faultless", job=ON_LATTICE), victim, tmp_path, ON_LATTICE)


_PADDED = replace(PARAMS, instance_spaces="withheld", pad_trees=True)
#: Labels shared under a key, not at all, and in words that serve all trees; parties that sit trees out; padded trees.
OTHERS: dict[str, tuple[setup_pb2.JobSpec, World, OracleModel]] = {
    **{f"forest, {name}": (job, test_disturbed.HERE, oracle) for name, (job, oracle) in test_disturbed.JOBS.items()},
    **{
        f"{name}, sitting out": (
            spec(jobs_of(name).PARAMS, obfuscation="standard"),
            HERE,
            train(HERE, jobs_of(name).PARAMS),
        )
        for name in ("boosting", "forest")
    },
    "padded": (spec(_PADDED, scheme=LATTICE), HERE, train(HERE, _PADDED)),
}


@pytest.mark.second_tier
@pytest.mark.campaign(but=9)
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("victim", [PARTIES[0], COORDINATOR, *PARTIES[1:]])
def test_killed_at_some_messages(victim: str, name: str, tmp_path: Path) -> None:
    """While labels are shared, at transfers of left bits, and at some messages of each tree, of further jobs."""
    job, here, oracle = OTHERS[name]
    own = ("share_labels", "take_labels", "encrypted_labels", "base_points", "base_choices", "left_choices")
    log = faultless(tmp_path / "faultless", here, job)
    numbers = [each.number for each in log if each.word in own or each.number % 17 == 4]
    states = {_kill_and_resume(tmp_path / f"{at}", victim, at, False, at % 2 == 0, job, here, oracle) for at in numbers}
    assert "interrupted" in states


@pytest.mark.second_tier
@pytest.mark.parametrize("way", Way)
def test_killed_between_encryption_and_delivery(way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some messages that only a lattice has, before and after they arrive; by turns their sender and receiver die."""
    take_way(monkeypatch, way)
    own = ("candidate_count", "seed_commitment", "seed_nonce", "encrypted_words")
    words = [each for each in faultless(tmp_path / "faultless", job=ON_LATTICE) if each.word in own]
    for turn, message in enumerate(words[::9]):
        victim = message.to if turn % 2 else message.sender
        folder = tmp_path / str(message.number)
        assert (
            _kill_and_resume(folder, victim, message.number, turn % 3 == 2, turn % 2 == 0, ON_LATTICE) == "interrupted"
        )


def _killed_at(log: list[Message], victim: str, tmp_path: Path, job: setup_pb2.JobSpec) -> None:
    states, turn = set(), [*PARTIES, COORDINATOR].index(victim)
    for message in log[turn::4]:
        for served in (False, True) if victim in (message.sender, message.to) else (False,):
            back_at_once = (message.number // 4 + served) % 2 == 0
            where = f"{'served' if served else 'on its way'} {message}, back at once: {back_at_once}"
            try:
                folder = tmp_path / f"{message.number}-{served}"
                states.add(_kill_and_resume(folder, victim, message.number, served, back_at_once, job))
            except BaseException as failure:
                failure.add_note(f"{victim} killed, {where}")
                raise
    assert "interrupted" in states


async def test_logs_go_on_after_a_kill(tmp_path: Path) -> None:
    """Transcripts of killed parties stay one unbroken chain, and hold both attempts."""
    federation = Federation(tmp_path, HERE.tables, record="both")

    def kill_everybody(message: Message) -> None:
        if message.word == "children":
            federation.hook = None
            for party in PARTIES:
                federation.restart(party)

    federation.hook = kill_everybody
    assert (await federation.train(JOB)).state == "interrupted"
    assert (await federation.resume()).state == "finished"
    assert_oracles_model(federation.states, ORACLE)
    await federation.close()
    for state in federation.states.values():
        records = list(TranscriptReader(state / "transcripts" / "job"))
        assert [record.sequence for record in records] == list(range(len(records)))
        assert {record.attempt for record in records} == {1, 2}
