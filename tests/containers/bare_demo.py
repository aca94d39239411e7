"""`make demo` on plain Debian with what the README asks for and no C compiler, in a container.

    python tests/containers/bare_demo.py [--base IMAGE] [--native as-it-is 0 1]

Each value of TREETAP_NATIVE is a fresh container: without it the build fetches a compiler where the processor has
AVX2 and FMA, with 1 wherever it runs, with 0 never. The demo has to end well on the backend that follows, and
`treetap doctor` has to say how the kernels were compiled, or why not. Prints seconds of the install and of the demo.
Part of `.ci/run` without a value: with the downloads it takes minutes.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BASE = "python:3.11-slim-bookworm"
AS_IT_IS = "as-it-is"
#: Seconds that one container may take.
LIMIT_S = 1800
#: What /proc/cpuinfo names where the processor has a form of kernels that `auto` takes, the fastest first.
AVX2 = {"avx2", "fma"}
AVX512 = {*AVX2, "avx512f", "avx512dq", "avx512bw", "avx512vl"}
NEEDS = {"ifma": {*AVX512, "avx512ifma"}, "avx512": AVX512, "avx2": AVX2}
#: What the container does with the sources that come on standard input.
STEPS = """
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq && apt-get install -y -qq --no-install-recommends make >/dev/null
for each in cc gcc clang tcc; do ! command -v $each || { echo "a compiler: $each"; exit 3; }; done
mkdir /src && tar -x -C /src && cd /src
started=$(date +%s%N)
make .venv/.demo
installed=$(date +%s%N)
make demo
ended=$(date +%s%N)
test -s runs/demo-boosting.html
.venv/bin/treetap demo --details --key-bits 1024
echo DOCTOR
.venv/bin/treetap doctor
echo "SECONDS $(((installed - started) / 1000000)) $(((ended - installed) / 1000000))"
"""


def sources() -> bytes:
    """The files of this checkout that git knows, as a tar archive."""
    names = subprocess.run(
        ["git", "ls-files", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    return subprocess.run(
        ["tar", "-c", "--null", "--files-from=-", "--ignore-failed-read"],
        cwd=ROOT,
        input=names,
        check=True,
        capture_output=True,
    ).stdout


def run(base: str, native: str) -> str:
    """The output of one container; ends the program where it fails."""
    chosen = [] if native == AS_IT_IS else ["--env", f"TREETAP_NATIVE={native}"]
    command = ["docker", "run", "--rm", "--interactive", "--network", "host", *chosen, base, "bash", "-c", STEPS]
    ended = subprocess.run(
        ["timeout", "--kill-after=20", str(LIMIT_S), *command], input=sources(), stdout=-1, stderr=-2, check=False
    )
    output = ended.stdout.decode(errors="replace")
    if ended.returncode:
        sys.exit(f"{output}\nTREETAP_NATIVE {native}: ended with status {ended.returncode}")
    return output


def auto_with_kernels() -> str:
    """The backend that `auto` takes on this processor where the kernels are compiled."""
    has = set(Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").split())
    return next((form for form, needs in NEEDS.items() if needs <= has), "gmpy2")


def expected(native: str, auto: str) -> tuple[str, str]:
    """The backend of the demo, and what doctor says about the kernels; `auto`: the backend with kernels."""
    if native == "0":
        return "gmpy2", "not compiled when treetap was installed: TREETAP_NATIVE=0 was set"
    if native == AS_IT_IS and auto == "gmpy2":
        return "gmpy2", "not compiled when treetap was installed: there was no C compiler"
    return auto, "the native kernels were compiled by ziglang: clang"


def faults(output: str, native: str, auto: str) -> list[str]:
    """Sentences that are missing in the output of a container."""
    backend, built = expected(native, auto)
    demo, _, doctor = output.partition("\nDOCTOR\n")
    parties = ", ".join(f"{party} {backend}" for party in ("feature-b", "feature-c", "label-holder"))
    wanted = [
        (demo, "By its test metrics the model and the joined table's are equal"),
        (demo, "report: runs/demo-boosting.html next: treetap experiment examples/loans/exp.toml"),
        (demo, f"arithmetic: {parties}"),
        (doctor, f"auto: {backend}"),
        (doctor, built),
    ]
    if backend == "gmpy2" and "not compiled" not in built:
        wanted.append((doctor, "the processor has no AVX2 and FMA"))
    return [f"not said: {words}" for said, words in wanted if words not in " ".join(said.split())]


def main() -> None:
    """Run each variant; status 1 at the first that is not as expected."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default=BASE)
    parser.add_argument("--native", nargs="+", choices=[AS_IT_IS, "0", "1"], default=[AS_IT_IS])
    given = parser.parse_args()
    auto = auto_with_kernels()
    for native in given.native:
        output = run(given.base, native)
        if missing := faults(output, native, auto):
            sys.exit("\n".join([output, f"TREETAP_NATIVE {native}:", *missing]))
        found = re.search(r"SECONDS (\d+) (\d+)", output)
        assert found is not None
        installed, demo = (int(part) / 1000 for part in found.groups())
        backend, built = expected(native, auto)
        print(f"TREETAP_NATIVE {native}: {backend}, {built}; installed in {installed:.1f} s, demo in {demo:.1f} s")


if __name__ == "__main__":
    main()
