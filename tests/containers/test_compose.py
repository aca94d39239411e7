"""docker-compose.yml from nothing to a model, and what one container cannot reach of another."""

from __future__ import annotations

import ast
import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.containers.composed import IMAGE, JOB, PARTIES, ROOT, SERVERS, Answer, Composed
from tests.worlds import joined_model
from treetap.commands.jobs.job_file import JobTable
from treetap.strict import Strict, load
from treetap.trees.binning import bin_table
from treetap.trees.centralised import CentralModel, train
from treetap.wire.transcript import summarise

# The image is built and a federation runs before the first test.
pytestmark = [
    pytest.mark.second_tier,
    pytest.mark.long,
    pytest.mark.timeout(1200),
    pytest.mark.xdist_group("containers"),
]
DATA = ROOT / "examples" / "compose" / "data"
#: Tries to connect to all addresses at once and prints those it reached; a refusal comes from a host that was reached.
CONNECT = """
import socket
from concurrent.futures import ThreadPoolExecutor
def reached(address):
    try:
        socket.create_connection(address, timeout=3).close()
    except OSError as failure:
        return isinstance(failure, ConnectionRefusedError)
    return True
addresses = {addresses!r}
with ThreadPoolExecutor(len(addresses)) as pool:
    print([address for address, yes in zip(addresses, pool.map(reached, addresses)) if yes])
"""


class JobFile(Strict):
    """The job's file without a name."""

    job: dict[str, Any]


def table(party: str, name: str) -> tuple[list[str], dict[str, list[float]]]:
    """Columns and, by id, the row of a party's table as it lies in the repository."""
    with (DATA / party / f"{name}.csv").open(encoding="ascii", newline="") as file:
        header, *rows = csv.reader(file)
    return header[1:], {row[0]: [float(cell) for cell in row[1:]] for row in rows}


def blocks(name: str) -> tuple[list[str], list[tuple[str, list[str], np.ndarray]]]:
    """The sorted ids that all parties hold, and per party its columns and their values (N, d), the labels last."""
    tables = {party: table(party, name) for party in PARTIES}
    ids = sorted(set.intersection(*[set(rows) for _, rows in tables.values()]))
    return ids, [(p, columns, np.array([rows[i] for i in ids])) for p, (columns, rows) in tables.items()]


def centralised() -> tuple[CentralModel, list[tuple[str, Any]]]:
    """The model of the joined table, and each party's bins."""
    job = load(ROOT / "examples" / "compose" / "operator" / "job.toml", JobFile).job
    asked = {key: value for key, value in job.items() if key not in ("label_holder", "feature_parties")}
    params = JobTable.model_validate(asked)
    _, ((holder, columns, labelled), *others) = blocks("train")
    parties = [(holder, columns[:-1], labelled[:, :-1]), *others]
    tables = [(name, bin_table(x, names, params.params().max_bin)) for name, names, x in parties]
    return train(tables, labelled[:, -1].astype(int), params.params()), tables


def test_the_job_ends_well_and_shows_its_metrics(finished: Answer) -> None:
    """The status of `up --exit-code-from job` is the job's, and the metrics stand in its output."""
    assert finished.status == 0, finished.text
    measures = [line for line in finished.text.splitlines() if f"{JOB}: train_" in line]
    named = {line.rpartition("train_")[2].split()[0] for line in measures}
    assert {"auc", "logloss"} <= named
    assert len(measures) == len(named)


def test_the_model_is_that_of_the_joined_table(composed: Composed, finished: Answer, tmp_path: Path) -> None:
    """Shards from three volumes are, joined, the centralised trees; thresholds and gains exactly, weights to 1e-12."""
    assert finished.status == 0, finished.text
    states = {party: composed.fetch(party, "/var/lib/treetap", tmp_path / party) for party in PARTIES}
    model, tables = centralised()
    bins = {name: binned.features for name, binned in tables}
    found = joined_model(states, JOB)
    assert len(found) == len(model.ensemble.trees) == 10
    for nodes, tree in zip(found, model.ensemble.trees, strict=True):
        assert len(nodes) == len(tree.splits) + len(tree.leaves)
        for split in tree.splits:
            cut, _ = model.entry(split)
            threshold = bins[split.owner][cut.feature].cuts[cut.bin]
            expected = ("split", split.owner, cut.feature, threshold, cut.missing_left, split.gain)
            assert nodes[split.node] == expected
        for leaf in tree.leaves:
            assert nodes[leaf.node][1] == pytest.approx(leaf.weights, abs=1e-12)
    owners = {split.owner for tree in model.ensemble.trees for split in tree.splits}
    assert owners == set(PARTIES), "a party whose columns no tree uses would make this test weaker"


