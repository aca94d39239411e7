"""The party's choice of arithmetic: what it comes to, what cannot be had, and what workers are told."""

from __future__ import annotations

import asyncio
import io
import shutil
import subprocess
from pathlib import Path
from unittest.mock import patch

import pytest

from party import config as party_config
from party.server.main import choose_arithmetic
from tests.commands.command import refused, treetap, write
from tests.replay import HERE, JOB
from tests.simulator import Federation, run
from tests.worlds import PARTIES
from treetap import terminal
from treetap.commands.doctor import configuration as doctor
from treetap.commands.jobs import progress_view
from treetap.errors import BadInput, ConfigError
from treetap.native import arithmetic, library
from treetap.wire.v2 import jobs_pb2
from treetap.workers.engines import ProcessEngine

pytestmark = pytest.mark.usefixtures("same_arithmetic_after")


@pytest.fixture
def masked(monkeypatch):
    """A processor that does not name AVX-512 IFMA."""

    class Masked:
        def __init__(self, path):
            pass

        def treetap_has_ifma(self):
            return 0

        def treetap_interface(self):
            return library.INTERFACE

    monkeypatch.setattr(library, "PATH", Path(__file__))
    monkeypatch.setattr(library.ctypes, "CDLL", Masked)
    library.load.cache_clear()
    yield
    monkeypatch.undo()
    library.load.cache_clear()


def configured(folder, **settings):
    return party_config.read(write(folder / "a.toml", {"name": "a", "state": "state", "insecure": True} | settings))


def named(state):
    return arithmetic.in_use()


def test_auto_on_a_processor_without_ifma_is_gmpy2_and_says_why(masked, tmp_path):
    """Doctor names the choice, what it comes to and the missing instructions."""
    config = configured(tmp_path)
    assert choose_arithmetic(config, tmp_path / "a.toml") == arithmetic.Backend(
        "gmpy2", "the processor has no AVX-512 IFMA"
    )
    [finding] = doctor._arithmetic(config)
    assert finding.level == "ok"
    assert finding.message.startswith("auto: gmpy2, as the processor has no AVX-512 IFMA")


def test_ifma_that_cannot_be_had_is_an_error(masked, tmp_path):
    """The error names the file, the field and the remedy, and doctor calls it a fault."""
    config = configured(tmp_path, arithmetic="ifma")
    with pytest.raises(ConfigError, match=r'a\.toml: arithmetic = "ifma" cannot be had: .*no AVX-512.*take "auto"'):
        choose_arithmetic(config, tmp_path / "a.toml")
    assert doctor._arithmetic(config)[0].level == "fault"


def test_kernels_that_were_not_compiled_say_why(monkeypatch, tmp_path):
    """The record of the build is part of the reason."""
    monkeypatch.setattr(library, "PATH", tmp_path / "kernels.so")
    monkeypatch.setattr(library, "RECORD", tmp_path / "kernels.json")
    (tmp_path / "kernels.json").write_text('{"why": "TREETAP_NATIVE=0"}')
    library.load.cache_clear()
    try:
        assert arithmetic.choose("auto").reason.endswith("installed: TREETAP_NATIVE=0")
        with pytest.raises(BadInput, match="TREETAP_NATIVE=0"):
            arithmetic.choose("ifma")
    finally:
        library.load.cache_clear()


def test_kernels_of_other_sources_are_refused(monkeypatch, tmp_path):
    """A checkout that has changed since it was installed does not call kernels with other arguments."""
    monkeypatch.setattr(library, "INTERFACE", library.INTERFACE + 1)
    source, made = tmp_path / "interface.c", tmp_path / "kernels.so"
    source.write_text(f"int treetap_interface(void) {{ return {library.INTERFACE - 1}; }}")
    if shutil.which("cc") is None:
        pytest.skip("no C compiler is installed")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(made), str(source)], check=True, timeout=60)
    monkeypatch.setattr(library, "PATH", made)
    with pytest.raises(library.Unavailable, match="install treetap again"):
        library.compiled()


@pytest.mark.second_tier
def test_workers_compute_as_their_parent():
    """A worker uses the backend that its parent used when it made the worker."""

    async def ask():
        engine = ProcessEngine(1, 20.0)
        engine.start()
        try:
            return await engine.call(0, named)
        finally:
            await engine.close()

    for name in ("gmpy2", arithmetic.choose("auto").name):
        arithmetic.use(name)
        assert asyncio.run(ask()) == name


def test_a_status_names_the_backend_of_each_party(monkeypatch, tmp_path):
    """In a line for people and in JSON; a list of jobs has it too."""

    async def main():
        federation = Federation(tmp_path, HERE.tables)
        finished = await federation.train(JOB)
        [listed] = federation.jobs.status("")
        assert list(listed.arithmetic) == list(finished.arithmetic)
        return finished

    finished = run(main())
    every = dict.fromkeys(sorted(PARTIES), arithmetic.in_use())
    assert progress_view.backends(finished) == every
    assert progress_view.status_dict(finished)["arithmetic"] == every
    text = io.StringIO()
    monkeypatch.setattr(terminal, "out", terminal.PlainConsole(file=text, width=160))
    progress_view.print_statuses([finished, jobs_pb2.JobStatus(job="unknown", kind="train")])
    named = ", ".join(f"{party} {name}" for party, name in every.items())
    assert [line for line in text.getvalue().splitlines() if "arithmetic" in line] == [
        f"{finished.job}: arithmetic: {named}"
    ]


def test_a_backend_that_is_no_name_is_malformed(tmp_path):
    """The coordinator takes no other text into its statuses; the job fails and names the party."""

    async def main():
        federation = Federation(tmp_path, HERE.tables)
        with patch.object(arithmetic, "in_use", lambda: "ifma\x1b[2J"):
            return await federation.train(JOB)

    status = run(main())
    assert status.state == "failed"
    assert "names a backend of its arithmetic by what is no name" in status.error
    assert not status.arithmetic


def test_an_unknown_choice_is_refused(tmp_path):
    """Exit status 2, with the file and the field."""
    path = write(tmp_path / "a.toml", {"name": "a", "state": "state", "insecure": True, "arithmetic": "avx"})
    assert "arithmetic" in refused(treetap("party", "--config", path))
