"""g and h in few bits in a federation: the oracle's model, what crosses, and who refuses what."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from party.defences.settings import Defences, IdLmid
from tests.blindness.observed import Observed
from tests.campaign.cipher import KeysMade, ciphers
from tests.growth.evaluated import evaluated
from tests.oracle import oracle_train
from tests.simulator import Federation, run
from tests.worlds import PARTIES, World, assert_oracles_model, manifest, spec, weighted, world
from treetap.commands.jobs.job_file import JobTableOfFederation
from treetap.protocols.job_spec import put_params
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import setup_pb2

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")
LABEL_HOLDER, FEATURE, OTHER = PARTIES
PARAMS = BoostingParams(n_estimators=2, max_depth=3, max_bin=5, gradient_bits=3, min_child_weight=0.1)
SHORT: dict[str, Any] = {"key_bits": 512, "obfuscation": "standard"}


def _trained(folder: Path, here: World, params: TreeParams, **more: Any) -> tuple[str, list[str]]:
    """The error of a job, empty if it finished, and the steps that crossed."""

    async def main() -> tuple[str, list[str]]:
        federation = Federation(folder, here.tables, **more)
        status = await federation.train(spec(params, len(here.blocks), **SHORT))
        await federation.close()
        return status.error, [message.word for message in federation.log]

    return run(main())


def test_the_model_is_the_oracles_with_classes_in_slots(tmp_path: Path) -> None:
    """Vector leaves, sampled records, missing values, a party that sits trees out, and ID-LMID's class slots."""
    params = replace(PARAMS, objective="multi:softprob", multi_strategy="multi_output_tree", subsample=0.8)
    params = replace(params, party_dropout={FEATURE: 0.5}, seed=1)
    here = world(50, (2, 2, 1), objective=params.objective, classes=3, missing=0.15, seed=2)
    oracle = oracle_train(here.parties, list(here.y), params, 3, xi=0.4)

    async def main() -> None:
        defences = {LABEL_HOLDER: Defences(id_lmid=IdLmid(xi=0.4))}
        federation = Federation(tmp_path, here.tables, defences=defences)
        status = await federation.train(spec(params, key_bits=1024, obfuscation="standard"))
        assert status.state == "finished", status.error
        assert_oracles_model(federation.states, oracle)
        assert manifest(federation.state(LABEL_HOLDER))["params"]["gradient_bits"] == 3
        await federation.close()

    run(main())
    assert any(tree.withdrawn for tree in oracle)
    assert any(len(tree.nodes) > 1 for tree in oracle)


def _scaled(here: World, factor: float) -> World:
    """The same world in another unit of the label."""
    columns, content = here.tables[LABEL_HOLDER]
    train = content["train"]
    labels = pa.array(train.column("y").to_numpy() * factor)
    content = {**content, "train": train.set_column(train.column_names.index("y"), "y", labels)}
    return replace(here, tables={**here.tables, LABEL_HOLDER: (columns, content)}, y=here.y * factor)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("bits", [3, None])
