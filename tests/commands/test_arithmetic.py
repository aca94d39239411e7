"""The party's choice of arithmetic: what it comes to, what cannot be had, and what workers are told."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from tests.commands.command import refused, screen, treetap, write
from tests.replay import HERE, JOB
from tests.simulator import Federation
from tests.worlds import PARTIES
from treetap.commands.jobs import progress_view
from treetap.errors import BadInput, ConfigError
from treetap.native import arithmetic, library
from treetap.ops.doctor import configuration
from treetap.party import config as party_config
from treetap.party.server.main import choose_arithmetic
from treetap.wire.v2 import jobs_pb2
from treetap.workers.cluster import actor
from treetap.workers.cluster.nodes import fault_of

pytestmark = pytest.mark.usefixtures("same_arithmetic_after")


@pytest.fixture
def masked(monkeypatch):
    """A processor that has no forms but those that are named; kernels in all forms, or those that were `made`."""

    def having(*forms, made=library.FORMS):
        answers = {f"treetap_has_{form}": lambda has=form in forms: int(has) for form in library.FORMS}
        answers |= {f"treetap_hash_points_{form}": None for form in made}
        kernels = SimpleNamespace(treetap_interface=lambda: library.INTERFACE, **answers)
        monkeypatch.setattr(library, "PATH", Path(__file__))
        monkeypatch.setattr(library, "_opened", lambda path: kernels)
        library.forms.cache_clear()

    yield having
    monkeypatch.undo()
    library.forms.cache_clear()


def configured(folder, **settings):
    return party_config.read(write(folder / "a.toml", {"name": "a", "state": "state", "insecure": True} | settings))


@pytest.mark.parametrize(
    ("forms", "auto", "native", "why"),
    [
        (library.FORMS, "ifma", "ifma", "has AVX-512 IFMA"),
        (("avx512", "avx2", "plain"), "avx512", "avx512", "has AVX-512 (F, DQ, BW, VL)"),
        (("avx2", "plain"), "avx2", "avx2", "has AVX2 and FMA"),
        (("plain",), "gmpy2", "plain", "has no AVX2 and FMA"),
    ],
)
def test_auto_takes_the_fastest_form_and_says_why(masked, tmp_path, forms, auto, native, why):
    """Doctor names the choice, what it comes to, the reason, and the forms of the processor."""
    masked(*forms)
    config = configured(tmp_path)
    assert choose_arithmetic(config, tmp_path / "a.toml") == arithmetic.Backend(auto, f"the processor {why}")
    [finding] = configuration.arithmetic_of(config.arithmetic)
    has = f"{library.processor()} has the forms {', '.join(forms)}"
    assert finding.level == "ok"
    assert finding.message == f"auto: {auto}, as the processor {why}; {has}; {library.built()}"
    config = configured(tmp_path, arithmetic="native")
    assert choose_arithmetic(config, tmp_path / "a.toml").name == native
    [finding] = configuration.arithmetic_of(config.arithmetic)
    assert finding.message.startswith(f"native: {native}, as the processor {why}; auto would be {auto}, as ")


@pytest.mark.parametrize("lacking", [("ifma",), ("ifma", "avx512"), ("ifma", "avx512", "avx2")], ids=str)
def test_a_form_that_the_processor_lacks_is_refused_by_name(masked, tmp_path, lacking):
    """The error names the file, the field, the instructions and what can be had; those that can be had are taken."""
    has = [form for form in library.FORMS if form not in lacking]
    masked(*has)
    for form in library.FORMS:
        config = configured(tmp_path, arithmetic=form)
        if form in lacking:
            with pytest.raises(ConfigError) as refusal:
                choose_arithmetic(config, tmp_path / "a.toml")
            assert str(refusal.value) == (
                f'{tmp_path}/a.toml: arithmetic = "{form}" cannot be had: the processor has no '
                f'{library.INSTRUCTIONS[form]}; take "gmpy2" or a form that can be had: {", ".join(has)}'
            )
            assert configuration.arithmetic_of(config.arithmetic)[0].level == "fault"
        else:
            assert choose_arithmetic(config, tmp_path / "a.toml") == arithmetic.Backend(
                form, "the party's file says so"
            )


@pytest.mark.parametrize("made", library.FORMS)
def test_kernels_for_one_processor_are_used_where_its_fastest_form_is_theirs(masked, monkeypatch, tmp_path, made):
    """Elsewhere the party's log and doctor say that it computes without them, and what to do; so does another form."""
    masked("avx2", "plain", made=[made])
    monkeypatch.setattr(library, "RECORD", tmp_path / "kernels.json")
    library.RECORD.write_text(f'{{"compiler": "cc", "flags": "-O3", "forms": "{made}", "choice": "host"}}')
    said = f"the native kernels were compiled by cc (-O3), in the form {made} alone"
    if made == "avx2":
        assert arithmetic.choose("auto").name == "avx2"
        fault = f"{said}: install treetap again without TREETAP_NATIVE=host"
    else:
        fault = f"{said}, and the form of this processor is avx2: install treetap again"
        assert arithmetic.choose("auto") == arithmetic.Backend("gmpy2", fault)
    with pytest.raises(BadInput, match=re.escape(f'arithmetic = "plain" cannot be had: {fault}; take ')):
        arithmetic.choose("plain")


