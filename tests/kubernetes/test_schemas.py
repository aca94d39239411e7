"""Every rendered object is one that Kubernetes accepts, field by field, in the oldest and the newest version meant."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import jsonschema
import pytest
import yaml

from tests.kubernetes.manifests import FOLDER, Manifests, Object, pods_of

pytestmark = [pytest.mark.second_tier, pytest.mark.xdist_group("kubernetes")]
#: 1.29 is the first in which containers may run beside the others from before their start, as Ray's node does.
VERSIONS = ("1.29", "1.33", "1.37")
#: The kinds in the manifests; another one needs a thought about who may apply it.
KINDS = {
    *("Namespace", "ServiceAccount", "ConfigMap", "Secret", "Service", "PersistentVolumeClaim", "StatefulSet"),
    *("PodDisruptionBudget", "NetworkPolicy", "RayCluster"),
}


@pytest.fixture(scope="module", autouse=True)
def _schemas_read_once() -> Any:
    """Schemas are files of a megabyte, which the package reads for every object."""
    from kubernetes_validate import utils

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "schema_contents", cache(utils.schema_contents))
        yield


def check(each: Object, version: str) -> None:
    """Raise `jsonschema.ValidationError` unless a version of Kubernetes has the object, with no field beside its own.

    A RayCluster is checked by the excerpt of KubeRay's definition, and its pod templates as pods of Kubernetes.
    """
    from kubernetes_validate import utils

    if each["kind"] != "RayCluster":
        utils.validate(each, version, strict=True)
        return
    schema = yaml.safe_load((FOLDER / "kuberay" / "raycluster.v1.yaml").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(each)
    for pod in pods_of(each):
        metadata = {"name": "pod", **pod.template["metadata"]}
        utils.validate(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod.spec}, version, strict=True
        )


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid(manifests: Manifests, version: str) -> None:
    """Strictly, by the schemas of that version: an unknown field is an error, not a field without effect."""
    objects = [*manifests.distinct(), yaml.safe_load((FOLDER / "loader.yaml").read_text(encoding="utf-8"))]
    assert {each["kind"] for each in objects} == KINDS | {"Pod"}
    for each in objects:
        check(each, version)


def altered(manifests: Manifests, organisation: str, kind: str, name: str, path: str, value: object) -> Object:
    """A copy of an object with another value at a path of keys and numbers."""
    found = copy.deepcopy(manifests.one(organisation, kind, name))
    *way, last = [int(word) if word.isdigit() else word for word in path.split(".")]
    place: Any = found
    for word in way:
        place = place[word]
    place[last] = value
    return found


POD = "template.spec.containers.0"
FAULTS = [
    ("StatefulSet", "party", "spec.replica", 1),
    ("StatefulSet", "party", f"spec.{POD}.securityContext.readOnlyRootFileSystem", True),
    ("StatefulSet", "party", f"spec.{POD}.resources.limits.memory", ["8Gi"]),
    ("NetworkPolicy", "peers", "spec.ingres", []),
    ("NetworkPolicy", "peers", "spec.ingress.0.ports.0.port", [7101]),
    ("PodDisruptionBudget", "ray", "spec.minAvailable", [3]),
    ("RayCluster", "ray", "spec.headGroup", {}),
    ("RayCluster", "ray", "spec.headGroupSpec.rayStartParams.num-cpus", 0),
    ("RayCluster", "ray", "spec.workerGroupSpecs.0.replicas", "2"),
    ("RayCluster", "ray", "spec.workerGroupSpecs.0.cpus", 4),
    ("RayCluster", "ray", f"spec.headGroupSpec.{POD}.securityContext.capability", {}),
    ("RayCluster", "ray", "spec.headGroupSpec.template.metadata.labels.x", 1),
]


@pytest.mark.parametrize(("kind", "name", "path", "value"), FAULTS, ids=[f"{f[0]}-{f[2]}" for f in FAULTS])
def test_a_field_that_does_not_exist_or_has_another_type_is_refused(
    manifests: Manifests, kind: str, name: str, path: str, value: object
) -> None:
    """The check finds misspelt fields and wrong types, at the top, within pods, and in what is KubeRay's."""
    with pytest.raises(jsonschema.ValidationError):
        check(altered(manifests, "telco", kind, name, path, value), VERSIONS[-1])


@pytest.mark.parametrize("field", ["groupName", "minReplicas", "maxReplicas", "template"])
def test_a_missing_field_of_a_group_is_refused(manifests: Manifests, field: str) -> None:
    """KubeRay's definition requires these of every group of workers."""
    cluster = copy.deepcopy(manifests.one("telco", "RayCluster", "ray"))
    del cluster["spec"]["workerGroupSpecs"][0][field]
    with pytest.raises(jsonschema.ValidationError, match=f"'{field}' is a required property"):
        check(cluster, VERSIONS[-1])