def test_no_scale_crosses(bits: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In another unit of the label, under a cipher that hides nothing, a feature party receives the very same bytes.

    Exact numbers in a unit that is no power of two are others, so that the comparison can fail.
    """
    monkeypatch.setattr("party.growth.split_table.secrets.SystemRandom", lambda: random.Random(5))
    params = replace(PARAMS, objective="reg:squarederror", base_score=0.0, gradient_bits=bits)
    here = world(40, (1, 2, 1), objective=params.objective, seed=3)
    received, drawn = [], set()
    for number, factor in enumerate((1.0, 3000.0)):

        async def main(number: int = number, factor: float = factor) -> None:
            federation = Observed(tmp_path / str(number), _scaled(here, factor).tables)
            with ciphers(KeysMade(), transparent=True):
                status = await federation.train(spec(params, **SHORT))
            assert status.state == "finished", status.error
            crossed = [each for each in federation.crossed if each.sender == LABEL_HOLDER and each.to in PARTIES[1:]]
            received.append([_body(each.message) for each in crossed if name_of(each.message) not in drawn])
            await federation.close()

        run(main())
    assert len(received[0]) > 10
    assert (received[0] == received[1]) == (bits is not None)


def _body(message: Any) -> bytes:
    """A message between parties but for the digest of the job, which has a nonce, and the key's proof of that job."""
    copy = type(message).FromString(message.SerializeToString())
    copy.ClearField("job_digest")
    if name_of(copy) == "public_key":
        copy.setup.public_key.ClearField("proof")
    content: bytes = copy.SerializeToString(deterministic=True)
    return content


@pytest.mark.parametrize(
    ("params", "most", "named"),
    [
        (PARAMS, 3, ""),
        (PARAMS, 2, "gradient_bits = 3"),
        (replace(PARAMS, gradient_bits=None), 32, "exact numbers"),
        (ForestParams(n_estimators=1, max_depth=2, max_bin=4), 2, ""),
        (ForestParams(n_estimators=1, max_depth=2, max_bin=4, criterion="squared_error"), 32, "exact numbers"),
    ],
)
def test_a_feature_party_sums_no_more_bits_than_its_policy_says(
    params: TreeParams, most: int, named: str, tmp_path: Path
) -> None:
    """It refuses the job at its opening; the label holder's own policy does not matter, and counts are one bit."""
    objective = "reg:squarederror" if params.objective == "squared_error" else "binary:logistic"
    policies = {LABEL_HOLDER: {"max_gradient_bits": 2}, OTHER: {"max_gradient_bits": most}}
    error, steps = _trained(tmp_path, world(30, (1, 1, 1), objective=objective, seed=4), params, policies=policies)
    if not named:
        assert error == ""
        assert {"public_key", "gradients", "encrypted_labels"} & set(steps)
        return
    assert f"Refused: {OTHER} does not sum its columns over {named} of the records: its policy says" in error
    assert f"max_gradient_bits = {most}; train with gradient_bits = {most} or fewer" in error
    assert set(steps) <= {"prepare", "leave"}


def test_weights_that_leave_no_bits_end_the_job_before_a_ciphertext(tmp_path: Path) -> None:
    """At the label holder, once records are aligned; no weight is in the error."""
    weights = np.full(30, 0.3)
    weights[4] = 3.0
    here = weighted(world(30, (1, 1, 1), seed=4), weights)
    error, steps = _trained(tmp_path, here, replace(PARAMS, max_sample_weight=3.0))
    assert "label-holder: sample weights are so unlike that gradient_bits = 3 rounds g of most records" in error
    assert "0.3" not in error
    assert "public_key" not in steps
    assert "gradients" not in steps


def test_a_job_file_names_the_bits() -> None:
    """They travel in the job; without them the job's bytes are those of before."""
    named = {"label_holder": "a", "feature_parties": ["b"]}
    table = JobTableOfFederation.model_validate({**named, "gradient_bits": 5})
    assert table.params() == BoostingParams(gradient_bits=5)
    job = table.spec("a", ["b"], "train")
    assert job.parameters.boosting.gradient_bits == 5
    without = JobTableOfFederation.model_validate(named).spec("a", ["b"], "train")
    assert not without.parameters.boosting.HasField("gradient_bits")
    job.parameters.boosting.ClearField("gradient_bits")
    assert job.SerializeToString() == without.SerializeToString()
    with pytest.raises(ValueError, match=r"gradient_bits and protocol 'forest' do not go together"):
        JobTableOfFederation.model_validate({**named, "protocol": "forest", "gradient_bits": 5})
    exact = setup_pb2.JobSpec()
    put_params(exact, BoostingParams())
    assert b"gradient" not in exact.SerializeToString()


def test_an_eval_table_has_no_part_in_the_rounding(tmp_path: Path) -> None:
    """Its records are behind those of the training, and leaves are weighed without them."""
    here = evaluated(40, (1, 2, 1), seed=5).here
    expected = here.oracle(PARAMS)

    async def main() -> None:
        federation = Federation(tmp_path, here.tables)
        status = await federation.train(spec(PARAMS, eval_table="eval", **SHORT))
        assert status.state == "finished", status.error
        assert_oracles_model(federation.states, expected)
        await federation.close()

    run(main())
