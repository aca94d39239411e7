"""A party's configuration file: everything that is wrong is told at once, and nothing is guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from treetap.errors import ConfigError, DataError
from treetap.ops.doctor.configuration import _folders
from treetap.party.config import PartyConfig, check_folders, read
from treetap.party.policy import Policy
from treetap.party.serving.registry import OwnPaths
from treetap.party.setup.steps import table_config

GOOD = """
name = "feature-b"
listen = "0.0.0.0:7002"
state = "state"
policy = "policy.toml"
workers = 2
data = "data"
tls = {ca = "certs/ca.crt", certificate = "certs/feature-b.crt", key = "/etc/treetap/feature-b.key"}

[tables.train]
path = "data/train.csv"
id = "record"
columns = ["age", "income"]

[tables.predict]
path = "/srv/predict.parquet"
id = "record"
columns = ["age", "income"]
label = "y"
"""
LEAST = 'name = "a"\nstate = "s"\ninsecure = true\n'
_CLIENTS = 'clients = ["app"]\nlisten = "h:1"'


def _read(folder: Path, text: str, policy: str = "") -> PartyConfig:
    (folder / "policy.toml").write_text(policy, encoding="utf-8")
    path = folder / "party.toml"
    path.write_text(text, encoding="utf-8")
    return read(path)


def _faults(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        _read(folder, text)
    first, *faults = str(caught.value).splitlines()
    assert first == f"{folder / 'party.toml'}: {len(faults)} wrong:"
    return [fault.strip() for fault in faults]


def test_a_whole_file(tmp_path: Path) -> None:
    """Every key has its place, and relative paths are relative to the file, wherever it is read from."""
    config = _read(tmp_path, GOOD, '[people]\nrecord = "both"')
    assert (config.name, config.listen, config.workers) == ("feature-b", "0.0.0.0:7002", 2)
    assert (config.policy.people.record, config.policy.people.coordinators) == ("both", ["coordinator"])
    assert config.state == tmp_path / "state"
    assert config.data == tmp_path / "data"
    assert config.tls.certificate == tmp_path / "certs" / "feature-b.crt"
    assert config.tls.key == Path("/etc/treetap/feature-b.key")
    assert config.tables["train"].path == tmp_path / "data" / "train.csv"
    assert config.tables["predict"].path == Path("/srv/predict.parquet")
    assert config.tables["train"].label is None
    assert config.tables["predict"].label == "y"


def test_the_least_file(tmp_path: Path) -> None:
    """Name, state and certificates are enough; nothing is recorded unless the file says so."""
    config = _read(tmp_path, 'name = "a"\nstate = "s"\ntls = {ca = "a", certificate = "b", key = "c"}\n')
    assert (config.listen, config.workers, config.tables) == ("127.0.0.1:0", None, {})
    assert (config.policy, config.policy.people.record) == (Policy(), "off")


def test_workers_on_a_cluster(tmp_path: Path) -> None:
    """With Ray the file says how many workers the cluster has, and beside that how many processes there are here."""
    table = '[cluster]\naddress = "10.0.0.1:6379"\nworkers = 300\ncpus = 2\nresources = {treetap = 1}\n'
    config = _read(tmp_path, LEAST + 'engine = "ray"\nworkers = 3\n' + table)
    assert config.cluster is not None
    assert (config.cluster.workers, config.threads) == (300, 3)
    assert (config.cluster.address, config.cluster.cpus) == ("10.0.0.1:6379", 2.0)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        # an address is a host and a port, both there, the port one that exists
        *(
            (GOOD.replace("0.0.0.0:7002", address), "listen: an address is host:port")
            for address in ("", "7001", ":7001", "host:", "host:port", "host:65536", "host:-1")
        ),
        # a name is also a certificate's name and a folder, so that it cannot be just anything
        *(
            (GOOD.replace('"feature-b"', f'"{name}"'), "name: ")
            for name in ("", "-a", "a-", "a_b", "a.b", "A", "ä", "a" * 64, "a/../b", "a\\n")
        ),
        # id, label and features are different columns, each named once
        (
            GOOD.replace('["age", "income"]\nlabel', '["age", "record"]\nlabel'),
            "column 'record' is the id or the label",
        ),
        (GOOD.replace('["age", "income"]\nlabel', '["age", "y"]\nlabel'), "column 'y' is the id or the label"),
        (GOOD.replace('["age", "income"]\nlabel', '["age", "age"]\nlabel'), "columns names 'age' twice"),
        (GOOD.replace('label = "y"', 'label = "record"'), "column 'record' cannot be both the id and the label"),
        # whom a party answers, and where, is said whole or not at all
        *(
            (f"{GOOD}\n[serve]\n{table}\n", fault)
            for table, fault in [
                ('clients = ["app"]', "serve.listen: is missing"),
                ('clients = []\nlisten = "h:1"', "serve.clients: List should have at least 1 item"),
                ('listen = "h:1"', "serve.clients: is missing"),
                (f'{_CLIENTS}\ngateway = "app"', "serve: gateway and clients both name app"),
                (
                    'clients = "app"\nlisten = "h:1"',
                    """serve.clients: a list of names, such as ["app"] (it is 'app')""",
                ),
                (f"{_CLIENTS}\nmost_ids = 9\nqueue = 8", "serve: most_ids = 9 exceeds queue = 8"),
                (f"{_CLIENTS}\nwindow = 8", "serve.window: unknown key"),
                # two servers at one port: that is found when the file is read, and both keys are named
                *(
                    (
                        f'clients = ["app"]\nlisten = "{address}"',
                        f"the file: listen = '0.0.0.0:7002' and serve.listen = '{address}' want the same port: "
                        "give each its own",
                    )
                    for address in ("0.0.0.0:7002", "127.0.0.1:7002")
                ),
            ]
        ),
        # no file goes without certificates by leaving something out, none has both
        ('name = "bank"\nstate = "s"\n', "[tls] is missing"),
        (f'{LEAST}tls = {{ca = "a", certificate = "b", key = "c"}}\n', "exclude each other"),
        # `insecure = true` holds for the places where clients ask, and metrics, too
        (
            f'{LEAST}[serve]\nclients = ["app"]\nlisten = "0.0.0.0:8443"\n',
            "insecure = true is for loopback only, not for serve.listen 0.0.0.0:8443",
        ),
        *(
            (f'{LEAST}metrics = "{address}"\n', "insecure = true is for loopback only, not for metrics")
            for address in ("0.0.0.0:9464", "10.0.0.5:9464", "[::]:9464")
        ),
        # kinds of receivers, of the party itself and of its clients: a rule for the kind would be one for the process
        *(
            (text, f"'{kind}' is no name for a process: in policies it means a kind of receivers")
            for kind in ("parties", "clients", "coordinators")
            for text in (
                f'{GOOD}\n[serve]\nclients = ["{kind}"]\nlisten = "127.0.0.1:0"\n',
                GOOD.replace('name = "feature-b"', f'name = "{kind}"'),
            )
        ),
        # keys of a cluster without one, and a cluster without its number of workers
        *(
            (LEAST + lines, fault)
            for lines, fault in [
                ('engine = "ray"', 'engine = "ray" needs [cluster] with workers = N'),
                ('engine = "ray"\nworkers = 48\n[cluster]\naddress = "auto"', "cluster.workers: "),
                ('engine = "ray"\n[cluster]\nworkers = 1025', "cluster.workers: "),
                ("workers = 257", "workers: "),
                ("[cluster]\nworkers = 1", '[cluster] is for engine = "ray"'),
                ('engine = "dask"', "engine: "),
                ('engine = "ray"\n[cluster]\naddress = "10.0.0.1"', "cluster.address: an address is host:port"),
                ('engine = "ray"\n[cluster]\naddress = "ray://10.0.0.1:10001"', "write the head's HOST:PORT"),
                (
                    'engine = "ray"\n[cluster]\nresources = {CPU = 2}',
                    "cluster.resources: CPU is no custom resource: cluster.cpus reserves it",
                ),
            ]
        ),
    ],
)
def test_a_fault_is_told_with_its_field(text: str, fault: str, tmp_path: Path) -> None:
    """Each is one of the faults of its file, with the remedy where there is one."""
    assert any(fault in each for each in _faults(tmp_path, text))


def test_a_key_at_the_end_of_a_file_is_of_its_last_table(tmp_path: Path) -> None:
    """Whoever adds a key of the whole file below a table is told where it belongs; of other unknown keys nothing."""
    text = 'name = "a"\nstate = "s"\n[tls]\nca = "a"\ncertificate = "b"\nkey = "c"\npolicy = "p.toml"\npem = "x"\n'
    misplaced, unknown = sorted(_faults(tmp_path, text), reverse=True)
    assert misplaced == "tls.policy: unknown key; it is a key of the whole file: put it above the first [table]"
    assert unknown == "tls.pem: unknown key"


def test_all_faults_at_once(tmp_path: Path) -> None:
    """One reading names every wrong field: unknown, missing, of the wrong type, out of range, or against another."""
    text = """
