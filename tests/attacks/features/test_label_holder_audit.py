"""An audit of a real small federation with the label holder as attacker: figures, files that it reads, bad input."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.attacks.documents import in_terminal
from tests.attacks.features.embedding_logs import RECORDS as LOGGED
from tests.attacks.features.embedding_logs import planted_log
from tests.attacks.network_logs import training_log
from tests.attacks.present import present
from tests.attacks.recorded import laid_out
from tests.simulator import Federation, finished, run
from tests.splitnn.jobs import EMITS, PARAMS
from tests.worlds import PARTIES, spec, world
from treetap.attacks import audit_file
from treetap.attacks.audit import audit
from treetap.attacks.document import Document, parse
from treetap.attacks.networks.schema import FeatureSettings, VictimFigures
from treetap.attacks.report.page import html
from treetap.errors import BadInput, DataError
from treetap.lab.local_federation import to_toml
from treetap.neural.params import Bottom
from treetap.protocols.prediction import predict_request
from treetap.tables.cells import tensor_column
from treetap.trees.params import BoostingParams

pytest.importorskip("torch", reason="needs treetap[neural]")


HOLDER, B, C = PARTIES
RECORDS, FRESH, KNOWN = 160, 60, 60
pytestmark = [pytest.mark.second_tier, pytest.mark.xdist_group("label-holder-audit")]  # of one federation
#: Settings of few steps.
QUICK = {"matched": 8, "match_steps": 20, "pictures": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The parties' own folders after a training, and files of an auditor.

    Party B has numbers and a column of text, which its model embeds by one linear layer; C has images of two kinds.
    """
    here = world(RECORDS, (1, 2, 1), fresh=FRESH, seed=4)
    tables = dict(here.tables)
    names, content = tables[B]
    for name, table in content.items():
        text = pa.array([("clerk", "nurse", "pilot")[int(row[1:]) % 3] for row in table.column("id").to_pylist()])
        content[name] = table.append_column("job", text)
    tables[B] = ([*names, "job"], content)
    draw = np.random.default_rng(3)
    for name, table in tables[C][1].items():
        cells = draw.integers(0, 40, (table.num_rows, 12, 12), dtype=np.uint8)
        odd = np.array([int(row[1:]) % 2 for row in table.column("id").to_pylist()], dtype=bool)
        cells[odd, :, :6] += 200
        cells[~odd, :6] += 200
        tables[C][1][name] = pa.table({"id": table.column("id"), "scan": tensor_column(cells)})
    tables[C] = (["scan"], tables[C][1])
    params = replace(
        PARAMS,
        epochs=3,
        bottom={
            HOLDER: Bottom(width=3),
            B: Bottom(width=8),
            C: Bottom("cnn", channels=(4,), width=8),
        },
        party_dropout={C: 0.2},
    )
    place = tmp_path_factory.mktemp("holder")

    async def main() -> dict[str, Path]:
        federation = Federation(place / "federation", tables, policies=EMITS, record="received", encode="one-hot")
        finished(await federation.train(spec(params)))
        finished(await federation.predict(predict_request("splitnn", job="scores", model="job", table="predict")))
        return federation.states

    states = run(main())
    laid_out(place, states, tables)
    for name, (_, content) in tables.items():
        pq.write_table(content["predict"], place / f"{name}-new.parquet")
    for name in (B, C):
        known = tables[name][1]["train"].sort_by("id").slice(0, KNOWN)
        pq.write_table(known, place / f"known-{name}.parquet")
    return place


