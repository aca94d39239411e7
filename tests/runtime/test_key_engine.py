"""The workers of a cluster get plans, codes and ciphertexts; keys, exponents and plain values go to the key engine."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.campaign.small_jobs import TRAININGS, begin, play, trained, training_of, wrong
from tests.lattice_ways import take_way
from tests.simulator import run
from treetap.lattice.histogram_ways import Way
from treetap.workers.engines import InProcessEngine

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
#: Kernels that a cluster may run, and what it sees of the party with them: see docs/deploy.md.
ELSEWHERE = {
    "treetap.additive.sums.kernels": {
        "open_tree": "public key, layout of bins",
        "add": "ciphertexts and the bins of their records",
        "root_bins": "nothing more",
        "node_bins": "records of nodes, by number",
        "open_pool": "public key",
        "keep": "ciphertexts",
        "pool_bins": "records of nodes, by number, and their bins",
        "left_sums": "products of ciphertexts",
        "pack": "products of ciphertexts in the secret order of candidates",
        "close_tree": "nothing more",
    },
    "treetap.additive.sums.masked_sums": {
        "_open_plan": "public key, places of leaves",
        "_mask": "ciphertexts and the candidate leaves of each record by the own splits",
        "_pack": "products of ciphertexts",
        "_forget": "nothing more",
    },
    "treetap.lattice.kernels": {
        "_take_public": "public key",
        "_prepare": "nothing more",
        "_pass_on": "ciphertexts and the candidate leaves of each record by the own splits",
        "_add": "ciphertexts and the candidate leaves of each record by the own splits",
        "_partial": "nothing more",
        "_finish": "sums of ciphertexts",
        "_drop": "nothing more",
        "_forget": "nothing more",
    },
    "treetap.lattice.histogram_sums": {
        "_open_columns": "the seed that all parties drew, bins of all records",
        "_clear": "nothing more",
        "_add": "words of the records of a node and of all others",
        "_take": "nothing more",
        "_multiply": "nothing more",
        "_hide": "the seed of the ternary polynomials that hide sets of records from the label holder",
        "_answer": "sums of words, the seed of their flood",
        "_close": "nothing more",
    },
    "treetap.lattice.histogram_sets": {
        "_open_words": "the seed that all parties drew",
        "_keep": "words of records",
        "_keep_zeros": "words of zeros",
        "_sum": "records of a node, by number, and their bins",
        "_take": "nothing more",
        "_begin": "nothing more",
        "_place": "records of a node, by number, and their bins",
        "_multiply": "nothing more",
        "_hide": "sums of words, the seeds of the ternary polynomials that hide sets of records, and of their flood",
        "_close": "nothing more",
    },
    "treetap.psi.kernels": {"check_points": "blinded identifiers"},
}
#: Kernels that get a key, an exponent, or values in plain, or judge a key: never a cluster's without
#: `cluster_holds_key`.
WITH_SECRETS = {
    "treetap.additive.sums.key_holder": {"_take_key", "_prove", "_encrypt", "_open", "_open_numbers", "_forget"},
    "treetap.additive.paillier.key_proof": {"check_in_worker"},
    "treetap.additive.paillier.shared_sums": {"_encrypt", "_add", "_forget"},
    "treetap.additive.sums.comparison": {"_encrypt", "_blind", "_open"},
    "treetap.lattice.histogram_key_holder": {"_open_job", "_encrypt", "_keep", "_open", "_forget"},
    "treetap.lattice.kernels": {"_take_key", "_encrypt", "_open", "_forget"},
    "treetap.psi.kernels": {"blind", "raise_points"},
}
STORIES = ("psi", "forest", "pivodl, gains compared", "eini", "eini-lattice")
ON_LATTICE = ("boosting on a lattice", "forest on a lattice")


@dataclass
class Notes:
    """The kernels of all parties on one kind of engine, and what these got."""

    kernels: set[tuple[str, str]] = field(default_factory=set)
    content: list[bytes] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)

    def add(self, kernel: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.kernels.add((kernel.__module__, kernel.__name__))
        self.content.append(pickle.dumps(args))
        if kernel.__module__ == "treetap.lattice.histogram_key_holder" and kernel.__name__ in ("_encrypt", "_open"):
            self.keys.append(args[-1])  # a query's seed
        elif kernel.__name__ == "_take_key":
            self.keys.append(args[1] if isinstance(args[1], bytes) else args[1][1])
        if kernel.__name__ in ("blind", "raise_points"):
            self.keys.append(args[0])


class Noted(InProcessEngine):
    """A party's own worker, whose calls are noted."""

    def __init__(self, notes: Notes) -> None:
        super().__init__()
        self._notes = notes

    async def call(self, worker: int, kernel: Callable[..., T], *args: Any) -> T:
        self._notes.add(kernel, args)
        return await super().call(worker, kernel, *args)

    def forget(self, kernel: Callable[..., Any], *args: Any) -> None:
        self._notes.add(kernel, args)
        super().forget(kernel, *args)


