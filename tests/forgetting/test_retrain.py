"""A model in the place of another one: who may order it, who deletes what when, and what it tells of who was forgotten.

Jobs are signed by an operator whom all policies name.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.attacks.present import present
from tests.certificates import certified
from tests.serving.served import config, phase
from tests.simulator import Federation, Message, failed, finished
from tests.worlds import PARTIES, World, assert_oracles_model, assert_oracles_scores, spec, world
from treetap.attacks.view.view import read_label_holder
from treetap.errors import ConfigError, UnknownJob
from treetap.party.defences.settings import Defences
from treetap.process.config import TlsConfig
from treetap.protocols.agreement import Request, checked, job_digest, named, statement, to_draft
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.own_rows import OwnRows
from treetap.wire.signatures import signed
from treetap.wire.tls import TlsFiles
from treetap.wire.v2 import jobs_pb2, setup_pb2

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")
LABEL_HOLDER, B, C = PARTIES
PARAMS = BoostingParams(n_estimators=2, max_depth=2, max_bin=3, min_child_weight=0.1)
#: In which no two candidates tie, since private set intersection orders the records by chance.
HERE = world(16, (1, 1, 1), seed=31, fresh=6)
GONE = (2, 9)
FORGOTTEN = 7
#: By row; the tables of the others keep who was forgotten at the label holder.
KEPT = [row for row in range(16) if row not in GONE]
WITHOUT = replace(HERE, blocks=[block[KEPT] for block in HERE.blocks], y=HERE.y[KEPT])


def again(before: str, params: BoostingParams = PARAMS) -> setup_pb2.JobSpec:
    """The job in the place of a model; empty: of none."""
    return spec(params, key_bits=512, obfuscation="standard", alignment="psi", replaces=before)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TlsFiles]:
    """The files of all parties and of an operator."""
    return certified(tmp_path_factory.mktemp("keys"), *PARTIES, "operator")


class Signing:
    """A federation whose parties open what its operator has signed, and nothing else."""

    def __init__(self, folder: Path, keys: dict[str, TlsFiles], here: World = HERE, **more: Any) -> None:
        tls = {name: TlsConfig(ca=own.ca, certificate=own.certificate, key=own.key) for name, own in keys.items()}
        policies = {name: {"people": {"operators": ["operator"]}} for name in PARTIES}
        self.keys, self.here = keys["operator"], here
        self.all = Federation(folder, here.tables, tls=tls.get, policies=policies, **more)

    def submit(self, request: Request) -> str:
        """Sign a job and submit it."""
        request = named(request)  # type: ignore[type-var] # one of the three
        drafted = self.all.jobs.submissions.draft(to_draft(request))
        content, now = statement(job_digest(request.job, checked(request, drafted))), time.time_ns()
        request.signed.CopyFrom(signed(self.keys, content, "job", now, now + 10**15))
        return self.all._told(lambda jobs: jobs.submit(request))

    async def train(self, job: Any, name: str) -> jobs_pb2.JobStatus:
        return await self.all.jobs.wait(self.submit(jobs_pb2.SubmitRequest(job=name, spec=job)))

    async def predict(self, model: str, **asked: Any) -> jobs_pb2.JobStatus:
        return await self.all.jobs.wait(self.submit(predict_request(model=model, **asked)))

    def having(self, model: str) -> list[str]:
        """The parties that have a part of a model."""
        return [name for name, state in self.all.states.items() if (state / "models" / model).exists()]

    def forget(self, party: str, rows: Sequence[int] = GONE) -> None:
        """Take rows out of a party's own table, and start it again."""
        columns, tables = self.here.tables[party]
        ids = [f"r{row:05d}" for row in rows]
        kept = tables["train"].filter([name not in ids for name in tables["train"].column("id").to_pylist()])
        self.all.kill(party)
        self.all.configs[party] = self.all._config(party, columns, {**tables, "train": kept})
        self.all.start(party)

    async def replaced(self, *names: str) -> None:
        """Train the first model, then each next one in the place of that before it, without the forgotten records."""
        finished(await self.train(again(""), names[0]))
        self.forget(LABEL_HOLDER)
        for before, name in pairwise(names):
            finished(await self.train(again(before), name))


