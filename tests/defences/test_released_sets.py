"""The label holder's live account of what released sets say, and the policy that stops a job or withdraws sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.attacks.recorded import KEY_BITS, transcript
from tests.simulator import Federation, run
from tests.worlds import PARTIES, spec, world
from treetap.attacks.sections import bound_rows, signature
from treetap.attacks.view.view import read_view
from treetap.errors import ConfigError
from treetap.models.kept import LEAKAGE, read_leakage
from treetap.models.store import read_model
from treetap.party.config import PartyConfig
from treetap.party.defences.settings import Defences, IdLmid, LabelDp
from treetap.party.policy import Policy
from treetap.process.config import TlsConfig
from treetap.tables.labels import Labels
from treetap.trees.information import class_entropy, mutual_information, permuted_information
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.wire.v2 import jobs_pb2

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")
HERE = world(60, seed=3)
BOOSTING = BoostingParams(n_estimators=2, max_depth=3, max_bin=6)
FOREST = ForestParams(n_estimators=2, max_depth=4, max_bin=6, party_dropout={"feature-b": 0.5})
LABELS = Labels(HERE.y, ["0", "1"])


@pytest.mark.parametrize("params", [BOOSTING, FOREST], ids=["boosting", "forest"])
def test_the_account_is_what_an_audit_of_the_transcripts_finds(params: TreeParams, tmp_path: Path) -> None:
    """Per tree and party the number of sets, the largest bound, and the information of the signature."""
    status, federation = _train(tmp_path, params)
    assert status.state == "finished"
    lines = read_leakage(federation.state(PARTIES[0]) / "models" / "job")
    assert [line["tree"] for line in lines] == [0, 1]
    for party in PARTIES[1:]:
        view = read_view(transcript(federation.states, party), party=party)
        bounds, said = bound_rows(view, LABELS), signature(view, LABELS)
        for tree, line in enumerate(lines):
            mine, found = [row["nats"] for row in bounds if row["tree"] == tree], line["parties"][party]
            if isinstance(params, BoostingParams):  # the audit of a forest counts drawn records, as the paper does
                assert found["bound_nats"] == pytest.approx(max(mine, default=0.0))
            assert found["sets"] == len(mine)
            assert found["information_nats"] == pytest.approx(said["by_tree"][tree]["mutual_information"])
            chance = said["by_tree"][tree]["by_chance"]
            assert found["by_chance_nats"] == pytest.approx(chance, abs=0.1 * said["label_entropy"])
            excess = (found["information_nats"] - found["by_chance_nats"]) / line["entropy_nats"]
            assert found["excess_share"] == pytest.approx(excess)


def test_a_resumed_job_has_the_account_of_one_that_nothing_disturbed(tmp_path: Path) -> None:
    """A tree that is grown again changes no figure but those by chance."""

    async def main() -> list[dict[str, Any]]:
        federation = Federation(tmp_path, HERE.tables)

        federation.kill_at(
            PARTIES[0],
            lambda message: (
                message.word == "store_tree" and message.to == PARTIES[0] and federation.jobs.status("job")[0].round
            ),
        )
        job = spec(BOOSTING, key_bits=KEY_BITS, obfuscation="standard")
        assert (await federation.train(job)).state == "interrupted"
        federation.start(PARTIES[0])
        assert (await federation.resume()).state == "finished"
        await federation.close()
        return read_leakage(federation.state(PARTIES[0]) / "models" / "job")

    resumed = run(main())
    _, whole = _train(tmp_path / "whole", BOOSTING)
    assert _certain(resumed) == _certain(read_leakage(whole.state(PARTIES[0]) / "models" / "job"))


@pytest.mark.parametrize("params", [BOOSTING, FOREST], ids=["boosting", "forest"])
def test_a_policy_stops_a_job_and_tells_no_figure(params: TreeParams, tmp_path: Path) -> None:
    """No set above the bound is relayed, and the coordinator learns only that the label holder has stopped the job."""
    status, federation = _train(tmp_path, params, policy={"labels": {"max_leakage": 0.2}})
    assert status.state != "finished"
    assert f"{PARTIES[0]} has stopped job job: its policy has a limit" in status.error
    told = "".join(federation.told_coordinator)
    assert not any(word in told for word in ("nats", "node", "0.2", "feature"))
    for party in PARTIES[1:]:
        for tree in read_view(transcript(federation.states, party), party=party).trees:
            received = [found.records for found in tree.nodes.values() if found.source == "received"]
            counts = [np.bincount(HERE.y[rows], minlength=2) / len(rows) for rows in received]
            whole = np.bincount(HERE.y) / len(HERE.y)
            assert all((share * np.log(np.where(share > 0, share / whole, 1))).sum() <= 0.2 for share in counts)


def test_a_policy_withdraws_as_the_defence_does(tmp_path: Path) -> None:
    """`on_max_leakage = "withdraw"` is ID-LMID with the policy's bound; the smaller of two bounds holds."""
    _, by_policy = _train(
        tmp_path / "policy", BOOSTING, policy={"labels": {"max_leakage": 0.3, "on_max_leakage": "withdraw"}}
    )
    _, by_defence = _train(tmp_path / "defence", BOOSTING, Defences(id_lmid=IdLmid(xi=0.3)))
    _, by_both = _train(
        tmp_path / "both",
        BOOSTING,
        Defences(id_lmid=IdLmid(xi=0.9)),
        policy={"labels": {"max_leakage": 0.3, "on_max_leakage": "withdraw"}},
    )
    trees = [read_model(each.state(PARTIES[0]) / "models" / "job")[1] for each in (by_policy, by_defence, by_both)]
    assert trees[0] == trees[1] == trees[2]
    assert any(line["tree"]["local"] for line in trees[0])


