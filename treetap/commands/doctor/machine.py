"""`treetap doctor` without a file: this machine, and what treetap has on it."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from treetap.commands.doctor.connections import Finding, end
from treetap.errors import BadInput
from treetap.native import arithmetic, library
from treetap.native import lattice as native
from treetap.protocols.key_options import LATTICE
from treetap.protocols.libraries import installed_version, kernels_protocols, libraries
from treetap.terminal import size
from treetap.usage import memory
from treetap.version import install, origin, package_version

#: Extra → what it is for; those for work on treetap itself are not listed.
PURPOSES = {
    "api": "estimators in Python",
    "audit": "attacks, audits, frontiers",
    "cluster": "workers on a cluster of Ray",
    "console": "pages for a party's people",
    "data": "public tables that are Excel workbooks",
    "demo": "treetap demo",
    "explain": "Shapley values in Python, and shap's pictures",
    "mlflow": "runs of experiments in MLflow",
    "neural": "split networks",
    "plot": "pictures of models in Python",
    "serve": "answers over HTTP",
    "sql": "tables in PostgreSQL and SQLite",
    "telemetry": "traces of jobs by OpenTelemetry",
    "tensorboard": "runs of experiments in TensorBoard",
    "tokens": "keys in PKCS#11 tokens",
}
OF_DEVELOPERS = ("bench", "dev", "interop", "site", "test")
#: A requirement of the package's metadata: its name, its own extras, and the extra that has it.
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[([\w,-]+)\])?[^;]*;.*\bextra == ['\"]([\w-]+)['\"]")


def run(*, as_json: bool) -> None:
    """Print the findings about this machine, a line each; exit status 2 if one is a fault."""
    findings = [
        Finding("ok", "python", f"{platform.python_version()}, {sys.executable}"),
        Finding("ok", "treetap", f"{package_version()}, {origin()}"),
        *_hardware(),
        *arithmetic_of("auto"),
        kernels(()),
        *_extras(),
    ]
    end(findings, {"kind": "machine"}, as_json=as_json)


def _hardware() -> Iterator[Finding]:
    own, all_cores = len(os.sched_getaffinity(0)), os.cpu_count()
    of = "" if own == all_cores else f" of {all_cores}"
    yield Finding("ok", "cores", f"{own}{of} for this process: as many workers at each party that serves here")
    free = ""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    available = f", {size(1024 * int(free))} available" if free else ""
    yield Finding("ok", "memory", f"{size(memory())}{available}")


def requirements() -> dict[str, set[str]]:
    """Extra → the distributions that it installs, those of extras that it names among them."""
    named: dict[str, set[str]] = {}
    of: dict[str, set[str]] = {}
    for line in metadata.requires("treetap") or ():
        if (said := _REQUIREMENT.match(line)) is None:
            continue
        name, others, extra = said.groups()
        if name == "treetap":
            of.setdefault(extra, set()).update((others or "").split(","))
        else:
            named.setdefault(extra, set()).add(name)
    return {extra: _with(extra, named, of) for extra in named.keys() | of.keys()}


def _with(extra: str, named: dict[str, set[str]], of: dict[str, set[str]]) -> set[str]:
    return named.get(extra, set()).union(*(_with(other, named, of) for other in of.get(extra, ())))


def _extras() -> Iterator[Finding]:
    """Each extra: installed, or what is missing and the command; none of them is needed by every process."""
    for extra, names in sorted(requirements().items()):
        if extra in OF_DEVELOPERS:
            continue
        purpose = f"; for {PURPOSES[extra]}" if extra in PURPOSES else ""
        absent = sorted(name for name in names if not _installed(name))
        said = f"not installed ({', '.join(absent)}): {install(extra)}" if absent else "installed"
        yield Finding("ok", f"extra {extra}", said + purpose)


def _installed(distribution: str) -> bool:
    with suppress(metadata.PackageNotFoundError):
        return bool(metadata.version(distribution))
    return False


def protocol_libraries() -> list[Finding]:
    """The optional libraries: a party without one refuses the jobs of the protocols that need it, and those alone."""
    findings = []
    for name, extra, protocols in libraries():
        needed, version = f"protocol {' and '.join(protocols)}", installed_version(name)
        absent = f"is not installed: jobs of {needed} are refused; {install(extra)} if there will be any"
        findings.append(Finding("ok", f"library {name}", f"{version}, for {needed}" if version else absent))
    return findings


def kernels(schemes: Collection[str]) -> Finding:
    """The compiled kernels: without them a party refuses the jobs that need them, and those alone.

    A fault if the scheme is among `schemes`, which a policy names.
    """
    from treetap.lattice.histogram_scheme import kernels

    needed = f"protocol {' and '.join(kernels_protocols())} or scheme {LATTICE}"
    try:
        said = f"{native.instructions()} instructions for polynomials, for jobs of {needed}"
        kernels()
    except library.Unavailable as why:
        if LATTICE in schemes:
            said = f"the policy names {LATTICE!r} among its schemes, but {why}"
            return Finding("fault", "native kernels", f"{said}: {library.REMEDY}, or take it out of schemes")
        said = f"jobs of {needed} are refused, as {why}; {library.REMEDY} if there will be any"
    except BadInput as why:
        return Finding("fault", "native kernels", str(why))
    return Finding("ok", "native kernels", said)


def arithmetic_of(choice: str) -> list[Finding]:
    """The backend that a choice means on this machine and why, and the forms that `auto` takes one of."""
    try:
        backend = arithmetic.choose(choice)
    except BadInput as fault:
        return [Finding("fault", "arithmetic", str(fault))]
    said = [f"{choice}: {backend.name}, as {backend.reason}"]
    if choice != "auto":
        said.append("auto would be {0.name}, as {0.reason}".format(arithmetic.choose("auto")))
    with suppress(library.Unavailable):  # `auto` has said it
        said += [f"{library.processor()} has the forms {', '.join(library.forms())}", library.built()]
    return [Finding("ok", "arithmetic", "; ".join(said))]
