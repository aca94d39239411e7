"""The commitment to a leaf table: one for a job whatever is killed, kept by all, compared in every prediction."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from party.eini import label_holder
from party.setup.leaf_commitment import send_commitment
from tests.replay import HERE, JOB, PARAMS
from tests.simulator import Federation, Message, run
from tests.worlds import PARTIES, manifest, spec
from treetap.models.leaf_table import COMMITMENT, LEAF_KEY, commitment, own_table
from treetap.models.store import described, read_job
from treetap.protocols.key_options import LATTICE
from treetap.protocols.prediction import predict_request
from treetap.trees.params import ForestParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2

LABEL_HOLDER, B, C = PARTIES
FOREST = ForestParams(n_estimators=2, max_depth=2, max_bin=3)
JOBS = {"boosting": JOB, "lattice": spec(PARAMS, scheme=LATTICE), "forest": spec(FOREST, obfuscation="standard")}


def kept(federation: Federation) -> dict[str, str]:
    """The commitment that each party keeps."""
    return {party: str(manifest(state).get(COMMITMENT)) for party, state in federation.states.items()}


def forget(state: Path) -> None:
    """Make a party's part of the model one of a release without commitments."""
    folder = state / "models" / "job"
    content = json.loads((folder / "manifest.json").read_text())
    digests = {name: digest for name, digest in content["files"].items() if name != LEAF_KEY}
    whole = {name: value for name, value in content.items() if name not in (COMMITMENT, "files", "sha256", "version")}
    job = {name: value for name, value in read_job(folder).items() if name != "sha256"}
    (folder / "manifest.json").write_bytes(described(job, digests, whole)["manifest.json"])


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("predicts", ["eini", "eini-lattice"])
@pytest.mark.parametrize("trained", JOBS)
def test_every_party_keeps_it_and_predictions_begin_with_it(trained: str, predicts: str, tmp_path: Path) -> None:
    """It is the one to the published leaves under the key that the label holder alone has."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        assert (await federation.train(JOBS[trained])).state == "finished"
        (made,) = set(kept(federation).values())
        key, table = own_table(federation.states[LABEL_HOLDER] / "models" / "job")
        assert commitment(key, table).hex() == made
        for party, state in federation.states.items():
            holds = [path for path in state.rglob("*") if path.is_file() and key.hex().encode() in path.read_bytes()]
            assert [path.name for path in holds] == ([LEAF_KEY] if party == LABEL_HOLDER else [])
        before = len(federation.log)
        status = await federation.predict(predict_request(predicts, model="job"))
        assert (status.state, status.error) == ("finished", "")
        sent = [message.to for message in federation.log[before:] if message.word == "leaf_commitment"]
        assert sorted(set(sent)) == [B, C]
        await federation.close()

    run(main())


@pytest.mark.second_tier(but=3)
@pytest.mark.parametrize("words", [("commit_leaves",), ("leaf_commitment",), ("publish",)], ids=lambda words: words[0])
@pytest.mark.parametrize("victim", [LABEL_HOLDER, B])
@pytest.mark.parametrize("served", [False, True])
def test_a_job_has_one_commitment_whatever_is_killed(
    words: tuple[str], victim: str, served: bool, tmp_path: Path
) -> None:
    """At each message of the publication, before and after it is taken: the key is drawn once, the others keep one."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        sent: list[bytes] = []
        killed: list[Message] = []

        def see(message: Message) -> None:
            if message.word in words and message.served == served and not killed:
                killed.append(message)
                federation.kill(victim)
                federation.start(victim)

        def note(_: str, __: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
            if name_of(parcel) == "leaf_commitment":
                sent.append(parcel.setup.leaf_commitment.commitment)
            return parcel

        federation.hook, federation.tamper = see, note
        status = await federation.train(JOB)
        while status.state == "interrupted":
            status = await federation.resume()
        assert (status.state, len(killed)) == ("finished", 1)
        (made,) = set(kept(federation).values())
        assert {each.hex() for each in sent} == {made}
        await federation.close()

    run(main())


def test_another_commitment_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A label holder with a second table says so, or is refused before any party masks an entry."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        await federation.train(JOB)
        made = set(kept(federation).values()).pop()
        send = send_commitment
        monkeypatch.setattr(label_holder, "send_commitment", lambda context, chain, _: send(context, chain, "ab" * 32))
        before = len(federation.log)
        status = await federation.predict(predict_request("eini", model="job", job="second"))
        assert status.state == "failed"
        assert f"{LABEL_HOLDER} has committed itself to other leaves of model job than" in status.error
        assert f"has kept (abababababab, kept {made[:12]})" in status.error
        assert "leaf_entries" not in {message.word for message in federation.log[before:]}
        monkeypatch.setattr(label_holder, "send_commitment", lambda context, chain, _: send(context, chain, "ab"))
        status = await federation.predict(predict_request("eini", model="job", job="short"))
        assert f"{LABEL_HOLDER} has sent a commitment to leaves of 1 bytes; it has 32" in status.error
        await federation.close()

    run(main())


def test_models_without_a_commitment_predict_as_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Such a model is named in the log; a label holder cannot take back what others keep."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        await federation.train(JOB)
        forget(federation.states[LABEL_HOLDER])
        status = await federation.predict(predict_request("eini", model="job", job="taken-back"))
        assert status.state == "failed"
        assert "(none, kept" in status.error
        forget(federation.states[B])
        forget(federation.states[C])
        with caplog.at_level("INFO", "party.setup.leaf_commitment"):
            status = await federation.predict(predict_request("eini", model="job", job="old"))
        assert (status.state, status.error) == ("finished", "")
        assert "job old: model job has no commitment to its leaves" in caplog.text
        await federation.close()

    run(main())


def test_a_second_commitment_of_a_training_is_refused(tmp_path: Path) -> None:
    """A label holder that comes back without its key cannot replace what a party has published."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        killed: list[Message] = []

        def see(message: Message) -> None:
            if (message.word, message.to, message.served) == ("publish", LABEL_HOLDER, False) and not killed:
                killed.append(message)
                federation.kill(LABEL_HOLDER)
                (federation.states[LABEL_HOLDER] / "jobs" / "job" / LEAF_KEY).unlink()
                federation.start(LABEL_HOLDER)

        federation.hook = see
        status = await federation.train(JOB)
        if status.state == "interrupted":
            status = await federation.resume()
        assert killed
        assert f"{LABEL_HOLDER} has committed itself to other leaves of model job than" in status.error
        await federation.close()

    run(main())