def test_a_node_of_a_cluster_that_lacks_the_form_is_refused_by_name(masked):
    """Its actor says so when it gets the party's backend, and the party's fault names the node."""
    masked("avx2", "plain")
    lacks = actor.WorkerActor().prepare("avx512", [])
    assert actor.WorkerActor().prepare("avx2", []) == ""
    own = {"python": "3", "treetap": "1", "sources": "s", "ray": "2", "pid": 1}
    there = {**own, "node": "10.0.0.2"}
    assert fault_of({**there, "lacks": ""}, own) == ""
    assert fault_of({**there, "lacks": lacks}, own) == f"node 10.0.0.2 of the cluster: {lacks}"
    assert 'arithmetic = "avx512" cannot be had' in lacks
    assert "a form that can be had: avx2, plain" in lacks


def test_kernels_that_were_not_compiled_say_why(monkeypatch, tmp_path):
    """The record of the build is part of the reason."""
    monkeypatch.setattr(library, "PATH", tmp_path / "kernels.so")
    monkeypatch.setattr(library, "RECORD", tmp_path / "kernels.json")
    (tmp_path / "kernels.json").write_text('{"why": "TREETAP_NATIVE=0"}')
    library.forms.cache_clear()
    try:
        assert arithmetic.choose("auto").reason.endswith("installed: TREETAP_NATIVE=0")
        for choice in ("native", "ifma", "plain"):
            with pytest.raises(
                BadInput, match=f'"{choice}" cannot be had: .* TREETAP_NATIVE=0; take "auto" or "gmpy2"'
            ):
                arithmetic.choose(choice)
        [finding] = configuration.arithmetic_of("gmpy2")
        assert finding.message.startswith(
            "gmpy2: gmpy2, as the party's file says so; auto would be gmpy2, as the native"
        )
    finally:
        library.forms.cache_clear()


def test_a_build_is_described(monkeypatch, tmp_path):
    """By its compiler and flags; a record of an older build has no flags."""
    monkeypatch.setattr(library, "PATH", Path(__file__))
    monkeypatch.setattr(library, "RECORD", tmp_path / "kernels.json")
    library.RECORD.write_text('{"compiler": "clang 14", "flags": "-O3 -ffp-contract=off"}')
    assert library.built() == "the native kernels were compiled by clang 14 (-O3 -ffp-contract=off)"


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


async def test_a_status_names_the_backend_of_each_party(monkeypatch, tmp_path):
    """In JSON, also of a list of jobs; people are not told."""
    federation = Federation(tmp_path, HERE.tables)
    finished = await federation.train(JOB)
    [listed] = federation.jobs.status("")
    assert list(listed.arithmetic) == list(finished.arithmetic)
    await federation.close()
    every = dict.fromkeys(sorted(PARTIES), arithmetic.in_use())
    assert progress_view.backends(finished) == every
    assert progress_view.status_dict(finished)["arithmetic"] == every
    text = screen(monkeypatch, "out", 160)
    progress_view.print_statuses([finished, jobs_pb2.JobStatus(job="unknown", kind="train")])
    assert "arithmetic" not in text.getvalue()


async def test_a_backend_that_is_no_name_is_malformed(tmp_path):
    """The coordinator takes no other text into its statuses; the job fails and names the party."""

    federation = Federation(tmp_path, HERE.tables)
    with patch.object(arithmetic, "in_use", lambda: "ifma\x1b[2J"):
        status = await federation.train(JOB)
    assert status.state == "failed"
    assert "names a backend of its arithmetic by what is no name" in status.error
    assert not status.arithmetic


def test_an_unknown_choice_is_refused(tmp_path):
    """Exit status 2, with the file and the field."""
    path = write(tmp_path / "a.toml", {"name": "a", "state": "state", "insecure": True, "arithmetic": "avx"})
    assert "arithmetic" in refused(treetap("party", "--config", path))