@pytest.mark.parametrize("way", ["interactive", pytest.param("eini", marks=pytest.mark.second_tier)])
async def test_the_old_model_is_gone_before_the_new_one_answers(
    way: str, tmp_path: Path, keys: dict[str, TlsFiles]
) -> None:
    """The new one is the oracle's of the records that are left; the old one serves until the new one opens."""
    here = Signing(tmp_path, keys)
    await here.replaced("credit", "credit-2")
    model = WITHOUT.oracle(PARAMS)
    assert_oracles_model(here.all.states, model, "credit-2")
    finished(await here.predict("credit", job="before"))
    assert here.having("credit") == list(PARTIES)
    scored = list[list[str]]()

    def hook(message: Message) -> None:
        if message.word in ("ask_directions", "answer_directions", "score_block", "write_predictions"):
            scored.append(here.having("credit"))

    here.all.hook = hook
    status = finished(await here.predict("credit-2", protocol=way))
    assert scored
    assert not any(scored)
    assert_oracles_scores(status.predictions, model, HERE.newcomers, 16, 1e-8)
    by_name = "model 'credit' is deleted, since model 'credit-2' has replaced it: use that one"
    failed(await here.predict("credit", job="after"), by_name, bad_input=True)
    failed(await here.train(spec(PARAMS, base_model="credit", alignment="psi"), "more"), by_name, bad_input=True)
    finished(await here.predict("credit-2", job="twice"))


@pytest.mark.parametrize(
    ("victim", "word"),
    [(B, "open_model"), *((name, "raise_ids") for name in PARTIES), (LABEL_HOLDER, "ask_directions")],
)
async def test_what_a_crash_leaves_the_next_opening_deletes(
    victim: str, word: str, tmp_path: Path, keys: dict[str, TlsFiles]
) -> None:
    """Whoever dies when, the old model is not opened any more once one party has deleted it."""
    here = Signing(tmp_path, keys)
    await here.replaced("credit", "credit-2")
    here.all.kill_at(victim, lambda message: message.word == word and message.served, back=True)
    status = await here.predict("credit-2", job="first")
    assert here.all.hook is None
    if status.state != "finished":
        assert here.having("credit") != list(PARTIES)
        old = await here.predict("credit", job="old")
        failed(old, "model 'credit' is deleted, since model 'credit-2' has replaced it")
        status = await here.all.resume("first")
    finished(status)
    assert here.having("credit") == []


async def test_a_model_in_use_is_not_deleted(tmp_path: Path, keys: dict[str, TlsFiles]) -> None:
    """By name: not at any party, until the job that serves it has ended."""
    here = Signing(tmp_path, keys, serve={LABEL_HOLDER: config()})
    await here.replaced("credit", "credit-2")
    here.submit(predict_request(model="credit", job="s", serve=True))
    assert (await phase(here.all, "s", "serve")).error == ""
    refused = await here.predict("credit-2", job="new")
    failed(
        refused, "model credit-2 replaces credit, which job s uses: end that first (treetap cancel s)", bad_input=True
    )
    assert here.having("credit") == list(PARTIES)
    await here.all.jobs.cancel("s")
    finished(await here.predict("credit-2", job="next"))
    assert here.having("credit") == []


async def test_all_parties_open_it_once_before_it_does_without_one(tmp_path: Path, keys: dict[str, TlsFiles]) -> None:
    """A party that is away may still have its part of the old one."""
    dropped = replace(PARAMS, party_dropout={B: 0.3, C: 0.3})
    here = Signing(tmp_path, keys, silence_s=5.0)
    finished(await here.train(again("", dropped), "credit"))
    finished(await here.train(again("credit", dropped), "credit-2"))
    degraded = partial(here.predict, "credit-2", away_policy="degrade", away_deadline_s=3.0)
    here.all.kill(B)
    status = await degraded(job="first")
    assert status.state == "interrupted"
    assert f"of which {B} may still have a part: open it once with all parties" in status.error
    assert here.having("credit") == [LABEL_HOLDER, B]
    here.all.start(B)
    finished(await here.all.resume("first"))
    assert here.having("credit") == []
    here.all.kill(B)
    assert list(finished(await degraded(job="third")).away) == [B]


async def test_what_was_replaced_before_goes_too(tmp_path: Path, keys: dict[str, TlsFiles]) -> None:
    """Also a model whose successor was never opened; and a party that lost its part has nothing to delete."""
    here = Signing(tmp_path, keys)
    await here.replaced("credit", "credit-2", "credit-3")
    lost = here.all.state(C) / "models" / "credit-2"
    lost.rename(lost.with_name("elsewhere"))
    finished(await here.predict("credit-3"))
    assert here.having("credit") == here.having("credit-2") == []
    failed(await here.predict("credit", job="old"), "model 'credit-3' has replaced it")


