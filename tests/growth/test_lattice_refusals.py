"""Jobs with sums on a lattice that cannot be: refused by name with the remedy, before a word is encrypted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.boosting.categories import categorical_world
from tests.replay import HERE, ORACLE, PARAMS
from tests.simulator import Federation, finished
from tests.worlds import PARTIES, World, assert_oracles_model, spec, world
from treetap.errors import BadInput, ConfigError, Refused
from treetap.lattice import histogram_parameters, histogram_scheme
from treetap.lattice.histogram_parameters import ATTEMPTS
from treetap.native import library
from treetap.protocols.job_spec import check_spec
from treetap.protocols.key_options import LATTICE, PAILLIER
from treetap.trees.params import BoostingParams, ForestParams
from treetap.trees.pivodl_params import PivodlParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2, jobs_pb2, setup_pb2

LABEL_HOLDER, FEATURE, OTHER = PARTIES
#: What hides or shows values of records.
WITH_DATA = {"gradients", "encrypted_words", "sampled_records", "candidate_sums"}


def job_of(params: Any = PARAMS, **changes: Any) -> setup_pb2.JobSpec:
    """A job on a lattice, which names no key."""
    return spec(params, **{"scheme": LATTICE, "key_bits": 0, "obfuscation": "", **changes})


async def refusal(
    folder: Path,
    job: setup_pb2.JobSpec,
    here: World = HERE,
    policies: dict[str, dict[str, Any]] | None = None,
    change: Callable[[exchange_pb2.PeerMessage], None] | None = None,
    changer: str = FEATURE,
) -> tuple[jobs_pb2.JobStatus, set[str]]:
    """The status of a job that fails, and the kinds of messages by then; `change`: of what `changer` sends."""

    def altered(sender: str, _: str, parcel: exchange_pb2.PeerMessage) -> None:
        if change is not None and sender == changer:
            change(parcel)

    federation = Federation(folder, here.tables, policies=policies, encode="categorical")
    federation.tamper = altered
    status = await federation.train(job)
    await federation.close()
    kinds = {message.word for message in federation.log}
    assert status.state == "failed"
    assert not kinds & WITH_DATA
    return status, kinds


@pytest.fixture
def not_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without kernels: an installation with TREETAP_NATIVE=0."""
    monkeypatch.setattr(library, "PATH", tmp_path / "kernels.so")
    for kept in (histogram_scheme.kernels, histogram_scheme.self_test, library.forms):
        kept.cache_clear()
    yield
    for kept in (histogram_scheme.kernels, histogram_scheme.self_test, library.forms):
        kept.cache_clear()


@pytest.mark.parametrize(
    ("params", "changes", "message"),
    [
        (PARAMS, {"key_bits": 2048}, "key_bits: scheme 'lattice' has none; leave it out"),
        (PARAMS, {"obfuscation": "standard"}, "obfuscation: scheme 'lattice' has none; leave it out"),
        (
            replace(PARAMS, max_bin=256),
            {},
            "max_bin = 256: must be at most 255 where scheme = 'lattice', which takes 256 bins of a column, one for "
            "missing values counted; use scheme = 'paillier' for more",
        ),
        (
            ForestParams(binning="per-node", max_bin=256),
            {},
            "max_bin = 256: must be at most 255 where scheme = 'lattice'",
        ),
        (PivodlParams(), {}, "scheme = 'lattice' and protocol 'pivodl' do not go together"),
    ],
)
def test_jobs_that_no_party_could_do(params: Any, changes: dict[str, Any], message: str) -> None:
    """Every process refuses them by the names of a job file; with 255 bins and without a key it is a job."""
    check_spec(job_of(replace(PARAMS, max_bin=255)))
    check_spec(spec(replace(PARAMS, max_bin=256), scheme=PAILLIER))
    with pytest.raises(ConfigError, match=re.escape(message)):
        check_spec(job_of(params, **changes))


async def test_sets_are_hidden_as_a_party_demands(tmp_path: Path) -> None:
    """All parties compute the sizes that hide by the most bits which one of them asks for; 134 bits of secrecy pass."""
    policies = {FEATURE: {"keys": {"min_hiding_bits": 50}}, OTHER: {"keys": {"min_lattice_bits": 134}}}
    federation, said = Federation(tmp_path, HERE.tables, policies=policies), []

    def heard(sender: str, receiver: str, parcel: exchange_pb2.PeerMessage) -> None:
        if name_of(parcel) == "public_key":
            said.append((receiver, parcel.setup.public_key.hiding))

    federation.tamper = heard
    finished(await federation.train(job_of()))
    assert sorted(said) == [(FEATURE, 50), (OTHER, 50)]
    assert_oracles_model(federation.states, ORACLE)
    await federation.close()
    slots = histogram_scheme.Slots((40, 40, 10))
    fifty = histogram_scheme.parameters_of(100, slots, 32, 16, 8, 1, 50)
    assert fifty.hiding_bits >= 50 > histogram_scheme.parameters_of(100, slots, 32, 16, 8, 1).hiding_bits


