"""The image, the compose file and the Kubernetes tree name only what our code has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bookie.admin.server import AdminServer as BookieAdmin
from broker.admin.server import AdminServer as BrokerAdmin
from client.node.process import STOP_S_MAX
from ops.cli.main import COMMANDS
from tests.unit.ops.deploy.files import DEPLOY, PROBES, ROOT, documents, settings

KUBERNETES = DEPLOY / "kubernetes"
Document = dict[str, Any]


def test_probes_exist() -> None:
    for server, paths in ((BrokerAdmin, PROBES["broker"]), (BookieAdmin, PROBES["bookie"])):
        module = Path(__import__(server.__module__, fromlist=["x"]).__file__ or "").read_text()
        for path in paths:
            tail = "/is_ready" if path.endswith("is_ready") else path
            assert re.search(rf'add_get\(f?"[^"]*{tail}"', module), path


# --- the image


def test_the_image_copies_what_exists_and_runs_as_nobody_special() -> None:
    lines = (DEPLOY / "docker" / "Dockerfile").read_text().splitlines()
    words = [line.split() for line in lines if line and not line.startswith("#")]
    for first, *rest in words:
        if first == "COPY" and not rest[0].startswith("--"):
            assert all((ROOT / source).exists() for source in rest[:-1])
        if first == "FROM":
            assert re.fullmatch(r"[a-z]+:[0-9][\w.-]*", rest[0]), "a version, not latest"
    assert ["USER", "10001"] in words
    assert words[-1][0] == "CMD"
    packages = {rest[0] for first, *rest in words if first == "COPY" and len(rest) == 2}
    assert {"broker", "bookie", "client", "ops"} <= packages


# --- compose


def services() -> dict[str, Document]:
    (compose,) = documents(DEPLOY / "docker" / "compose.yaml")
    found: dict[str, Document] = compose["services"]
    return found


def test_compose_services_have_settings_that_load() -> None:
    nodes: dict[str, list[Any]] = {"broker": [], "bookie": []}
    for name, service in services().items():
        command = service.get("command", [])
        if command[:2] != ["python", "-m"]:
            continue
        environ = {key: str(value) for key, value in service["environment"].items()}
        found = settings(command[2], environ)
        nodes[command[2]].append(found)
        asked = service["healthcheck"]["test"][-1]
        match = re.search(r"127\.0\.0\.1:(\d+)(/[\w/]+)", asked)
        assert match is not None
        assert int(match[1]) == found.admin_port
        assert match[2] in PROBES[command[2]]
        assert int(service["stop_grace_period"].removesuffix("s")) > STOP_S_MAX
        if command[2] == "broker":
            ports = [port.rpartition(":")[2] for port in service["ports"]]
            assert ports == [str(found.port), str(found.admin_port)]
            assert found.admin_advertised_host == name
        else:
            assert found.client_host() == name
            assert str(found.data_dir).startswith(service["volumes"][0].rpartition(":")[2])
    assert len(nodes["bookie"]) >= nodes["broker"][0].default_replication_factor
    assert len({broker.node_id for broker in nodes["broker"]}) == len(nodes["broker"]) == 2


def test_compose_refers_to_what_it_has() -> None:
    (compose,) = documents(DEPLOY / "docker" / "compose.yaml")
    for service in compose["services"].values():
        for needed, how in service.get("depends_on", {}).items():
            assert needed in compose["services"]
            if how["condition"] == "service_healthy":
                assert "healthcheck" in compose["services"][needed]
        for volume in service.get("volumes", []):
            assert volume.partition(":")[0] in compose["volumes"]
    init = compose["services"]["init"]["command"]
    assert init[0] == "quire" and init[1] in COMMANDS


# --- Kubernetes


def everything() -> list[Document]:
    """Return every object of the base tree, as it stands in the files."""
    folders = ("base", "bookies", "brokers")
    files = [path for folder in folders for path in sorted((KUBERNETES / folder).glob("*.yaml"))]
    return [one for path in files if path.name != "kustomization.yaml" for one in documents(path)]


def of_kind(kind: str) -> list[Document]:
    return [one for one in everything() if one["kind"] == kind]


def containers() -> Iterator[tuple[Document, Document, str]]:
    """Yield (stateful set, container, program) of our own containers."""
    for each in of_kind("StatefulSet"):
        for container in each["spec"]["template"]["spec"]["containers"]:
            match = re.search(r"python,? -m,? (\w+)", " ".join(container.get("command", [])))
            if match is not None:
                yield each, container, match[1]


def environ_of(container: Document) -> dict[str, str]:
    """Return a container's variables; references get values of the right kind."""
    known = {"POD_NAME": "quire-x-0", "POD_NAMESPACE": "quire"}
    found: dict[str, str] = {}
    for row in container["env"]:
        value = row.get("value", known.get(row["name"], "zookeeper-0.zookeeper:2181"))
        found[row["name"]] = re.sub(r"\$\((\w+)\)", lambda match: found[match[1]], value)
    return found