def content(*victims: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An audit file of the label holder, and of further parties."""
    party = {"name": HOLDER, "transcript": HOLDER, "table": f"{HOLDER}.parquet"}
    return {"features": QUICK, "party": [party], "victim": list(victims)} | more


def victim(name: str, **changes: Any) -> dict[str, Any]:
    """Its table; a change that is None leaves a key out."""
    files = {"auxiliary": f"known-{name}.parquet", "truth": f"{name}.parquet"}
    return {key: value for key, value in ({"name": name} | files | changes).items() if value is not None}


def audited(folder: Path, given: dict[str, Any]) -> Document:
    """The audit by a file of this content."""
    (folder / "audit.toml").write_text(to_toml(given))
    return audit(audit_file.read(folder), by_tree=False, progress=lambda *_: None)


@contextmanager
def opened(folder: Path) -> Iterator[set[str]]:
    """Names of the files and folders in a folder, two levels deep, that are opened for as long as the context lasts.

    Python reports what it opens itself; Arrow's way to open a table is made to.
    """
    found: set[str] = set()

    def reported(opens: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(path: Any, *args: Any, **options: Any) -> Any:
            sys.audit("open", str(path), "r", 0)
            return opens(path, *args, **options)

        return wrapped

    listening = [True]

    def listen(event: str, args: tuple[Any, ...]) -> None:
        if listening[0] and event == "open" and isinstance(args[0], str | bytes | Path):
            path = Path(args[0].decode() if isinstance(args[0], bytes) else args[0])
            if path.is_relative_to(folder):
                found.add("/".join(path.relative_to(folder).parts[:2]))

    sys.addaudithook(listen)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pa, "OSFile", reported(pa.OSFile))
            yield found
    finally:
        listening[0] = False


@pytest.fixture(scope="module")
def scored(folder: Path) -> Document:
    """The audit of the label holder beside a feature party, by all attacks."""
    party = content()["party"][0]
    other = {"name": B, "transcript": B, "table": f"{B}.parquet"}
    return audited(
        folder,
        content(
            victim(B, model=f"{B}/models/job"),
            victim(C, attacks=["decode"]),
            party=[party, other],
            network={"known": 10, "draws": 1},
        ),
    )


def of(document: Document, name: str) -> VictimFigures:
    """The figures on one party."""
    return document.victims[name]


def test_a_planted_column_of_text_is_read(scored: Document) -> None:
    """As a class by nearly all embeddings; numbers too, and whole records by an inverse network."""
    found = of(scored, B)
    assert (found.source, found.job, found.epoch, found.width) == ("training", "job", 2, 8)
    assert (found.auxiliary, found.victims, found.scored) == (KNOWN, RECORDS - KNOWN, True)
    columns = {each.name: each for each in found.attributes}
    assert present(columns["job"].raw).accuracy > 0.9 > 0.5 > present(columns["job"].floor).accuracy
    guesses = {each.attack: each for each in found.reconstructions}
    assert set(guesses) == {"decode", "match", "match-exact"}
    decode = guesses["decode"]
    assert present(decode.raw).mse < present(decode.floor).mse / 2


def test_images_are_shown_beside_their_reconstructions(scored: Document) -> None:
    """Nearer than the mean image; records of a batch that the party sat out are left out, and counted."""
    found = of(scored, C)
    assert "have no embedding: the party sat out their batch" in found.reasons["victims"]
    assert found.victims < RECORDS - KNOWN
    decode = next(each for each in found.reconstructions if each.attack == "decode")
    best = getattr(decode, present(decode.headline))
    assert best.ssim > present(present(decode.floor).ssim)
    assert [set(each.images) for each in found.pictures] == [
        {"truth", "floor", "decode, raw", "decode, standardised"}
    ] * 2


def test_an_audit_of_both_roles(scored: Document) -> None:
    """The feature party has its attacks on labels, the label holder those on columns; the report has both."""
    assert scored.parties[B].network is not None
    assert scored.parties[B].victims is None
    assert scored.parties[HOLDER].network is None
    assert any(row.disclosure == "EMBEDDING" for row in scored.parties[HOLDER].received)
    assert parse(scored.plain()) == scored
    page = html(scored.plain())
    assert 'id="network"' in page
    assert 'id="columns"' in page
    assert f"What <bdi>{HOLDER}</bdi> could read of <bdi>{B}</bdi>" in page
    assert page.count('src="data:image/png;base64,') == 8
    assert f"What {HOLDER} could read of {B}" in in_terminal(scored)


def test_the_label_holder_reads_its_own_files_alone(folder: Path, scored: Document) -> None:
    """Its transcript, its table and the auxiliary file; without the truth the same attacks run, unscored."""
    with opened(folder) as found:
        document = audited(
            folder,
            content(
                victim(B, truth=None, attacks=["attributes"], attributes=["job"]),
                victim(C, truth=None, attacks=["decode"]),
            ),
        )
    own = {"audit.toml", f"{HOLDER}/transcripts", f"{HOLDER}.parquet"}
    assert found == {*own, f"known-{B}.parquet", f"known-{C}.parquet"}
    assert not of(document, B).scored
    guesses, known = (of(each, C).pictures for each in (document, scored))
    for blind, seen in zip(guesses, known, strict=True):
        assert {"truth": seen.images["truth"]} | blind.images == seen.images
    html(document.plain())
    with opened(folder) as found:
        audited(folder, content(victim(B, attacks=["attributes"], attributes=["job"], model=f"{B}/models/job")))
    assert {name for name in found if name not in own} == {f"known-{B}.parquet", f"{B}.parquet"}


def test_victims_epoch_columns_and_attributes_can_be_named(folder: Path) -> None:
    """Victims by a table of ids; an epoch from 1; only these columns."""
    ids = [f"r{number:05d}" for number in range(100, 130)]
    pq.write_table(pa.table({"id": ids}), folder / "victims.parquet")
    chosen = victim(B, victims="victims.parquet", epoch=1, columns=["b0", "job"], attributes=["job"])
    found = of(audited(folder, content(chosen | {"attacks": ["attributes"]})), B)
    assert (found.victims, found.epoch, [each.name for each in found.attributes]) == (30, 0, ["job"])
    last, first = chosen | {"name": B, "attacks": ["attributes"]}, victim(C, epoch=2, attacks=["decode"])
    del last["epoch"]
    document = audited(folder, content(last, first))
    assert (of(document, B).epoch, of(document, C).epoch) == (2, 1)


def test_embeddings_of_a_prediction(folder: Path) -> None:
    """Joined by the ids of the label holder's table of it; ids of the training are strangers there."""
    new = pq.read_table(folder / f"{B}-new.parquet")
    pq.write_table(new.sort_by("id").slice(0, 40), folder / "known-new.parquet")
    chosen = victim(
        B,
        auxiliary="known-new.parquet",
        truth=f"{B}-new.parquet",
        predicted="scores",
        records=f"{HOLDER}-new.parquet",
        attacks=["attributes"],
        attributes=["job"],
    )
    found = of(audited(folder, content(chosen)), B)
    assert (found.source, found.job, found.epoch, found.auxiliary, found.victims) == (
        *("prediction", "scores", None),
        *(40, FRESH - 40),
    )
    (job,) = found.attributes
    assert present(job.raw).accuracy > 0.8
    with pytest.raises(BadInput, match="are not among the records of prediction 'scores'"):
        audited(folder, content(chosen | {"auxiliary": f"known-{B}.parquet"}))
    with pytest.raises(BadInput, match=r"records = … is another table"):
        audited(folder, content(chosen | {"records": table(folder, "v.parquet", ["r00160"])}))


def table(folder: Path, name: str, ids: list[str], **columns: Any) -> str:
    """A table of a new name."""
    pq.write_table(pa.table({"id": ids, **columns}), folder / name)
    return name


def test_the_file_of_the_pages(tmp_path: Path) -> None:
    """It loads, and its settings are the defaults."""
    page = (Path(__file__).parents[3] / "docs" / "measure.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```toml\n(# audit\.toml, of a split network\n.*?)```", page, re.DOTALL)
    (tmp_path / "audit.toml").write_text(block)
    file = audit_file.read(tmp_path)
    assert [each.name for each in file.victim] == ["shop", "telco"]
    assert file.victim[1].records == tmp_path / "bank/march.csv"
    assert FeatureSettings.read(file.features) == FeatureSettings()
    assert set(file.features) == {field.name for field in fields(FeatureSettings)}


IDS = [f"r{number:05d}" for number in range(RECORDS)]
NUMBERS = {"b0": [0.5] * 20, "b1": [0.5] * 20, "job": ["nurse"] * 20}
BAD: dict[str, tuple[Callable[[Path], dict[str, Any]], str]] = {
    "no auxiliary records": (
        lambda folder: content(victim(B, auxiliary=None)),
        r"\[\[victim\]\] feature-b: a job of protocol 'splitnn' needs auxiliary = …, a table of records whose columns",
    ),
    "unknown ids": (
        lambda folder: content(victim(B, auxiliary=table(folder, "x.parquet", [*IDS[:19], "zz"], **NUMBERS))),
        r"x\.parquet: 1 of its ids, such as 'zz', are not among the common records of job 'job'.* out of auxiliary",
    ),
    "auxiliary victims": (
        lambda folder: content(victim(B, victims=table(folder, "v.parquet", IDS[:3]))),
        r"v\.parquet: 3 of its ids, such as 'r00000', are auxiliary records of .*out of victims or of auxiliary",
    ),
    "victims that are unknown": (
        lambda folder: content(victim(B, victims=table(folder, "v.parquet", ["zz"]))),
        r"v\.parquet: 1 of its ids, such as 'zz', are not among .*out of victims",
    ),
    "victims without truth": (
        lambda folder: content(
            victim(
                B,
                truth=table(folder, "t.parquet", IDS[90:110], **NUMBERS),
                victims=table(folder, "v.parquet", IDS[100:120]),
            )
        ),
        r"t\.parquet: lacks 10 of the victims, such as 'r00110': add them to truth",
    ),
    "no victims": (
        lambda folder: content(victim(B, truth=f"known-{B}.parquet")),
        r"has all of .*known-feature-b\.parquet, so none is left to guess",
    ),
    "an unknown attribute": (
        lambda folder: content(victim(B, attributes=["loan"])),
        r"known-feature-b\.parquet: has no column 'loan' to guess as an attribute; it has: b0, b1, job",
    ),
    "an attribute that the truth has not": (
        lambda folder: content(
            victim(B, truth=table(folder, "t.parquet", IDS[100:120], b0=NUMBERS["b0"]), attributes=["job"])
        ),
        r"t\.parquet: has no column 'b1'; it has: id, b0",
    ),
    "images of another shape": (
        lambda folder: content(
            victim(
                C,
                truth=table(
                    folder, "t.parquet", IDS[100:120], scan=tensor_column(np.zeros((20, 6, 12), dtype=np.uint8))
                ),
            )
        ),
        r"t\.parquet: column 'scan' holds images of .*6.*, and that of .*known-feature-c\.parquet images of .*12",
    ),
    "no label holder": (
        lambda folder: content(victim(B), party=[{"name": B, "transcript": B}]),
        r'\[\[victim\]\] feature-b: the label holder label-holder attacks its columns.* name = "label-holder"',
    ),
    "no table": (
        lambda folder: content(victim(B), party=[{"name": HOLDER, "transcript": HOLDER}]),
        r"\[\[party\]\] label-holder: embeddings are found by the ids of its own table: say table = …",
    ),
    "no party of the job": (
        lambda folder: content(victim(B) | {"name": "shop"}),
        r"\[\[victim\]\] shop: is no feature party of the job; name one of feature-b, feature-c",
    ),
    "the label holder": (
        lambda folder: content(victim(B) | {"name": HOLDER}),
        r"\[\[victim\]\] label-holder: is the label holder itself; name the feature party that it attacks",
    ),
    "an epoch beyond the job": (
        lambda folder: content(victim(B, epoch=4)),
        r"\[\[victim\]\] feature-b: epoch = 4: the job has 3; name one from 1 to that",
    ),
    "epoch 0": (lambda folder: content(victim(B, epoch=0)), r"victim\.\[1\]\.epoch: .*greater than or equal to 1"),
    "a prediction without records": (
        lambda folder: content(victim(B, predicted="scores")),
        "predicted needs records, the label holder's own table of the predicted records",
    ),
    "records without a prediction": (
        lambda folder: content(victim(B, records="x.parquet")),
        "records is of a prediction: name it as predicted, or leave records out",
    ),
    "a prediction's epoch": (
        lambda folder: content(victim(B, predicted="scores", records="x.parquet", epoch=1)),
        "a prediction has no epochs: give either predicted or epoch",
    ),
    "an unknown attack": (
        lambda folder: content(victim(B, attacks=["cl"])),
        "unknown attack on columns 'cl'; known are attributes, decode, match, match-exact",
    ),
    "unknown settings": (lambda folder: content(victim(B), features={"steps": 3}), "unknown: steps; known: "),
    "one victim twice": (lambda folder: content(victim(B), victim(B)), r"two \[\[victim\]\] have one name"),
    "no victims named": (
        lambda folder: content(),
        r"is the transcript of label-holder, the label holder, which knows the labels.*add \[\[victim\]\]",
    ),
}


def test_logs_that_do_not_serve(folder: Path, tmp_path: Path) -> None:
    """One without embeddings, one that lacks the epoch that is named, and one of a job of trees."""
    planted_log(tmp_path / "none", attempts=((0, 0),), finished=False)
    planted_log(tmp_path / "first", attempts=((0, 10**6),))
    trees: Any = BoostingParams()
    with training_log(tmp_path / "trees", trees, np.arange(9)):
        pass
    pq.write_table(pa.table({"id": [f"r{number:05d}" for number in range(LOGGED)]}), folder / "logged.parquet")
    for log, epoch, said in (
        ("none/transcript", None, 'holds no embeddings of the feature parties.*record = "received"'),
        ("first/transcript", 3, r"\[\[victim\]\] feature-b: epoch = 3: .* has no embeddings of that epoch"),
        ("trees", None, "feature-b: auxiliary is of split networks, and the job is of 'boosting': leave it out"),
    ):
        party = {"name": HOLDER, "transcript": str(tmp_path / log), "table": "logged.parquet"}
        with pytest.raises(BadInput, match=said):
            audited(folder, content(victim(B, epoch=epoch), party=[party]))


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str, folder: Path) -> None:
    """Named by file, field and fix, before any attack runs."""
    given, said = BAD[case]
    with pytest.raises((BadInput, DataError), match=said):
        audited(folder, given(folder))
