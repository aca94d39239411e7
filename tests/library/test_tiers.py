"""The two tiers of tests: what the first leaves out, refuses and says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import heavy_libraries, tiers

ROOT = Path(__file__).parents[2]
CONFTEST = """
import sys
from tests import tiers
pytest_plugins = ["tests.tiers"]
sys.modules["networkx"] = None
tiers._installed = lambda name: name != "networkx"
"""
FILES = {
    "test_plain.py": "import pytest\ndef test_passes(): pass\n@pytest.mark.second_tier\ndef test_further(): pass\n",
    "test_whole.py": "import no_such\nimport pytest\npytestmark = pytest.mark.second_tier\ndef test_a(): pass\n"
    "class TestMore:\n    def test_b(self): pass\n",
    "test_heavy.py": "def test_inside():\n    import torch\n",
    "test_heavy_file.py": "import ray.util\ndef test_never(): pass\n",
    "test_skips.py": "import pytest\ndef test_skips():\n    pytest.importorskip('torch', reason='needs more')\n",
    "test_probes.py": "from importlib.util import find_spec\ndef test_probes():\n    assert not find_spec('torch')\n",
    "test_instances.py": "import pytest\n@pytest.mark.second_tier(but=2)\n@pytest.mark.parametrize('x', range(5))\n"
    "def test_each(x): pass\n",
    "test_sweep.py": "import pytest\n@pytest.mark.second_tier(but=1)\n@pytest.mark.parametrize('x', range(9))\n"
    "def test_swept(x): pass\n",
    "test_lacks.py": "import networkx\ndef test_never(): pass\n",
    "test_command.py": "def test_command():\n    assert not 'attacks need networkx: pip install it'\n",
}


def _run(folder: Path, *words: str, **variables: str) -> str:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    second_tier\n    campaign\n")
    for name, content in FILES.items():
        (folder / name).write_text(content)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-rfEs",
        "--continue-on-collection-errors",
        "-p",
        "no:cacheprovider",
        *words,
    ]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"} | variables
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    return ended.stdout + ended.stderr


@pytest.mark.second_tier
def test_the_first_tier(tmp_path: Path) -> None:
    """It counts what it leaves out, fails by name what needs more, and does without what is missing, by name."""
    said = _run(tmp_path, "--tier", "first")
    needs = "which is not of the first tier: pytest.mark.second_tier"
    assert f"test_heavy.py::test_inside needs torch, {needs}" in said
    assert f"test_heavy_file.py needs ray, {needs}" in said
    assert f"test_skips.py::test_skips needs torch, {needs}" in said
    assert said.count("needs networkx: pip install -e '.[test]'") == 2
    assert "missing of the extra test: networkx; tests that need it did not run" in said
    assert "5 passed; at least 14 further tests: make test-all" in said
    assert "no_such" not in said


@pytest.mark.second_tier
def test_all_tiers(tmp_path: Path) -> None:
    """With both tiers every file is imported; where all libraries are wanted, one that is missing is an error."""
    said = _run(tmp_path, "--tier", "all", TREETAP_ALL_SOURCES="1")
    assert "No module named 'no_such'" in said
    assert "ERROR test_lacks.py" in said
    assert f"at least {8 - tiers.MOST + 3 - tiers.MOST} further tests: make campaign" in said
    said = _run(tmp_path, "--tier", "all", "-m", "second_tier and not campaign", "-v")
    assert len(re.findall(r"test_swept\[\d\] PASSED", said)) == tiers.MOST
    assert "test_swept[8] PASSED" in _run(tmp_path, "--tier", "all", "-v", "test_sweep.py")


def test_no_library_of_the_first_tier_is_heavy() -> None:
    """The two lists of libraries do not meet, and what the first tier needs has a name by which it is imported."""
    extras = {"a": ["numpy>=1", "treetap[b,c]"], "b": ["scikit-learn"], "c": ["pytest-xdist>=3", "networkx"]}
    assert list(tiers._distributions(extras, "a")) == ["numpy", "scikit-learn", "pytest-xdist", "networkx"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiers, "_installed", lambda _: False)
        assert {"phe", "networkx", "sklearn", "xdist"} <= set(tiers.missing("test"))
        assert not set(tiers.missing("test")) & heavy_libraries.HEAVY
        assert {"torch", "ray", "docker"} <= set(tiers.missing("dev")) & heavy_libraries.HEAVY
