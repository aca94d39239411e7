"""One job at all parties and at all attempts: digests of the job are kept, compared, and written down."""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from tests.campaign.fuzz_cases import intercept
from tests.campaign.small_jobs import PREDICTIONS, PREVIEWS, TRAININGS, begin, play, trained, training_of
from tests.pivodl.federations import federation_of, job_of, transparent
from tests.pivodl.jobs import SMALL, SPREAD
from tests.pivodl.worlds import some_params, some_world
from tests.replay import HERE, JOB, PARAMS, SUBMISSION, asked
from tests.simulator import Federation, failed
from tests.worlds import PARTIES, spec
from treetap.errors import Malformed
from treetap.models.store import read_manifest
from treetap.party.runtime.ledger import Attempted
from treetap.party.runtime.transcript_recorder import Recorders
from treetap.protocols.agreement import attempt_digest, job_digest, job_document
from treetap.protocols.job_spec import put_params
from treetap.protocols.prediction import predict_request
from treetap.trees.job_params import JobParams
from treetap.trees.params import BoostingParams
from treetap.wire.frame import content_of, name_of
from treetap.wire.tls import Insecure
from treetap.wire.transcript import TranscriptReader
from treetap.wire.v2 import exchange_pb2, prediction_pb2, setup_pb2, transcript_pb2

LABEL_HOLDER, B, C = PARTIES
PREPARE = setup_pb2.Prepare(spec=JOB, submission=SUBMISSION)
OPENING = prediction_pb2.OpenModel(model="job", table="predict", recipient=LABEL_HOLDER, feature_parties=[B, C])
OPENING.parameters.interactive.form = "batched"
#: Contents by which parties hear of each other first: identifiers that are blinded or hashed, and their number, after
#: the key of an exponent; in a preview a rule of the policy; to a dealer, which only answers, sizes of what it deals.
FIRST = {"alignment_key", "blinded_ids", "record_digest", "least_count", "dealt_sizes"}
OTHER_JOB = r"job job is not the same at [a-z-]+ and at [a-z-]+ \(digests [0-9a-f]{12} and [0-9a-f]{12}\)"


# ---- the digest


def _other(message: Message, field: Any) -> Message:
    """The message with another content of a field."""
    changed = type(message)()
    changed.CopyFrom(message)
    if field.is_repeated:
        getattr(changed, field.name).append("another")
    else:
        setattr(changed, field.name, {str: "another", bool: True}.get(type(getattr(changed, field.name)), 7))
    return changed


def test_every_field_of_a_job_is_in_its_digest() -> None:
    """But for parameters, which are parsed, addresses, the signature, and parties that one attempt goes on without."""
    apart = {"parameters", "peers", "away", "signed"}
    for opening in (PREPARE, OPENING):
        within = opening.spec if isinstance(opening, setup_pb2.Prepare) else opening
        digests = {job_digest("job", opening), job_digest("other", opening)}
        fields = [field for field in within.DESCRIPTOR.fields if field.name not in apart]
        for field in fields:
            changed = _other(within, field)
            whole = setup_pb2.Prepare(spec=changed) if isinstance(changed, setup_pb2.JobSpec) else changed
            whole.submission = opening.submission if whole is not changed else whole.submission
            digests.add(job_digest("job", whole))
        assert len(digests) == len(fields) + 2
    assert job_digest("job", PREPARE) != job_digest("job", setup_pb2.Prepare(spec=JOB, submission="another"))


def test_parameters_are_compared_as_they_are_parsed() -> None:
    """A parameter that is left out is its default; addresses and the encoding make no other job."""
    document = job_document("job", PREPARE)
    assert document["parameters"]["max_depth"] == PARAMS.max_depth
    assert document["parameters"]["missing"] is None  # none
    assert (document["protocol"], document["aggregator"]) == ("boosting", LABEL_HOLDER)
    assert json.loads(json.dumps(document)) == document
    addressed = setup_pb2.Prepare(spec=JOB, submission=SUBMISSION, peers=[{"name": B, "address": "10.0.0.1:7301"}])
    addressed.signed.signature = b"of it"
    assert job_digest("job", addressed) == job_digest("job", PREPARE)
    other = setup_pb2.Prepare(spec=JOB, submission=SUBMISSION)
    put_params(other.spec, replace(PARAMS, seed=PARAMS.seed + 1))
    assert job_digest("job", other) != job_digest("job", PREPARE)


