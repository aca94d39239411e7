"""Over sockets as in the simulator: one model, the same predictions, and transcripts that agree with every account."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.oracle import OracleModel
from tests.simulator import Federation, run
from tests.system.federations import ended, settings, states
from tests.worlds import (
    PARTIES,
    World,
    assert_oracles_model,
    assert_oracles_scores,
    joined_model,
    lattice_tolerance,
    spec,
    world,
)
from treetap.lab.local_federation import LocalFederation
from treetap.lattice.histogram_ways import Way
from treetap.models.store import read_model
from treetap.protocols.key_options import LATTICE
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.wire.transcript import TranscriptReader, open_message, summarise
from treetap.wire.v2 import jobs_pb2, transcript_pb2

pytestmark = pytest.mark.xdist_group("sockets")

JOBS: dict[str, tuple[World, BoostingParams]] = {
    "logistic": (
        world(80, (2, 2, 1), seed=8),
        BoostingParams(n_estimators=4, max_depth=3, max_bin=8, subsample=0.8),
    ),
    "softmax": (
        world(60, (1, 2, 2), objective="multi:softprob", classes=3, missing=0.2, seed=2),
        BoostingParams(objective="multi:softprob", n_estimators=2, max_depth=3, max_bin=6),
    ),
}
#: Protocol of a prediction without paths → how far its scores may be from the oracle's.
ENCRYPTED: dict[str, Callable[[OracleModel], Any]] = {"eini": lambda _: 1e-9, "eini-lattice": lattice_tolerance}
#: The trainings, the interactive and the encrypted predictions of each.
EVERYTHING = [*JOBS, *(f"{job}-{what}" for job in JOBS for what in ("new", *ENCRYPTED))]
LABEL_HOLDER, *FEATURE_PARTIES = PARTIES
#: Messages that count at the most bytes that they can take.
COUNTED = {
    "sampled_records",
    "children",
    "instance_spaces",
    "block_records",
    "route_queries",
    "lattice_key",
    "won_splits",
}


@dataclass
class Run:
    """Jobs that ran over sockets: their final statuses by name."""

    federation: LocalFederation
    ended: dict[str, jobs_pb2.JobStatus] = field(default_factory=dict)

    def transcript(self, party: str, job: str) -> Path:
        """A party's log of a job."""
        return self.federation.state(party) / "transcripts" / job


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Both jobs trained, the new records of each predicted in blocks of 5 in both ways, with everything on record."""
    folder = tmp_path_factory.mktemp("sockets")
    worlds = {name: here for name, (here, _) in JOBS.items()}
    with LocalFederation(folder, settings(folder, worlds, people={"record": "both"})) as federation:
        found = Run(federation)
        operator = federation.operator
        for name, (_, params) in JOBS.items():
            operator.submit(jobs_pb2.SubmitRequest(job=name, spec=spec(params, table=name)))
            found.ended[name] = operator.watch(name, lambda _: None)
            asked = predict_request(job=f"{name}-new", model=name, table=f"{name}-new", block=5)
            found.ended[f"{name}-new"] = operator.watch(operator.predict(asked), lambda _: None)
            for protocol in ENCRYPTED:
                asked = predict_request(protocol, job=f"{name}-{protocol}", model=name, table=f"{name}-new", block=5)
                found.ended[asked.job] = operator.watch(operator.predict(asked), lambda _: None)
        yield found


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[Any], pa.Table]]:
    """The same jobs in the simulator: model and predictions of each."""

    async def main(folder: Path, here: World, params: BoostingParams) -> tuple[list[Any], pa.Table]:
        federation = Federation(folder, here.tables)
        await federation.train(spec(params))
        predicted = await federation.predict(predict_request(model="job", block=5))
        await federation.close()
        return joined_model(federation.states), pq.read_table(predicted.predictions)

    folder = tmp_path_factory.mktemp("simulator")
    return {name: run(main(folder / name, here, params)) for name, (here, params) in JOBS.items()}


def _records(path: Path) -> list[transcript_pb2.TranscriptRecord]:
    return list(TranscriptReader(path))


def _tables(path: Path, kind: str) -> Counter[tuple[str, str, str]]:
    """(peer, step, class) → bytes of one kind of record."""
    return Counter(
        {
            (row["peer"], row["step"], row["class"]): row["bytes"]
            for row in summarise(path)["rows"]
            if row["kind"] == kind
        }
    )


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("job", JOBS)
def test_the_same_model_and_predictions(job: str, done: Run, simulated: dict[str, tuple[list[Any], pa.Table]]) -> None:
    """Node for node, score for score, the processes find what the simulator finds, which is the oracle's model."""
    here, params = JOBS[job]
    assert (done.ended[job].state, done.ended[job].error) == ("finished", "")
    assert (done.ended[f"{job}-new"].state, done.ended[f"{job}-new"].error) == ("finished", "")
    model, predictions = simulated[job]
    assert joined_model(states(done.federation, here), job) == model
    assert pq.read_table(done.ended[f"{job}-new"].predictions) == predictions
    oracle = here.oracle(params)
    assert_oracles_model(states(done.federation, here), oracle, job)
    for what in ("new", *ENCRYPTED):
        ended = done.ended[f"{job}-{what}"]
        within = ENCRYPTED.get(what, ENCRYPTED["eini"])(oracle)
        assert (ended.state, ended.error, ended.scored, ended.records) == ("finished", "", 12, 12)
        assert_oracles_scores(ended.predictions, oracle, here.newcomers, len(here.y), within)


