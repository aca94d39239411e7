"""Whatever reached the coordinator or lies on its disk: steps, topology and metrics, and nothing of the data."""

from __future__ import annotations

import pytest

from tests.blindness.coordinator_view import OPEN, Seen, on_disk, secrets_of, with_long_names
from tests.simulator import COORDINATOR, Federation, Message, run
from tests.worlds import PARTIES, spec, world
from treetap.models.store import TREES
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.disclosure import bytes_by_class_of
from treetap.wire.transcript import TranscriptReader
from treetap.wire.v2 import control_pb2

pytestmark = pytest.mark.xdist_group("blindness")

PARAMS = BoostingParams(objective="reg:squarederror", n_estimators=3, max_depth=3, max_bin=8)
METRICS = {"train_rmse"}


def _of_parties(federation: Federation) -> bytes:
    """Shards and logged messages of all parties."""
    content = []
    for state in federation.states.values():
        content.append((state / "models" / "job" / TREES).read_bytes())
        content += [record.message for record in TranscriptReader(state / "transcripts" / "job")]
    return b"\n".join(content)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """A training that is killed and resumed, predictions in both ways, one that fails: with all the parties know."""
    folder = tmp_path_factory.mktemp("blind") / "federation"
    here = with_long_names(world(40, (2, 2, 1), objective="reg:squarederror", missing=0.1, seed=8))

    async def main() -> Seen:
        federation = Federation(folder, here.tables, record="both")
        killed = False

        def kill_once(message: Message) -> None:
            nonlocal killed
            if message.word == "candidate_sums" and len(federation.log) > 60 and not killed:
                killed = True
                federation.restart(PARTIES[1])

        federation.hook = kill_once
        assert (await federation.train(spec(PARAMS, obfuscation="standard"))).state == "interrupted"
        assert (await federation.resume()).state == "finished"
        assert (await federation.predict(predict_request(model="job", block=7))).state == "finished"
        encrypted = predict_request(model="job", job="eini", protocol="eini")
        assert (await federation.predict(encrypted)).state == "finished"
        encrypted = predict_request(model="job", job="lattice", protocol="eini-lattice")
        assert (await federation.predict(encrypted)).state == "finished"
        (folder / PARTIES[0] / "ids.txt").write_text("patient-nobody\n")
        wrong = predict_request(model="job", records_file="ids.txt")
        assert (await federation.predict(wrong)).state == "failed"
        events = federation.seen_by_coordinator
        statuses = [status.SerializeToString() for status in federation.jobs.status("")]
        told = [text.encode() for text in federation.told_coordinator]
        disk = on_disk(folder / COORDINATOR)
        secrets = secrets_of(federation, here)
        requests = [request.SerializeToString() for _, _, request in federation.conducted]
        await federation.close()
        return Seen(events, requests, b"\n".join([*events, *statuses, *told, disk]), secrets, _of_parties(federation))

    return run(main())


def test_only_plain_classes_reach_the_coordinator(seen: Seen) -> None:
    """Every byte of every event is of these classes, and so is every byte that the coordinator sends."""
    assert len(seen.events) > 100
    for event in seen.events:
        assert set(bytes_by_class_of(event, control_pb2.StepEvent)) <= OPEN
    for request in seen.requests:
        assert set(bytes_by_class_of(request, control_pb2.StepRequest)) <= OPEN


@pytest.mark.parametrize(
    "what",
    [
        *("ids", "columns", "features", "labels", "thresholds", "weights", "gains"),
        *("ciphertexts", "keys", "digests"),
    ],
)
def test_nothing_of_the_data_is_among_its_bytes(what: str, seen: Seen) -> None:
    """No secret of this kind occurs in what it received, was told, answers operators or keeps on disk."""
    looked_for = seen.secrets[what]
    assert len(looked_for) >= 2
    assert [secret for secret in looked_for if secret in seen.everything] == []


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("what", ["thresholds", "weights", "gains", "ciphertexts", "keys", "digests"])
def test_the_search_finds_them_where_they_are(what: str, seen: Seen) -> None:
    """The same search among the parties' own shards and logged messages finds what crossed or was made there."""
    assert sum(secret in seen.parties for secret in seen.secrets[what]) >= 2
    assert all(party.encode() in seen.everything for party in PARTIES)


def test_metrics_are_what_the_label_holder_publishes(seen: Seen) -> None:
    """The only numbers about labels that the coordinator sees bear the names of metrics."""
    names = set()
    for event in seen.events:
        result = control_pb2.StepEvent.FromString(event).result
        names |= {metric.name for metric in result.growth.finished_tree.metrics}
    assert names == METRICS