def test_an_attempt_without_a_party_has_a_digest_of_its_own() -> None:
    """The job stays the same one, while every party must hold the same parties away."""
    degraded = prediction_pb2.OpenModel()
    degraded.CopyFrom(OPENING)
    degraded.away.append(C)
    digest = job_digest("job", OPENING)
    assert job_digest("job", degraded) == digest
    assert attempt_digest(digest, degraded) != digest == attempt_digest(digest, OPENING)


@pytest.mark.parametrize("opening", [PREPARE, OPENING], ids=["training", "prediction"])
def test_unknown_fields_are_refused(opening: Message) -> None:
    """Nobody could compare them."""
    later = type(opening).FromString(opening.SerializeToString() + b"\xfa\x7f\x05later")
    with pytest.raises(Malformed, match="the job has fields that this release does not know"):
        job_digest("job", later)
    within = setup_pb2.Prepare(spec=setup_pb2.JobSpec.FromString(JOB.SerializeToString() + b"\xf8\x7f\x01"))
    with pytest.raises(Malformed, match="does not know"):
        job_digest("job", within)


# ---- two jobs under one name


def _told(federation: Federation, told: Mapping[str, JobParams], *, after: int = 0) -> None:
    """The coordinator tells each of these parties other parameters, in all attempts after the number `after`."""

    def alter(way: str, _sender: str, to: str, message: Any) -> Any:
        if way == "request" and name_of(message) == "prepare" and message.attempt > after and to in told:
            message.setup.prepare.spec.ClearField("parameters")
            put_params(message.setup.prepare.spec, told[to])
        return message

    intercept(federation, alter)


