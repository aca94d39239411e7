"""Federations of the Python API: what they leave behind, what their models are worth elsewhere, who may ask them."""

from __future__ import annotations

import copy
import gc
import io
import json
import os
import pickle
import stat
import subprocess
import sys
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.base import clone

import treetap
from treetap.lab.api.loopback import Loopback

pytestmark = pytest.mark.xdist_group("api")
SMALL: dict[str, Any] = {"n_estimators": 1, "max_depth": 1, "key_bits": 1024, "workers": 1, "verbose": False}
X = np.random.default_rng(7).normal(size=(40, 4))
Y = (X.sum(axis=1) > 0).astype(int)


def _by_joblib(model: Any) -> Any:
    content = io.BytesIO()
    joblib.dump(model, content)
    content.seek(0)
    return joblib.load(content)


@pytest.mark.second_tier
@pytest.mark.parametrize("kept", [False, True], ids=["temporary", "workdir"])
def test_nothing_of_a_federation_is_for_others_and_an_ended_one_stays_ended(kept: bool, tmp_path: Path) -> None:
    """Files are the user's own, whatever the umask; after the block no job starts it again, and no key is left."""
    workdir = tmp_path / "kept" if kept else None
    before = os.umask(0o022)
    try:
        with treetap.federation(workers=1, workdir=workdir) as running:
            model = treetap.FederatedClassifier(**SMALL, federation=running).fit(X, Y)
            folder = running.folder
            open_to_others = {
                str(path.relative_to(folder)): oct(path.stat().st_mode)
                for path in (folder, *folder.rglob("*"))
                if stat.S_IMODE(path.stat().st_mode) & 0o077 and not path.is_socket()
            }
            copies: dict[str, Callable[[Any], Any]] = {
                "pickle": lambda each: pickle.loads(pickle.dumps(each)),
                "copy": copy.deepcopy,
                "joblib": _by_joblib,
            }
            found = {name: make(model) for name, make in copies.items()}
    finally:
        os.umask(before)
    assert open_to_others == {}
    assert folder.exists() is kept
    for name, make in copies.items():
        for each in (found[name], make(model)):
            assert (each.predict_proba(X) == model.predict_proba(X)).all()
            assert not each.report_["federated"]
            with pytest.raises(ValueError, match=r"the federation has ended.* or leave federation out"):
                each.fit(X, Y)
    with pytest.raises(ValueError, match="the federation has ended"):
        clone(model).fit(X, Y)
    assert folder.exists() is kept


@pytest.mark.second_tier
def test_a_federation_that_nobody_ends_goes_with_its_last_user() -> None:
    """The garbage collector, or the interpreter's end, ends its processes and removes its folder."""
    running = Loopback(("party-1", "party-2"), workers=1)
    running.start()
    folder, pid = running.folder, running.pids["party-1"]
    del running
    gc.collect()
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    program = (
        "from treetap.lab.api.loopback import Loopback\n"
        "running = Loopback(('a', 'b'), workers=1)\nrunning.start()\nprint(running.folder)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert (Path(done.stdout.strip()).exists(), done.stderr) == (False, "")


@pytest.mark.second_tier
def test_a_forked_process_leaves_the_federation_alone() -> None:
    """Its end is not the federation's."""
    running = Loopback(("party-1", "party-2"), workers=1)
    running.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        running.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert running.running
    assert running.folder.is_dir()
    running.end()


@pytest.mark.second_tier
def test_a_served_model_answers_its_own_client_alone() -> None:
    """The client's name is all that it shows on loopback, so it is drawn: another process cannot guess it."""
    with treetap.federation(workers=1, serve=True) as running:
        model = treetap.FederatedClassifier(**SMALL, federation=running).fit(X, Y)
        with model.serve(X) as served:
            assert _asked(served, served.headers)[0] == 200
            for headers in ({"treetap-name": "app"}, {"treetap-name": "client"}, {}):
                status, said = _asked(served, headers)
                assert status == 403
                assert served.headers["treetap-name"] not in said
    assert Loopback(("a", "b")).client != Loopback(("a", "b")).client


def _asked(served: Any, headers: dict[str, str]) -> tuple[int, str]:
    body = json.dumps({"ids": served.ids[:2]}).encode()
    request = urllib.request.Request(
        f"{served.address}/v1/predict", data=body, headers={"Content-Type": "application/json", **headers}
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as failure:
        return failure.code, failure.read().decode()


@pytest.mark.campaign
def test_fits_in_threads_and_idle_connections_say_nothing() -> None:
    """No traceback and no line of gRPC on standard error, beside fits that succeed."""
    program = f"""
import threading, time, numpy as np, treetap
X = np.random.default_rng(7).normal(size=(40, 4)); Y = (X.sum(axis=1) > 0).astype(int)
with treetap.federation(workers=1) as running:
    def work(): treetap.FederatedClassifier(**{SMALL!r}, federation=running).fit(X, Y).predict(X)
    for _ in range(3):
        threads = [threading.Thread(target=work) for _ in range(3)]
        [each.start() for each in threads]; [each.join() for each in threads]
    time.sleep(2)
    work()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    assert done.stderr == ""


def test_environment_of_a_company_does_not_steer_a_federation(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a proxy in the environment, which nobody runs, everything on this machine is called directly."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with treetap.federation(workers=1) as running:
        assert treetap.FederatedClassifier(**SMALL, federation=running).fit(X, Y).report_["federated"]