def test_containers_have_settings_ports_and_probes_that_exist() -> None:
    programs = []
    for _, container, program in containers():
        programs.append(program)
        found = settings(program, environ_of(container))
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports["admin"] == found.admin_port
        assert ports["kafka" if program == "broker" else "bookie"] == found.port
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container[probe]["httpGet"]
            assert asked["path"] in PROBES[program]
            assert asked["port"] in ports
        ready = container["readinessProbe"]["httpGet"]["path"]
        assert ready in ("/readyz", "/api/v1/bookie/is_ready")
        assert found.log_format == "json"
    assert sorted(programs) == ["bookie", "broker"]


def test_stateful_sets_are_spread_and_have_time_to_stop() -> None:
    for each in of_kind("StatefulSet"):
        spec = each["spec"]
        pod = spec["template"]["spec"]
        keys = [one["topologyKey"] for one in pod["topologySpreadConstraints"]]
        assert keys == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
        labels = spec["template"]["metadata"]["labels"]
        for one in pod["topologySpreadConstraints"]:
            assert one["labelSelector"]["matchLabels"].items() <= labels.items()
        assert pod["terminationGracePeriodSeconds"] > STOP_S_MAX
        assert spec["selector"]["matchLabels"].items() <= labels.items()
        assert spec["replicas"] == 3
        assert pod["securityContext"]["runAsNonRoot"] is True
        names = {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])}
        mounts = [m["name"] for c in pod["containers"] for m in c.get("volumeMounts", [])]
        assert set(mounts) <= names
    for each, _, _ in containers():
        # Links of services would be variables like QUIRE_BROKER_PORT, which we would read.
        assert each["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_services_and_budgets_select_pods_that_there_are() -> None:
    pods = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for each in of_kind("StatefulSet")
    }
    sets = {each["metadata"]["name"]: each["spec"] for each in of_kind("StatefulSet")}
    for budget in of_kind("PodDisruptionBudget"):
        assert budget["spec"]["maxUnavailable"] == 1
        wanted = budget["spec"]["selector"]["matchLabels"]
        assert any(wanted.items() <= labels.items() for labels in pods.values())
    assert {one["metadata"]["name"] for one in of_kind("PodDisruptionBudget")} == set(pods)
    headless = {
        one["metadata"]["name"]: one["spec"]
        for one in of_kind("Service")
        if one["spec"].get("clusterIP") == "None"
    }
    assert {spec["serviceName"] for spec in sets.values()} == set(headless)
    for service in of_kind("Service"):
        chosen = [
            name
            for name, labels in pods.items()
            if service["spec"]["selector"].items() <= labels.items()
        ]
        assert len(chosen) == 1
        ports = {
            port["name"]
            for container in sets[chosen[0]]["template"]["spec"]["containers"]
            for port in container["ports"]
        }
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports


TREES = (KUBERNETES, KUBERNETES / "three-zones")


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree.name)
def test_every_file_of_a_tree_is_there(tree: Path) -> None:
    waiting = [tree]
    while waiting:
        folder = waiting.pop()
        (kustomization,) = documents(folder / "kustomization.yaml")
        for name in kustomization["resources"]:
            path = folder / name
            assert path.exists(), path
            if path.is_dir():
                waiting.append(path)


def test_zones_are_built_alike_and_differ_where_they_must() -> None:
    """The patches as text; `tests/integration/test_foreign_tools.py` asks kubectl."""
    zones = sorted((KUBERNETES / "three-zones").glob("zone-*"))
    bases = []
    for zone in zones:
        (kustomization,) = documents(zone / "kustomization.yaml")
        patches = [
            op for patch in kustomization["patches"] for op in yaml.safe_load(patch["patch"])
        ]
        values = [op["value"] for op in patches]
        assert {"name": "QUIRE_BOOKIE_RACK", "value": zone.name} in values
        assert {"name": "QUIRE_BROKER_RACK", "value": zone.name} in values
        assert {"topology.kubernetes.io/zone": zone.name} in values
        bases.append(next(op["value"] for op in patches if op["path"].endswith("/env/0/value")))
    assert len(set(bases)) == len(zones) == 3