def test_everybody_won_splits(done: Run) -> None:
    """The jobs are worth comparing: each party owns splits, and missing values go both ways."""
    splits = [
        node
        for job, (here, _) in JOBS.items()
        for tree in joined_model(states(done.federation, here), job)
        for node in tree.values()
        if node[0] == "split"
    ]
    assert {owner for _, owner, *_ in splits} == set(PARTIES)
    assert {missing_left for *_, missing_left, _ in splits} == {True, False}


@pytest.mark.parametrize("job", EVERYTHING)
@pytest.mark.parametrize("party", PARTIES)
def test_transcripts_can_be_read(party: str, job: str, done: Run) -> None:
    """The chain of hashes holds, every message opens as what it says it is, and the classes add up to its size."""
    path = done.transcript(party, job)
    records = _records(path)
    assert not TranscriptReader(path).torn
    assert [record.sequence for record in records] == list(range(len(records)))
    for record in records:
        message = open_message(record)
        assert message.SerializeToString() == record.message
        assert sum(record.bytes_by_class.values()) == len(record.message)
        assert record.job == job
        assert record.attempt == 1
    kinds = {transcript_pb2.TranscriptRecord.Kind.Name(record.kind) for record in records}
    assert kinds == {"RECEIVED", "SENT", "OWN"}
    assert (records[-1].peer, records[-1].step) == ("coordinator", "leave")


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("party", FEATURE_PARTIES)
def test_own_splits_are_those_of_the_model(party: str, job: str, done: Run) -> None:
    """A feature party's log has each of its splits with its meaning, as its half of the model has it."""
    _, shard = read_model(done.federation.state(party) / "models" / job)
    expected = [split for tree in shard for split in tree["splits"]]
    found = [open_message(record) for record in _records(done.transcript(party, job)) if record.step == "own_split"]
    assert [(own.handle, own.node, own.feature, own.threshold) for own in found] == [
        (split["handle"], split["node"], split["feature"], float(split["threshold"] or "inf")) for split in expected
    ]


@pytest.mark.parametrize("job", EVERYTHING)
@pytest.mark.parametrize("receiver", PARTIES)
def test_what_was_sent_is_what_arrived(receiver: str, job: str, done: Run) -> None:
    """Byte for byte and class for class: senders' accounts, the receiver's log and the senders' own logs agree.

    In accounts messages with sets of records, and a lattice key, count at the most bytes that they can take. They are
    closed before the last message, by which the coordinator has the parties leave.
    """
    rows = [row for each in done.ended[job].accounts for row in each.account.traffic if row.to == receiver]
    accounted = Counter({(getattr(row, "from"), row.step, row.disclosure): row.bytes for row in rows})
    messages = Counter({(getattr(row, "from"), row.step, row.disclosure): row.messages for row in rows})
    left = ("coordinator", "leave", "CONTROL")
    received = _tables(done.transcript(receiver, job), "received")
    assert received.pop(left)
    assert received.keys() == accounted.keys()
    for key, size in received.items():
        assert size <= accounted[key] if key[1] in COUNTED else size == accounted[key]
    arrived = summarise(done.transcript(receiver, job))["rows"]
    assert messages == Counter(
        {(row["peer"], row["step"], row["class"]): row["messages"] for row in arrived if row["kind"] == "received"}
    ) - Counter([left])
    for sender in set(PARTIES) - {receiver}:
        sent = _tables(done.transcript(sender, job), "sent")
        assert {key[1:]: size for key, size in sent.items() if key[0] == receiver} == {
            key[1:]: size for key, size in received.items() if key[0] == sender
        }


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("party", FEATURE_PARTIES)
def test_feature_parties_receive_no_more_than_they_must(party: str, job: str, done: Run) -> None:
    """Nothing that a feature party received is a sum that it could open, a leaf's weight, a prediction or a label."""
    received = {kind for _, _, kind in _tables(done.transcript(party, job), "received")}
    assert received == {"CONTROL", "TOPOLOGY", "PUBLIC_KEY", "BLINDED_ID", "CIPHERTEXT", "INSTANCE_SPACE"}


@pytest.mark.parametrize("job", EVERYTHING)
def test_the_coordinator_is_told_no_data(job: str, done: Run) -> None:
    """What the parties say to the coordinator is of the classes of the control plane only."""
    told = {
        row.disclosure for each in done.ended[job].accounts for row in each.account.traffic if row.to == "coordinator"
    }
    assert told <= {"CONTROL", "TOPOLOGY", "METRIC", "SIZE", "USAGE"}
    of_trees = {
        row.step
        for each in done.ended[job].accounts
        for row in each.account.traffic
        if ((row.to, row.disclosure) == ("coordinator", "TOPOLOGY"))
    }
    assert (of_trees == {"open_model"}) == job.endswith(tuple(ENCRYPTED))  # their number alone