def test_the_predictions_are_the_centralised_ones(composed: Composed, finished: Answer, tmp_path: Path) -> None:
    """The label holder's volume has a score for every new record, and it is the joined model's."""
    assert finished.status == 0, finished.text
    folder = composed.fetch("label-holder", "/var/lib/treetap/predictions", tmp_path)
    (path,) = folder.iterdir()
    written = pq.read_table(path)
    ids, parties = blocks("predict")
    model, tables = centralised()
    bins = dict(tables)
    scores = model.predict([(name, bins[name].encode(x)) for name, _, x in parties])
    assert sorted(written.column("id").to_pylist()) == ids
    by_id = dict(zip(written.column("id").to_pylist(), written.column("score").to_pylist(), strict=True))
    assert [by_id[each] for each in ids] == pytest.approx(scores[:, 0], abs=1e-9)


def test_feature_parties_keep_what_they_received(composed: Composed, finished: Answer, tmp_path: Path) -> None:
    """Both feature parties have a whole transcript with instance spaces in it, the label holder has none."""
    assert finished.status == 0, finished.text
    for party in PARTIES[1:]:
        folder = composed.fetch(party, "/var/lib/treetap/transcripts", tmp_path / party)
        found = summarise(folder / JOB)
        assert not found["torn"]
        assert {row["kind"] for row in found["rows"]} >= {"received"}
        assert "sent" not in {row["kind"] for row in found["rows"]}
        assert any(row["class"] == "INSTANCE_SPACE" for row in found["rows"])
    state = composed.fetch("label-holder", "/var/lib/treetap", tmp_path / "label-holder")
    assert not (state / "transcripts" / JOB).exists()


def test_each_service_mounts_its_own_and_nothing_else(serving: Composed) -> None:
    """No volume or folder of data is mounted twice; the coordinator has none, that of old authorities only `certs`."""
    for party in PARTIES:
        assert serving.volumes(party) == {f"tls-{party}", f"state-{party}"}
        assert serving.folders(party) == {f"examples/compose/{party}", f"examples/compose/data/{party}"}
    assert serving.volumes("coordinator") == {"tls-coordinator", "state-coordinator"}
    assert serving.folders("coordinator") == {"examples/compose/coordinator"}
    assert serving.volumes("job") == {"tls-operator"}
    assert [each for each in SERVERS if {"authority", "trusted"} & serving.volumes(each)] == ["certs"]


def test_two_services_share_one_network_or_none(serving: Composed) -> None:
    """A network per party with the coordinator, per pair of parties, for each one's metrics, and for the operator.

    None leads out: docker-compose 1.29 makes that of the boards, too, which no service is on.
    """
    networks = {service: set(serving.networks(service)) for service in (*SERVERS, "job")}
    for number, party in enumerate(PARTIES):
        assert networks["coordinator"] & networks[party] == {f"control-{party}"}
        assert not networks["job"] & networks[party]
        for other in PARTIES[number + 1 :]:
            assert networks[party] & networks[other] == {f"data-{party}-{other}"}
    assert networks["coordinator"] & networks["job"] == {"operator"}
    assert networks["certs"] == {"none"}
    made = serving.client.networks.list(filters={"label": f"com.docker.compose.project={serving.project}"})
    outward = {network.name.removeprefix(f"{serving.project}_") for network in made if not network.attrs["Internal"]}
    assert outward <= {"boards"} - set.union(*networks.values())
    assert len(made) - len(outward) == 11
    assert all(not serving.container(service).ports for service in SERVERS)


def test_a_party_reaches_nobody_beyond_its_networks(serving: Composed) -> None:
    """Of all addresses of the federation feature-b reaches those in its own four networks and no other."""
    own = serving.networks("feature-b")
    addresses = {
        (address, port): network in own
        for service, port in (("label-holder", 7101), ("feature-c", 7101), ("coordinator", 7100))
        for network, address in serving.networks(service).items()
    }
    assert sum(addresses.values()) == 3
    assert len(addresses) == 13
    answer = serving.python("feature-b", CONNECT.format(addresses=list(addresses)))
    assert answer.status == 0, answer.text
    assert ast.literal_eval(answer.text) == [address for address, shared in addresses.items() if shared]


def test_a_partys_metrics_are_asked_for_on_its_own_network(serving: Composed) -> None:
    """By a name that no other container knows."""
    program = """
from urllib.request import urlopen
for name in ("label-holder", "feature-b"):
    try:
        text = urlopen(f"http://{name}.watched:9464/metrics", timeout=5).read().decode()
        print(name, f'treetap_build_info{{kind="party",name="{name}"' in text)
    except OSError as failure:
        print(name, type(failure).__name__)
"""
    answer = serving.python("feature-b", program)
    assert answer.status == 0, answer.text
    assert answer.text.split() == ["label-holder", "URLError", "feature-b", "True"]


def test_the_operator_finds_the_coordinator_and_no_party(serving: Composed) -> None:
    """A name of a service with which the operator shares no network means nothing to it, and no address is reached."""
    addresses = [(address, 7101) for party in PARTIES for address in serving.networks(party).values()]
    program = f"""
import socket
try:
    print("label-holder is known", socket.getaddrinfo("label-holder", 7101))
except socket.gaierror:
    pass
{CONNECT.format(addresses=[("coordinator", 7100), *addresses])}"""
    once = ("run", "--rm", "--no-deps", "-T", "-e", "RES_OPTIONS=timeout:1 attempts:1", "--entrypoint", "python", "job")
    answer = serving.compose(*once, "-c", program)
    assert answer.status == 0, answer.text
    assert answer.text.splitlines()[-1] == "[('coordinator', 7100)]"
    assert "is known" not in answer.text