def _contents(federation: Federation) -> set[str]:
    """The names of contents that parties send each other from now on."""
    found: set[str] = set()

    def seen(_sender: str, _receiver: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        found.add(name_of(parcel))
        return parcel

    federation.tamper = seen
    return found


@pytest.mark.parametrize("alignment", ["sorted-ids", "psi"])
@pytest.mark.parametrize("victim", [LABEL_HOLDER, B, C])
async def test_a_party_that_is_told_other_parameters_is_noticed(victim: str, alignment: str, tmp_path: Path) -> None:
    """By name, before anything has left but blinded or hashed ids: here more candidates would have been opened."""
    federation = Federation(tmp_path, HERE.tables)
    _told(federation, {victim: replace(PARAMS, max_bin=4096)})
    sent = _contents(federation)
    status = await federation.train(spec(PARAMS, obfuscation="standard", alignment=alignment))
    assert status.state == "failed"
    assert sent <= FIRST
    await federation.close()
    assert re.search(OTHER_JOB, status.error), status.error


@pytest.mark.second_tier
async def test_noise_that_one_party_was_not_told_of(tmp_path: Path) -> None:
    """PIVODL with ε at the label holder alone: no weight of a leaf is sent, with noise or without."""
    noisy = replace(SMALL, n_estimators=2, epsilon=0.5, gamma=0.0)

    job = job_of(SPREAD, noisy)
    federation = federation_of(tmp_path, SPREAD, job)
    _told(federation, {B: replace(noisy, epsilon=None), C: replace(noisy, epsilon=None)})
    sent = _contents(federation)
    failed(await federation.train(job), "is not the same at")
    assert sent <= FIRST


def _predicting(federation: Federation, opened: Callable[[prediction_pb2.OpenModel, str], None]) -> None:
    """The coordinator changes what it tells parties of a prediction."""

    def alter(way: str, _sender: str, to: str, message: Any) -> Any:
        if way == "request" and name_of(message) == "open_model":
            opened(message.prediction.open_model, to)
        return message

    intercept(federation, alter)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("story", [*PREDICTIONS, "serving"])
async def test_a_prediction_is_one_job_too(story: str, tmp_path: Path) -> None:
    """A party that is told of other blocks of records takes no message of its peers."""
    trained(training_of(story))

    def other(opening: prediction_pb2.OpenModel, to: str) -> None:
        opening.block += to == LABEL_HOLDER

    federation = begin(tmp_path, story)
    _predicting(federation, other)
    sent = _contents(federation)
    serving = predict_request(model="job", job="new", serve=True)
    status = await (federation.predict(serving) if story == "serving" else play(federation, story))
    assert status.state == "failed"
    assert "is not the same at" in status.error
    assert sent <= FIRST


# ---- one job over attempts


async def _killed_and_resumed(
    federation: Federation, job: setup_pb2.JobSpec, victim: str, word: str, told: Mapping[str, JobParams]
) -> str:
    """Train, kill a party at a word, resume with other parameters; the error of the second attempt."""
    left = [1]

    def hook(message: Any) -> None:
        if message.word == word and message.served and left and federation.alive(victim):
            left.clear()
            federation.kill(victim)

    federation.hook = hook
    assert (await federation.train(job)).state == "interrupted"
    await asyncio.sleep(200)
    federation.start(victim)
    _told(federation, told, after=1)
    status = await federation.resume()
    assert status.state == "interrupted"
    for state in federation.states.values():
        assert not (state / "models" / "job").exists()
    return str(status.error)


async def test_a_resumed_job_is_the_one_that_was_begun(tmp_path: Path) -> None:
    """Boosting that is resumed deeper and with more bins is refused by every party that is told so."""
    federation = Federation(tmp_path, HERE.tables)
    deeper = replace(PARAMS, max_depth=8, max_bin=4096)
    error = await _killed_and_resumed(federation, JOB, B, "store_tree", dict.fromkeys(PARTIES, deeper))
    assert "job job is not the one that its first attempt began (digest " in error
    held = json.loads((federation.state(B) / "jobs" / "job" / "job.json").read_text())["digest"]
    assert f"(digest {held[:12]}, now " in error
    assert (await federation.resume()).state == "interrupted"  # as often as it is tried


async def test_a_party_without_its_list_of_attempts_has_the_jobs_own_file(tmp_path: Path) -> None:
    """attempts.json may be removed; the digest stands beside the job's trees too."""
    federation = Federation(tmp_path, HERE.tables)
    federation.hook = lambda m: (federation.state(B) / "attempts.json").unlink() if m.word == "leave" else None
    left = replace(PARAMS, max_depth=3)
    error = await _killed_and_resumed(federation, JOB, B, "store_tree", {B: left})
    assert "job job is not the one that its first attempt began" in error


@pytest.mark.second_tier
async def test_another_seed_redraws_nobody_who_opens_sums(tmp_path: Path) -> None:
    """PIVODL: with the seed bound, the parties that open each other's sums stay those of the first attempt."""
    params = replace(SMALL, n_estimators=2, gamma=0.0)

    job = job_of(SPREAD, params)
    federation = federation_of(tmp_path, SPREAD, job)
    told = dict.fromkeys(PARTIES, replace(params, seed=12345))
    error = await _killed_and_resumed(federation, job, C, "open_sums", told)
    assert "is not the one that its first attempt began" in error


@pytest.mark.second_tier
async def test_a_leafs_noise_is_drawn_once_whatever_the_coordinator_says(tmp_path: Path) -> None:
    """Interrupted at every close of a tree and resumed with a new seed: no source reads a second noise of a leaf."""
    params = some_params(4, epsilon=8.0, max_depth=2, gamma=0.0)
    here = some_world(4, params.objective, 5)
    weights: defaultdict[tuple[int, int, str], set[tuple[float, ...]]] = defaultdict(set)

    with transparent():
        job = job_of(here, params)
        federation = federation_of(tmp_path, here, job)

        def seen(_sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
            if name_of(parcel) == "leaf_weights":
                for each in content_of(parcel, "leaf_weights").leaves:  # type: ignore[attr-defined]
                    weights[parcel.round, each.node, to].add(tuple(each.weight))
            return parcel

        federation.tamper = seen
        victim = list(here.tables)[-1]
        told = dict.fromkeys(here.tables, replace(params, seed=1002))
        error = await _killed_and_resumed(federation, job, victim, "close_tree", told)
        assert "is not the one that its first attempt began" in error
        await federation.close()
    assert weights
    assert all(len(values) == 1 for values in weights.values())


# ---- what has left a party before it knows its peers' job


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("story", [*TRAININGS, *PREDICTIONS, *PREVIEWS])
async def test_nothing_but_hidden_ids_leaves_before_jobs_are_compared(story: str, tmp_path: Path) -> None:
    """A party knows a peer's job by a message of it, or of one that knew it: each has compared the digests.

    To a peer whose job it does not know it sends contents of `FIRST` alone.
    """
    if story in PREDICTIONS:
        trained(training_of(story))
    knows: defaultdict[str, set[str]] = defaultdict(set)
    early: set[str] = set()

    def seen(sender: str, receiver: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if receiver not in knows[sender]:
            early.add(name_of(parcel))
        knows[receiver] |= {sender} | knows[sender]
        return parcel

    federation = begin(tmp_path, story)
    federation.tamper = seen
    assert (await play(federation, story)).state == "finished"
    await federation.close()
    assert early
    assert early <= FIRST


# ---- where it stands


async def test_digests_stand_in_files_manifests_and_transcripts(tmp_path: Path) -> None:
    """The same one at every party, of the training and, in heads of its transcript, of the prediction."""
    federation = Federation(tmp_path, HERE.tables, record="received")
    assert (await federation.train(JOB)).state == "finished"
    assert (await federation.predict(asked("new", "interactive"))).state == "finished"
    await federation.close()
    states = federation.states.values()
    digests = {read_manifest(state / "models" / "job")["job_digest"] for state in states}
    digests |= {json.loads((state / "models" / "job" / "job.json").read_text())["digest"] for state in states}
    assert len(digests) == 1
    (trained_by,) = digests
    for state in states:
        known = json.loads((state / "attempts.json").read_text())
        attempts = {key.split("/")[0]: Attempted(*held).digest for key, held in known.items() if "/" in key}
        assert attempts["job"] == trained_by != attempts["new"]


def test_a_head_names_the_job(tmp_path: Path) -> None:
    """A transcript's signature covers the digest; the reader says it, of a federation in plain text too."""
    recorders = Recorders(tmp_path, "received", Insecure("a"))
    recorders.keep_open("job", b"\x5a" * 32)
    recorders.of("job").own(0, 0, 1, transcript_pb2.OwnSplit(handle=1))
    recorders.close("job")
    reader = TranscriptReader(tmp_path / "job")
    assert len(list(reader)) == 1
    assert reader.anchor.plain()["job_digest"] == "5a" * 32
    assert str(reader.anchor).endswith("; job digest 5a5a5a5a5a5a5a5a")


def test_a_small_job_in_boosting_has_parameters_of_every_kind() -> None:
    """Documents of all protocols' parameters are JSON: of mappings, of sequences, and of numbers that are none."""
    rich = BoostingParams(max_bin=8, party_dropout={B: 0.5})
    job = setup_pb2.JobSpec()
    job.CopyFrom(JOB)
    put_params(job, rich)
    assert job_document("job", setup_pb2.Prepare(spec=job))["parameters"]["party_dropout"] == {B: 0.5}
    for _, other, _ in TRAININGS.values():
        json.dumps(job_document("job", setup_pb2.Prepare(spec=other)), allow_nan=False)
