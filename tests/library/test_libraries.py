"""Libraries of extras: looked for, loaded by the jobs that need them alone, and named where they are missing."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from treetap.errors import BadInput
from treetap.protocols.libraries import installed_version, libraries, missing_library, require_library
from treetap.protocols.registry import prediction, training

#: All modules of the processes and the command line, but for the packages of protocols that need a library.
_IMPORTS = """
import importlib, pkgutil, sys
for top in ("treetap.commands", "treetap.protocols", "treetap.tables", "party", "coordinator", "attacks.view"):
    package = importlib.import_module(top)
    for module in pkgutil.walk_packages(package.__path__, f"{top}."):
        if not module.name.startswith(("party.splitnn.", "party.lattice.")):
            importlib.import_module(module.name)
from treetap.protocols.libraries import installed_version, libraries
names = [each.name for each in libraries()]
for name in names:
    installed_version(name)
assert sorted(names) == ["tenseal", "torch"], names
print([name for name in names if name in sys.modules])
"""


def test_no_process_loads_a_library_that_no_job_needs() -> None:
    """Nor do the descriptions of all protocols, and the search for what they need."""
    done = subprocess.run([sys.executable, "-c", _IMPORTS], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a training as of a prediction; one that needs nothing, or has what it needs, passes."""
    needing = replace(training("boosting"), library="no_such_library", extra="more")
    assert missing_library("boosting", training("boosting")) == ""
    assert missing_library("boosting", replace(needing, library="json")) == ""
    with pytest.raises(BadInput, match=r"^protocol boosting needs no_such_library: pip install 'treetap\[more\]'$"):
        require_library("boosting", needing)
    monkeypatch.setitem(sys.modules, "tenseal", None)
    assert "needs tenseal: pip install 'treetap[lattice]'" in missing_library(
        "eini-lattice", prediction("eini-lattice")
    )


def test_versions_of_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """As installed, without an import; none of a library that is not there."""
    lattice = next(each for each in libraries() if each.name == "tenseal")
    assert (lattice.extra, lattice.protocols) == ("lattice", ["eini-lattice"])
    assert installed_version("numpy")[0].isdigit()
    assert installed_version("no_such_library") == ""
    assert installed_version("json") == "of an unknown release"
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert installed_version("numpy") == ""