def test_a_party_reads_its_own_files_only(serving: Composed) -> None:
    """In feature-b's container lie its tables, its own certificate and key, and no other key."""
    program = """
import json, os
seen = {}
for top in ("/data", "/tls", "/authority", "/etc/treetap"):
    seen[top] = sorted(name for _, _, names in os.walk(top) for name in names)
def fails(path):
    try:
        open(path, "w").close()
    except OSError:
        return True
seen["fixed"] = all(map(fails, ["/data/x", "/tls/x", "/etc/treetap/x", "/opt/x"]))
seen["user"] = os.getuid()
print(json.dumps(seen))
"""
    seen = json.loads(serving.python("feature-b", program).text)
    assert seen == {
        "/data": ["predict.csv", "train.csv"],
        "/tls": ["ca.crt", "feature-b.crt", "feature-b.key"],
        "/authority": [],
        "/etc/treetap": ["party.toml", "policy.toml"],
        "fixed": True,
        "user": 10001,
    }


#: Prints, as JSON, a digest of the public key of each private key below a folder, and of each authority's certificate.
KEYS = """
import hashlib, json, os
from cryptography import x509
from cryptography.hazmat.primitives import serialization
DER, SPKI = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
held, signing = {}, []
digest = lambda public: hashlib.sha256(public.public_bytes(DER, SPKI)).hexdigest()
for top, folders, names in os.walk(%r):
    if top == "/":
        folders[:] = [each for each in folders if each not in ("proc", "sys", "dev", "opt", "usr")]
    for name in names:
        path = os.path.join(top, name)
        try:
            content = open(path, "rb").read() if os.path.getsize(path) < 1 << 20 else b""
            if b"PRIVATE KEY" in content and b"import" not in content:
                held[path] = digest(serialization.load_pem_private_key(content, None).public_key())
            elif name == "ca.crt":
                signing += [digest(each.public_key()) for each in x509.load_pem_x509_certificates(content)]
        except OSError:
            pass
print(json.dumps([held, signing]))
"""


def test_the_authoritys_key_is_nowhere(serving: Composed) -> None:
    """Neither in a volume of the project nor in a running container is the key that signed the certificates."""
    volumes = serving.client.volumes.list(filters={"label": f"com.docker.compose.project={serving.project}"})
    assert len(volumes) == 11
    mounts = {each.name: {"bind": f"/volumes/{each.name}", "mode": "ro"} for each in volumes}
    of_volumes = serving.client.containers.run(
        IMAGE, ["-c", KEYS % "/volumes"], entrypoint="python", user="root", volumes=mounts, remove=True
    )
    held, signing = json.loads(of_volumes)
    own = {f"{name}.key" for name in ("coordinator", "operator", *PARTIES)}
    assert {Path(path).name for path in held} == own  # what is searched for is found
    assert len(signing) == len(own) + 1  # the audit's
    assert len(set(signing)) == 1
    assert not set(signing) & set(held.values())
    for service in SERVERS:
        status, output = serving.container(service).exec_run(["python", "-c", KEYS % "/"])  # root reads no more there
        assert status == 0, output
        held, known = json.loads(output)
        assert held, service
        assert set(known) == set(signing), service
        assert not set(signing) & set(held.values()), service


def test_health_is_asked_over_mutual_tls(serving: Composed) -> None:
    """The containers' own checks pass; a party at another's address, or nobody there, is status 1 and one line."""
    for service in ("coordinator", *PARTIES):
        name = "coordinator" if service == "coordinator" else "party"
        ask = ["treetap", "health", "--config", f"/etc/treetap/{name}.toml"]
        status, output = serving.container(service).exec_run(ask)
        assert status == 0, output
    for address, says in (("feature-c:7101", "that of 'feature-c'"), ("feature-c:1", "feature-b at feature-c:1")):
        ask = ["treetap", "health", "--config", "/etc/treetap/party.toml", "--address", address]
        status, output = serving.container("feature-b").exec_run(ask)
        assert status == 1
        assert says in output.decode()
        assert output.count(b"\n") == 1


def test_a_job_that_fails_gives_its_status(serving: Composed) -> None:
    """With one party stopped the job ends with 1 and names it; a name that cannot be a job's ends with 2."""
    once = ("run", "--rm", "--no-deps", "-T")
    wrong = serving.compose(*once, "-e", "JOB=Not A Name", "job")
    assert wrong.status == 2, wrong.text
    serving.compose("stop", "--timeout", "5", "feature-c")
    failed = serving.compose(*once, "-e", "JOB=without-c", "job")
    assert failed.status == 1, failed.text
    assert "feature-c" in failed.text
    assert "Traceback" not in failed.text