async def test_a_label_holder_that_hides_sets_less_than_a_party_demands(tmp_path: Path) -> None:
    """The party refuses the job by its rule."""

    def less(parcel: exchange_pb2.PeerMessage) -> None:
        if name_of(parcel) == "public_key":
            parcel.setup.public_key.hiding = 49

    policies = {OTHER: {"keys": {"min_hiding_bits": 50}}}
    status, _ = await refusal(tmp_path, job_of(), policies=policies, change=less, changer=LABEL_HOLDER)
    assert re.search("feature-c takes no part .* hides its sets of records by 49 bits: its policy says", status.error)


def test_more_bits_of_hiding_than_leave_room_for_words() -> None:
    """The label holder refuses the job with the figures that it would need."""
    slots = histogram_scheme.Slots((45, 45, 24))
    with pytest.raises(
        BadInput, match=r"a flood of 97 bits, .* and 60 bits of hiding need: .*, fewer bits of hiding, or"
    ):
        histogram_scheme.parameters_of(10**7, slots, 32, 1 << 17, 1 << 13, 1, 60)


@pytest.mark.usefixtures("not_compiled")
async def test_a_machine_without_kernels(tmp_path: Path) -> None:
    """No party begins the job; it names why there are none, how to get them, and what runs without."""
    status, kinds = await refusal(tmp_path, job_of())
    assert status.bad_input
    assert re.search(
        "scheme = 'lattice' needs native kernels, but the native kernels were not compiled .*: install a C compiler, "
        "or set TREETAP_NATIVE=1, and install treetap again, or train with scheme = 'paillier'",
        status.error,
    ), status.error
    assert "candidate_count" not in kinds


async def test_a_column_of_more_categories_than_bins(tmp_path: Path) -> None:
    """The party that has it refuses it, by its name, before it tells how many candidates there are."""
    here = categorical_world(600, {LABEL_HOLDER: (256, 0), FEATURE: (256, 3), OTHER: (0, 4)}, seed=2)
    status, kinds = await refusal(tmp_path, job_of(replace(PARAMS, max_cat_to_onehot=300)), here)
    assert status.bad_input
    assert "column 'b0' has 256 categories, and scheme = 'lattice' takes 255: use encode = \"ordinal\"" in status.error
    assert "candidate_count" not in kinds


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        (33, "scheme = 'lattice': words .* are more than one second half may serve: .*; give each class its own trees"),
        (40, "scheme 'lattice' has 3072: use multi_strategy = 'one_output_per_tree'$"),
    ],
)
async def test_classes_that_no_plaintext_holds(classes: int, said: str, tmp_path: Path) -> None:
    """Trees of so many outputs take more bits or more words than there are, which the label holder says at once."""
    params = replace(PARAMS, objective="multi:softprob", multi_strategy="multi_output_tree", n_estimators=1)
    here = world(400, (1, 1, 1), objective="multi:softprob", classes=classes)
    status, kinds = await refusal(tmp_path, job_of(params), here)
    assert status.bad_input
    assert re.search(said, status.error), status.error
    assert "candidate_count" not in kinds


async def test_more_candidates_than_are_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The feature party that has them refuses the job, with what to change, before it tells their number."""
    monkeypatch.setitem(histogram_parameters.MOST, "candidates", 1)
    status, kinds = await refusal(tmp_path, job_of())
    assert status.bad_input
    assert re.search(
        "feature-[bc] has 2 candidates of a node, scheme = 'lattice' takes 1: use a smaller max_bin, fewer columns, "
        "or scheme = 'paillier'",
        status.error,
    ), status.error
    assert "candidate_count" not in kinds


async def test_kernels_that_give_other_words(tmp_path: Path) -> None:
    """A party whose self-test differs from the others' is named before any nonce is opened."""

    def another(parcel: exchange_pb2.PeerMessage) -> None:
        if name_of(parcel) == "seed_commitment":
            parcel.setup.seed_commitment.self_test = bytes(32)

    status, _ = await refusal(tmp_path, job_of(), change=another)
    assert status.bad_input
    assert re.search(
        "the kernels of feature-b and of (label-holder|feature-c) give other products for equal seeds", status.error
    ), status.error


def test_attempts_that_are_not_hidden_any_more() -> None:
    """The last one that is counted in is hidden, the next one refused with what is to be done."""
    slots = histogram_scheme.Slots((40, 40, 10))
    assert histogram_scheme.parameters_of(100, slots, 32, 16, 8, ATTEMPTS).attempts == ATTEMPTS
    with pytest.raises(Refused, match=f"attempt {ATTEMPTS + 1} of a job on a lattice: .* train under another name"):
        histogram_scheme.parameters_of(100, slots, 32, 16, 8, ATTEMPTS + 1)


def test_the_self_test_is_the_same_in_every_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else parties with other processors would refuse each other."""
    digests = {histogram_scheme.self_test()}
    for form in library.forms():
        monkeypatch.setattr(histogram_scheme, "kernels", lambda form=form: histogram_scheme.Histograms(form))
        histogram_scheme.self_test.cache_clear()
        digests.add(histogram_scheme.self_test())
    histogram_scheme.self_test.cache_clear()
    assert len(digests) == 1
    assert BoostingParams().max_bin <= 255
