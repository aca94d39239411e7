"""Libraries of extras: looked for, loaded by the jobs that need them alone, and named where they are missing."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from treetap.errors import BadInput
from treetap.native import library as native
from treetap.protocols.libraries import kernels_protocols, missing_library, require_library
from treetap.protocols.registry import Needs, prediction, training
from treetap.version import install

#: All modules of the processes and the command line, but for the packages of protocols that need a library.
_IMPORTS = """
import importlib, pkgutil, sys
for top in ("commands", "protocols", "tables", "party", "coordinator", "attacks.view"):
    package = importlib.import_module(f"treetap.{top}")
    for module in pkgutil.walk_packages(package.__path__, f"treetap.{top}."):
        if not module.name.startswith(("treetap.party.splitnn.", "treetap.party.eini.lattice")):
            importlib.import_module(module.name)
print([name for name in ("torch",) if name in sys.modules])
"""


#: The coordinator, with the course of a training and what all protocols say of themselves.
_OF_COORDINATOR = """
import sys
import treetap.coordinator.server, treetap.coordinator.boosting, treetap.coordinator.protocols
from treetap.protocols.registry import PREDICTION, TRAINING, prediction, training
for name in TRAINING:
    training(name)
for name in PREDICTION:
    prediction(name)
print([name for name in ("pyarrow", "gmpy2") if name in sys.modules])
"""


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("program", [_OF_COORDINATOR, _IMPORTS], ids=["of the coordinator", "of any process"])
def test_no_process_loads_a_library_that_no_job_needs(program: str) -> None:
    """Nor do the descriptions of all protocols; what reads tables would take a coordinator 40 MB at its first job."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a training as of a prediction; one that needs nothing, or has what it needs, passes."""
    needing = replace(training("boosting"), needs=Needs("no_such_library", "more"))
    assert missing_library("boosting", training("boosting")) == ""
    assert missing_library("boosting", replace(needing, needs=Needs("json", "more"))) == ""
    with pytest.raises(BadInput, match=r"^protocol boosting needs no_such_library: \S*pip install -e '\S*\[more\]'$"):
        require_library("boosting", needing)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert missing_library("splitnn", prediction("splitnn")).endswith(f"needs torch: {install('neural')}")
    there = missing_library("splitnn", prediction("splitnn"), at_party=True)
    assert there == "protocol splitnn needs torch: install treetap's extra 'neural' there"


def test_kernels_that_were_not_compiled_are_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A protocol that needs them says so; all others pass."""
    assert kernels_protocols() == ["eini-lattice"]
    monkeypatch.setattr(native, "PATH", tmp_path / "kernels.so")
    monkeypatch.setattr(native, "RECORD", tmp_path / "kernels.json")
    native.RECORD.write_text('{"why": "cc failed"}')
    message = (
        "protocol eini-lattice needs native kernels, but .*: cc failed: install a C compiler, or set TREETAP_NATIVE"
    )
    with pytest.raises(BadInput, match=message):
        require_library("eini-lattice", prediction("eini-lattice"))
    assert missing_library("eini", prediction("eini")) == ""