name = "Feature B"
listen = "nowhere"
Listen = "127.0.0.1:1"
policy = 7
workers = 0
record = "both"
silence_s = 4.9
tls = {ca = "ca.crt", certificate = 5, pem = "x"}

[tables.train]
path = "train.csv"
columns = ["age", "age"]

[tables.predict]
path = "predict.csv"
id = "record"
columns = ["age", "record"]
"""
    faults = _faults(tmp_path, text)
    named = [
        *("Listen", "listen", "name", "policy", "record", "silence_s", "state"),
        *("tables.predict", "tables.train.id", "tls.certificate", "tls.key", "tls.pem", "workers"),
    ]
    assert sorted(fault.partition(": ")[0] for fault in faults) == named
    by_field = dict(fault.split(": ", 1) for fault in faults)
    assert by_field["Listen"] == "unknown key; did you mean 'listen'?"
    assert by_field["tls.pem"] == by_field["record"] == "unknown key"
    assert by_field["state"] == by_field["tables.train.id"] == by_field["tls.key"] == "is missing"
    assert "'nowhere'" in by_field["listen"]
    assert "lower-case" in by_field["name"]
    assert "column 'record' is the id or the label" in by_field["tables.predict"]
    assert "(it is 0)" in by_field["workers"]
    assert "(it is 4.9)" in by_field["silence_s"]


@pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:7001", "party.example.org:65535", "[::1]:7001"])
def test_good_addresses(address: str, tmp_path: Path) -> None:
    """Names, IPv4 and IPv6, and port 0 for a free one, of which several are different ones."""
    assert _read(tmp_path, GOOD.replace("0.0.0.0:7002", address)).listen == address
    free = '[serve]\nclients = ["app"]\nlisten = "127.0.0.1:0"\n'
    assert _read(tmp_path, GOOD.replace("0.0.0.0:7002", address) + free).serve is not None


def test_files_that_are_no_configuration(tmp_path: Path) -> None:
    """No file, a folder, other bytes and broken TOML are each told with the file's name, broken TOML with its place."""
    with pytest.raises(ConfigError, match=r"absent.toml: there is no such file"):
        read(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        read(tmp_path)
    (tmp_path / "party.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(ConfigError, match="is not UTF-8"):
        read(tmp_path / "party.toml")
    with pytest.raises(ConfigError, match=r"party.toml: is not TOML: .*line 2"):
        _read(tmp_path, 'name = "a"\nstate = \n')


@pytest.mark.parametrize(
    ("policy", "silent"),
    [
        ("", []),
        ('[emits]\nPREDICTION = ["parties", "batch"]', ["app"]),
        ('[emits]\nPREDICTION = ["parties"]', ["app", "batch"]),
        ('[emits]\nCONTROL = ["parties"]', ["app", "batch"]),
    ],
)
def test_clients_whom_the_policy_forbids_to_answer(policy: str, silent: list[str], tmp_path: Path) -> None:
    """They are known before anybody asks; where nobody is left, serving is refused."""
    config = _read(tmp_path, GOOD + '[serve]\nclients = ["app", "batch"]\nlisten = "127.0.0.1:0"\n', policy)
    assert config.unanswered() == silent
    if len(silent) < 2:
        config.check_clients()
        return
    with pytest.raises(
        ConfigError, match=r"feature-b's policy sends PREDICTION to none of serve.clients \(app, batch\)"
    ):
        config.check_clients()


def test_a_client_is_never_a_party(tmp_path: Path) -> None:
    """A name under `[serve]` that the policy takes for a party's is refused at the start, with the remedy."""
    serve = '[serve]\nclients = ["app", "bank"]\nlisten = "127.0.0.1:0"\n'
    for named in ("label_holders", "peers"):
        with pytest.raises(ConfigError, match=r"serve.clients and feature-b's policy both name bank: .* another name"):
            _read(tmp_path, GOOD + serve, f'[people]\n{named} = ["bank", "shop"]')


def test_a_folder_of_tables_is_read_when_a_job_names_one(tmp_path: Path) -> None:
    """A table is there once its file is, with paths from the folder; one of the party's own file goes before it."""
    config = _read(tmp_path, GOOD.replace('data = "data"', 'tables_folder = "more"'))
    (tmp_path / "more").mkdir()
    assert (config.table("new"), config.table("train").path) == (None, tmp_path / "data" / "train.csv")
    for name in ("new", "train"):
        described = f'path = "{name}.parquet"\nid = "record"\ncolumns = ["age"]\n'
        (tmp_path / "more" / f"{name}.toml").write_text(described, encoding="utf-8")
    assert config.table("new").path == tmp_path / "more" / "new.parquet"
    assert config.table("train").path == tmp_path / "data" / "train.csv"
    assert config.table_names() == ["train", "predict", "new"]
    assert config.table("../more/new") is None
    (tmp_path / "more" / "new.toml").write_text('path = "a.csv"\nid = "record"\ncolums = []\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"more/new\.toml: 1 wrong:\n  colums: unknown key"):
        config.table("new")


@pytest.mark.parametrize("path", ["/etc/passwd", "../secret.csv", "a/../../secret.csv"])
def test_a_folder_of_tables_has_its_data_in_it(path: str, tmp_path: Path) -> None:
    """Its place in errors that leave the party is hidden by the folder's."""
    config = _read(tmp_path, GOOD.replace('data = "data"', 'tables_folder = "more"'))
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "new.toml").write_text(f'path = "{path}"\nid = "record"\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"new\.toml: path: must lie in this folder"):
        config.table("new")
    hidden = OwnPaths(config)(f"{tmp_path}/more/new.parquet: has no column 'a'")
    assert hidden == "tables/new.parquet: has no column 'a'"


_SOURCES = ["$CLINIC_DB", "sqlite:", "s3://bank/tables/", "s3://bank/one.csv", "https://minio:9000"]


@pytest.mark.parametrize(
    ("described", "says", "permitted"),
    [
        *(
            (described, rf"more/new\.toml: {named}: only tables_folder_sources of the party's file", False)
            for described, named in [
                ('uri = "$CLINIC_DB"', "uri"),
                ('uri = "sqlite:clinic.db"', "uri"),
                ('path = "s3://bank/tables/a.parquet"', "path"),
                ('path = ["a.csv", "s3://bank/one.csv"]', "path"),
                ('endpoint_override = "https://minio:9000"\npath = "s3://bank/tables/a.csv"', "endpoint_override"),
            ]
        ),
        # what the party permits is no more than it says: a beginning of paths ends with a slash
        *(
            (described, says, True)
            for described, says in [
                ('uri = "$OTHER_DB"', r"permits '\$OTHER_DB'"),
                ('uri = "sqlite:../clinic.db"', "must lie in this folder"),
                ('uri = "sqlite:/srv/clinic.db"', "must lie in this folder"),
                ('path = "s3://bank/tables-of-others/a.csv"', "permits 's3://bank/tables-of"),
                ('path = "s3://bank/one.csv.gz"', "permits 's3://bank/one.csv.gz'"),
                ('path = "s3://bank/tables/../a.csv"', "permits 's3://bank/tables/../a.csv'"),
                ('path = ["s3://bank/tables/a.csv", "s3://other/b.csv"]', "permits 's3://other/b.csv'"),
                (
                    'endpoint_override = "https://minio:9001"\npath = "s3://bank/tables/a.csv"',
                    "permits 'https://minio:9001'",
                ),
            ]
        ),
    ],
)
def test_a_table_of_the_folder_names_nothing_else(described: str, says: str, permitted: bool, tmp_path: Path) -> None:
    """Databases, variables of the environment and stores are for the party's own file to permit."""
    (tmp_path / "more").mkdir()
    table = "table = 'people'\n" if "uri" in described else ""
    (tmp_path / "more" / "new.toml").write_text(f'{described}\n{table}id = "record"\n', encoding="utf-8")
    plain = GOOD.replace('data = "data"', 'tables_folder = "more"')
    permits = plain.replace('"more"', f'"more"\ntables_folder_sources = {_SOURCES}')
    with pytest.raises(ConfigError, match=says):
        _read(tmp_path, permits if permitted else plain).table("new")
    if not permitted:
        assert _read(tmp_path, permits).table("new")


def test_a_description_that_leads_out_of_the_folder(tmp_path: Path) -> None:
    """Its faults would tell of another file; links of a ConfigMap stay in the folder."""
    config = _read(tmp_path, GOOD.replace('data = "data"', 'tables_folder = "more"'))
    (tmp_path / "more" / "..2026").mkdir(parents=True)
    for place in ("more/..2026", "."):
        (tmp_path / place / "new.toml").write_text('path = "a.csv"\nid = "record"\n', encoding="utf-8")
    (tmp_path / "more" / "new.toml").symlink_to("..2026/new.toml")
    (tmp_path / "more" / "other.toml").symlink_to(tmp_path / "new.toml")
    found = config.table("new")
    assert found is not None
    assert (found.path, found.within) == (tmp_path / "more" / "a.csv", tmp_path / "more")
    with pytest.raises(ConfigError, match=r"other\.toml: leads out of this folder"):
        config.table("other")


@pytest.mark.parametrize("name", ["train_2024", "Train", "-a", "a.b", "ä"])
def test_tables_are_listed_and_found_by_one_rule(name: str, tmp_path: Path) -> None:
    """A file whose name is none of a table is not listed, its name is refused by the rule, and `doctor` names it."""
    config = _read(tmp_path, GOOD.replace('data = "data"', 'tables_folder = "more"'))
    (tmp_path / "more").mkdir()
    (tmp_path / "data").mkdir()
    config = config.model_copy(update={"tables": {"train": config.tables["train"]}, "data": None})
    (tmp_path / "more" / f"{name}.toml").write_text('path = "a.csv"\nid = "record"\n', encoding="utf-8")
    assert config.table_names() == ["train"]
    with pytest.raises(DataError, match=rf"^'{name}' is no name of a table: a name has lower-case letters"):
        table_config(config, name)
    (finding,) = _folders(config)
    assert (finding.level, finding.message.partition(" ")[0]) == ("warning", f"{name}.toml")
    with pytest.raises(ConfigError, match=r"tables\..*: a name has lower-case letters"):
        _read(tmp_path, f'{GOOD}\n[tables."{name}"]\npath = "a.csv"\nid = "record"\n')


def test_relative_paths_start_beside_the_file_that_was_named(tmp_path: Path) -> None:
    """Not beside the one that it links to, as in a mounted ConfigMap; and the mark of some editors is passed over."""
    (tmp_path / "..data").mkdir()
    (tmp_path / "named").mkdir()
    target = tmp_path / "..data" / "party.toml"
    target.write_text(GOOD, encoding="utf-8-sig")
    (tmp_path / "named" / "party.toml").symlink_to(target)
    (tmp_path / "named" / "policy.toml").write_text("", encoding="utf-8-sig")
    config = read(tmp_path / "named" / "party.toml")
    assert config.state == tmp_path / "named" / "state"
    assert config.table("train").path.parent == tmp_path / "named" / "data"


def test_a_file_in_the_code_of_windows(tmp_path: Path) -> None:
    """UTF-16 is named as such, with what to do."""
    (tmp_path / "party.toml").write_bytes(GOOD.encode("utf-16"))
    with pytest.raises(ConfigError, match=r"is UTF-16, as PowerShell writes, not UTF-8 text .*: save it as UTF-8"):
        read(tmp_path / "party.toml")


def test_a_folder_of_tables_that_is_not_there(tmp_path: Path) -> None:
    """As a file system that was not mounted: found at the start."""
    with pytest.raises(ConfigError, match=r"tables_folder: .*/more: there is no such folder"):
        check_folders(_read(tmp_path, GOOD.replace('data = "data"', 'tables_folder = "more"')))