@pytest.mark.parametrize(
    ("own", "says"),
    [
        (
            Defences(id_lmid=IdLmid(xi=0.5, counts="paper")),
            "id_lmid with counts = 'paper' and on_max_leakage",
        ),
        (
            Defences(label_dp=LabelDp(epsilon=1.0), grafting=True),
            "grafting and on_max_leakage = 'withdraw'",
        ),
    ],
    ids=["counts of the paper", "grafting"],
)
def test_withdrawing_by_policy_goes_with_what_id_lmid_goes_with(own: Defences, says: str) -> None:
    """Refused when the party's file is read; a policy that stops jobs goes with both."""
    tls = TlsConfig(ca=Path("none"), certificate=Path("none"), key=Path("none"))
    config = PartyConfig(name="bank", state=Path("state"), tls=tls, defences=own)
    config.under(Policy(labels={"max_leakage": 0.5})).check_withdrawing()
    with pytest.raises(ConfigError, match=says):
        config.under(Policy(labels={"max_leakage": 0.5, "on_max_leakage": "withdraw"})).check_withdrawing()


def test_numbers_have_no_bound(tmp_path: Path) -> None:
    """A regression keeps no account; with a bound in the policy it is refused before any work."""
    here = world(60, seed=3, objective="reg:squarederror")
    params = BoostingParams(objective="reg:squarederror", n_estimators=1, max_depth=2)

    async def main(folder: Path, policies: dict[str, dict[str, Any]]) -> tuple[jobs_pb2.JobStatus, Federation]:
        federation = Federation(folder, here.tables, policies=policies)
        status = await federation.train(spec(params, key_bits=KEY_BITS, obfuscation="standard"))
        await federation.close()
        return status, federation

    status, federation = run(main(tmp_path / "none", {}))
    model = federation.state(PARTIES[0]) / "models" / "job"
    assert status.state == "finished"
    assert LEAKAGE not in json.loads((model / "manifest.json").read_text())["files"]
    status, _ = run(main(tmp_path / "bound", {PARTIES[0]: {"labels": {"max_leakage": 0.5}}}))
    assert "takes no part in this job by its policy: max_leakage and a regression do not go together" in status.error


def test_the_information_by_chance_is_that_of_permuted_labels() -> None:
    """The mean over drawn tables is the mean over permuted labels, for two classes and for three."""
    rng = np.random.default_rng(0)
    for classes in (2, 3):
        labels, groups = rng.integers(classes, size=90), rng.integers(12, size=90)
        permuted = np.mean([mutual_information(rng.permutation(labels), groups) for _ in range(400)])
        assert permuted_information(labels, groups, rng, 400) == pytest.approx(permuted, rel=0.05)
        everyone = permuted_information(labels, np.arange(90), rng)
        assert everyone == pytest.approx(class_entropy(np.bincount(labels)))


def _train(
    folder: Path, params: TreeParams, own: Defences | None = None, policy: dict[str, Any] | None = None
) -> tuple[jobs_pb2.JobStatus, Federation]:
    async def main() -> tuple[jobs_pb2.JobStatus, Federation]:
        federation = Federation(
            folder,
            HERE.tables,
            record="received",
            defences={PARTIES[0]: own or Defences()},
            policies={PARTIES[0]: policy or {}},
        )
        status = await federation.train(spec(params, key_bits=KEY_BITS, obfuscation="standard"))
        return status, federation

    return run(main())


def _certain(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines without what is drawn."""
    drawn = ("by_chance_nats", "excess_share")
    return [
        {
            **line,
            "parties": {
                name: {key: value for key, value in row.items() if key not in drawn}
                for name, row in line["parties"].items()
            },
        }
        for line in lines
    ]