@pytest.mark.parametrize("protocol", ENCRYPTED)
@pytest.mark.parametrize("job", JOBS)
def test_an_encrypted_prediction_tells_ciphertexts_only(job: str, protocol: str, done: Run) -> None:
    """Feature parties see ciphertexts, the layout and which records; the label holder the sums and no direction."""
    for party in FEATURE_PARTIES:
        received = {kind for _, _, kind in _tables(done.transcript(party, f"{job}-{protocol}"), "received")}
        assert received == {"CONTROL", "TOPOLOGY", "PUBLIC_KEY", "BLINDED_ID", "CIPHERTEXT", "INSTANCE_SPACE"}
    received = {kind for _, _, kind in _tables(done.transcript(LABEL_HOLDER, f"{job}-{protocol}"), "received")}
    assert received == {"CONTROL", "BLINDED_ID", "PREDICTION"}


@pytest.mark.second_tier
def test_nothing_secret_is_left(done: Run) -> None:
    """After publishing there is no key, no score and no progress on any disk."""
    for party in PARTIES:
        state = done.federation.state(party)
        assert list((state / "jobs").iterdir()) == []
        assert list(state.rglob("secret*")) == []
        assert list(state.rglob("scores*")) == []


# ---- A training on a lattice over sockets, with several workers at every party: the oracle's model, true accounts


#: Two blocks of records and a rest, so that workers share them.
HERE = world(8_200, (0, 1, 2), missing=0.1, seed=8)
#: Bins at which a node has few candidates, hence sets are taken, and at which it has many, hence queries are.
BOOSTING = BoostingParams(n_estimators=2, max_depth=2, max_bin=16)
FOREST = ForestParams(n_estimators=2, max_depth=2, max_bin=4, bootstrap=True)
ON_LATTICE: dict[str, tuple[TreeParams, Way]] = {
    "boosting by queries": (BOOSTING, Way.QUERIES),
    "boosting by sets": (replace(BOOSTING, max_bin=4), Way.SETS),
    "boosting, sets withheld": (replace(BOOSTING, instance_spaces="withheld", pad_trees=True), Way.QUERIES),
    "forest by queries": (FOREST, Way.QUERIES),
    "forest by sets": (replace(FOREST, bootstrap=False, binning="per-node"), Way.SETS),
}
WORKERS = dict(zip(PARTIES, (2, 3, 2), strict=True))


@pytest.mark.second_tier
@pytest.mark.campaign(but=2)
@pytest.mark.parametrize(("params", "way"), ON_LATTICE.values(), ids=ON_LATTICE)
def test_a_training_over_sockets(params: TreeParams, way: Way, tmp_path: Path) -> None:
    """Model node for node; what was sent is what arrived, byte for byte; only contents of a lattice come to b and c."""
    given: dict[str, dict[str, Any]] = settings(
        *(tmp_path, {"wide": HERE}),
        people={"record": "both"},
        keys={"schemes": ["lattice"], "min_key_bits": 3072},
        columns={"withheld_spaces": True},
    )
    for party, workers in WORKERS.items():
        given[party]["workers"] = workers
    with LocalFederation(tmp_path, given) as federation:
        job = spec(params, scheme=LATTICE, table="wide")
        federation.operator.submit(jobs_pb2.SubmitRequest(job="job", spec=job))
        status = ended(federation, "job")
        assert (status.state, status.error) == ("finished", "")
        assert_oracles_model(states(federation, HERE), HERE.oracle(params))
        transcripts = {party: federation.state(party) / "transcripts" / "job" for party in PARTIES}
    for receiver, path in transcripts.items():
        assert not TranscriptReader(path).torn
        sent = [row for each in status.accounts for row in each.account.traffic if row.to == receiver]
        accounted = Counter({(getattr(row, "from"), row.step, row.disclosure): row.bytes for row in sent})
        arrived = {
            (row["peer"], row["step"], row["class"]): row["bytes"]
            for row in summarise(path)["rows"]
            if row["kind"] == "received"
        }
        assert arrived.pop(("coordinator", "leave", "CONTROL"))  # the account is closed before
        assert arrived.keys() == accounted.keys()
        for key, size in arrived.items():
            assert size <= accounted[key] if key[1] in COUNTED else size == accounted[key]
        if receiver != PARTIES[0]:
            assert {step for _, step, _ in arrived} >= {
                "encrypted_words",
                "seed_nonce",
                "seed_commitment",
                "public_key",
            }
            words = [record for record in TranscriptReader(path) if record.step == "encrypted_words"]
            assert {record.stage for record in words} == ({0} if way is Way.SETS else {0, 1})
            assert not {"gradients", "encrypted_labels"} & {step for _, step, _ in arrived}