async def test_a_job_that_may_not_replace_is_refused(
    tmp_path: Path, keys: dict[str, TlsFiles], caplog: pytest.LogCaptureFixture
) -> None:
    """By the coordinator, and by each party for itself; whoever has no part of the old model says so and goes on."""
    here = Signing(tmp_path, keys)
    finished(await here.train(again(""), "credit"))
    with pytest.raises(UnknownJob, match="there is no model 'debit'"):
        here.submit(jobs_pb2.SubmitRequest(job="new", spec=again("debit")))
    of_two = spec(PARAMS, 2, key_bits=512, obfuscation="standard", replaces="credit")
    with pytest.raises(
        ConfigError, match=f"replaces = 'credit': was trained with label holder {LABEL_HOLDER} and feature"
    ):
        here.submit(jobs_pb2.SubmitRequest(job="new", spec=of_two))
    going_on = again("credit")
    going_on.base_model = "credit"
    with pytest.raises(ConfigError, match=r"keeps what that learned, also from records .* leave base_model out"):
        here.submit(jobs_pb2.SubmitRequest(job="new", spec=going_on))
    plain = here.all.configs[B]
    here.all.configs[B] = plain.under(plain.policy.with_lines({"people": {"operators": []}}))
    here.all.restart(B)
    failed(await here.train(again("credit"), "new"), f"{B} deletes no model for a job that anybody may have asked for")
    here.all.configs[B] = plain
    here.all.restart(B)
    folders = [here.all.state(name) / "models" / "credit" for name in (B, LABEL_HOLDER)]
    folders[0].rename(folders[0].with_name("elsewhere"))
    finished(await here.train(again("credit"), "newer"))
    assert f"{B} has no part of that model, and will delete none" in caplog.text
    folders[1].rename(folders[1].with_name("elsewhere"))
    failed(
        await here.train(again("credit"), "newest"),
        "model 'credit' is deleted, since model 'newer' has replaced it",
        bad_input=True,
    )


async def test_who_was_forgotten_is_known_to_partners(tmp_path: Path, keys: dict[str, TlsFiles]) -> None:
    """Each party compares its own links of two transcripts, and names exactly its records that are common no more."""
    here = Signing(tmp_path, keys, record="both")
    await here.replaced("credit", "credit-2")
    for party in (B, C):
        left, ids = list[set[str]](), HERE.tables[party][1]["train"].column("id").to_pylist()
        for model in ("credit", "credit-2"):
            (links,) = (here.all.state(party) / "transcripts" / model).glob("*.own")
            rows = OwnRows.read(links).rows
            left.append({ids[row] for row in rows.tolist()})
        assert sorted(left[0] - left[1]) == [f"r{row:05d}" for row in GONE]
        assert not left[1] - left[0]


@pytest.mark.parametrize("least", [0, 10])
async def test_sums_of_both_trainings_show_the_bins_of_who_left(
    least: int, tmp_path: Path, keys: dict[str, TlsFiles]
) -> None:
    """A root's sums with and without a record differ where it lies left, by its own g and h, which are the attacker's.

    Of 16 cuts of the partner 15 are read, none wrongly; with `min_cell_records` fewer than half, some wrongly.
    """
    here = world(60, (1, 2, 2), levels=2, seed=11)
    params = replace(PARAMS, n_estimators=1, max_bin=16, base_score=0.5)
    defences = {B: Defences(min_cell_records=least)} if least else {}
    signing = Signing(tmp_path, keys, here, record="both", defences=defences)
    holder = signing.all.configs[LABEL_HOLDER]
    signing.all.configs[LABEL_HOLDER] = holder.under(holder.policy.with_lines({"people": {"record_sums": True}}))
    signing.all.restart(LABEL_HOLDER)
    finished(await signing.train(again("", params), "credit"))
    signing.forget(B, [FORGOTTEN])
    finished(await signing.train(again("credit", params), "credit-2"))

    sums, values = list[Counter[tuple[int, ...]]](), list[dict[int, Any]]()
    for model in ("credit", "credit-2"):
        folder = signing.all.state(LABEL_HOLDER) / "transcripts" / model
        (tree,) = present(read_label_holder(folder).opened).trees
        sums.append(Counter(map(tuple, tree.sums[B][1].tolist())))
        (links,) = folder.glob("*.own")
        values.append(dict(zip(OwnRows.read(links).rows.tolist(), tree.values, strict=True)))
    (left,) = values[0].keys() - values[1].keys()
    read = dict[tuple[int, ...], bool]()
    for row in sums[0]:
        both = sums[1][row] > 0, sums[1][tuple((row - values[0][left]).tolist())] > 0
        if both[0] != both[1]:
            read[row] = both[1]

    of_record = {int(name[1:]): row for row, name in enumerate(here.tables[LABEL_HOLDER][1]["train"]["id"].to_pylist())}
    assert of_record[FORGOTTEN] == left
    true = set[tuple[tuple[int, ...], bool]]()
    for column in here.blocks[1].T:
        for cut in np.unique(column)[1:]:
            inside = [values[0][of_record[record]] for record in np.flatnonzero(column < cut).tolist()]
            true.add((tuple(np.sum(inside, axis=0).tolist()), bool(column[FORGOTTEN] < cut)))
    right = len(read.items() & true)
    assert (right == len(read) > 0.9 * len(true)) if not least else right < len(true) / 2