def _play(folder: Path, story: str, elsewhere: Notes, with_keys: Notes) -> None:
    """Note the calls to both engines of a story whose parties hold their keys apart."""
    if story not in TRAININGS:
        trained(training_of(story))  # before the loop below runs

    async def main() -> None:
        federation = begin(folder, story)
        federation.engine, federation.key_engine = lambda _: Noted(elsewhere), lambda _: Noted(with_keys)
        for name in federation.configs:
            federation.kill(name)
            federation.start(name)
        status = await play(federation, story)
        assert status.state == "finished", status.error
        assert not wrong(federation, story)
        await federation.close()

    run(main())


@pytest.mark.filterwarnings("ignore:a 512-bit")
def test_keys_and_plain_values_stay_with_the_key_engine(tmp_path: Path) -> None:
    """Every kernel runs where its table above says, results are the oracle's, and no key is in the other's calls."""
    elsewhere, with_keys = Notes(), Notes()
    for number, story in enumerate(STORIES):
        _play(tmp_path / str(number), story, elsewhere, with_keys)
    for story, way in product(ON_LATTICE, Way):
        with pytest.MonkeyPatch.context() as patch:
            take_way(patch, way)
            _play(tmp_path / f"{story} by {way}", story, elsewhere, with_keys)
    assert elsewhere.kernels <= {(module, name) for module, names in ELSEWHERE.items() for name in names}
    assert with_keys.kernels <= {(module, name) for module, names in WITH_SECRETS.items() for name in names}
    secrets = [part for key in with_keys.keys for part in (key, key[: len(key) // 2], key[len(key) // 2 :])]
    assert secrets
    for secret in secrets:
        assert not any(secret in each for each in elsewhere.content)


@pytest.mark.second_tier
def test_the_type_checker_refuses_a_key_for_workers_elsewhere(tmp_path: Path) -> None:
    """`mypy` accepts a key holder on the key engine of a party, and names the engine for the rest as unfit."""
    lines = [
        "from party.runtime.context import StepContext",
        "from treetap.additive.sums.key_holder import KeyHolder",
        "from treetap.additive.paillier.secret_key import SecretKey",
        "from treetap.trees.slots import Slots",
        "def hold(context: StepContext, key: SecretKey, slots: Slots) -> None:",
        '    KeyHolder(context.key_engine, key, slots, "standard", "t")',
        '    KeyHolder(context.engine, key, slots, "standard", "t")',
    ]
    file = tmp_path / "passes_a_key.py"
    file.write_text("\n".join(lines) + "\n")
    # of what these import, nothing else has a part in it: to check all of it takes half a minute
    files = [file, *(ROOT / name for name in ("party/runtime/context.py", "treetap/workers/engines.py"))]
    files.append(ROOT / "treetap/additive/sums/key_holder.py")
    alone = ("--follow-imports=skip", "--cache-dir", tmp_path / "cache")
    command = list(map(str, (sys.executable, "-m", "mypy", *alone, *files)))
    checked = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=240)
    (fault,) = [line for line in checked.stdout.splitlines() if ": error:" in line and file.name in line]
    assert "passes_a_key.py:7" in fault
    assert 'expected "KeyEngine"' in fault
