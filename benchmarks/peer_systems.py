"""One run of another system, by the Python of its own environment: `peers.py` starts this file and reads its figures.

    python benchmarks/peer_systems.py secretflow FOLDER PARTY TREES DEPTH SCHEMA
    python benchmarks/peer_systems.py psi IDS

`secretflow` is one of two processes, "alice" with the labels or "bob", in production mode over gRPC on loopback without
certificates: SGB, first trees by all columns, sketches of 32 bins. `FOLDER` has `PARTY.npz` with the party's columns
`x` (N, d), alice's with labels `y` (N,) too, and `ports.json`, party → port. `psi`: both roles of OpenMined's protocol
in one process, without a wire, each with so many ids, of which one in a thousand is common. Nothing of treetap is
imported. The last line of the output is JSON; `cpu_s` counts this process from its start.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

KEY_BITS, BINS = 2048, 32


def secretflow(folder: str, party: str, trees: str, depth: str, schema: str) -> dict[str, float]:
    """Train and predict; returns seconds of training, and the AUC on the training records."""
    import secretflow
    import spu
    from secretflow.data.ndarray import FedNdarray, PartitionWay
    from secretflow.ml.boost.sgb_v import Sgb
    from sklearn.metrics import roc_auc_score

    ports = json.loads((Path(folder) / "ports.json").read_text())
    own = np.load(Path(folder) / f"{party}.npz")
    parties = {name: {"address": f"127.0.0.1:{port}"} for name, port in ports.items()}
    secretflow.init(
        address="local",
        cluster_config={"parties": parties, "self_party": party},
        cross_silo_comm_backend="grpc",
        ray_mode=False,
        logging_level="error",
    )
    alice, bob = secretflow.PYU("alice"), secretflow.PYU("bob")
    scheme = {"schema": schema, "key_pair": {"generate": {"bit_size": KEY_BITS}}}
    encoding = {"cleartext_type": "DT_I32", "encoder": "IntegerEncoder", "encoder_args": {"scale": 1}}
    people = {"sk_keeper": {"party": "alice"}, "evaluators": [{"party": "bob"}]}
    heu = secretflow.HEU({**people, "mode": "PHEU", "he_parameters": scheme, "encoding": encoding}, spu.spu_pb2.FM128)
    columns = {each: each(lambda: own["x"])() for each in (alice, bob)}  # each party evaluates its own
    table = FedNdarray(partitions=columns, partition_way=PartitionWay.VERTICAL)
    labels = FedNdarray(partitions={alice: alice(lambda: own["y"])()}, partition_way=PartitionWay.VERTICAL)
    params = {
        "num_boost_round": int(trees),
        "max_depth": int(depth),
        "sketch_eps": 1 / BINS,
        "objective": "logistic",
        "reg_lambda": 1.0,
        "gamma": 0.0,
        "learning_rate": 0.3,
        "base_score": 0.0,
        "first_tree_with_label_holder_feature": False,
        "enable_early_stop": False,
    }
    begun = time.monotonic()
    model = Sgb(heu).train(params, table, labels)
    margins = np.asarray(secretflow.reveal(model.predict(table))).ravel()
    seconds = time.monotonic() - begun
    return {"wall_s": seconds, "auc": roc_auc_score(own["y"], margins) if party == "alice" else 0.0}


def psi(ids: str) -> dict[str, float]:
    """The client's intersection; returns its seconds."""
    import private_set_intersection.python as openmined

    common = max(30, int(ids) // 1000)
    shared = [f"common-{i:08d}" for i in range(common)]
    asked, held = ([*shared, *(f"{place}-{i:08d}" for i in range(int(ids) - common))] for place in "ab")
    begun = time.monotonic()
    client, server = openmined.client.CreateWithNewKey(True), openmined.server.CreateWithNewKey(True)
    setup = server.CreateSetupMessage(0.0, len(asked), held, openmined.DataStructure.RAW)
    answer = server.ProcessRequest(client.CreateRequest(asked))
    found = client.GetIntersection(setup, answer)
    if len(found) != common:
        raise SystemExit(f"psi: {len(found)} common ids, {common} are")
    return {"wall_s": time.monotonic() - begun}


if __name__ == "__main__":
    result = secretflow(*sys.argv[2:]) if sys.argv[1] == "secretflow" else psi(*sys.argv[2:])
    print(json.dumps({**result, "cpu_s": time.process_time()}), flush=True)
    os._exit(0)  # SecretFlow's threads would keep the process
