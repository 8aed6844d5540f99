"""Where would a pod go, and whom would it evict? Nothing is created: the API server admits the pod in a dry run, and
the scheduler judges each node.

  minikube-py what-if pod.yaml"""

from __future__ import annotations

import argparse
import json
from typing import Any

from minikube_py.cli import input_files
from minikube_py.cli.explain_pod import add_limit, told
from minikube_py.cli.index import Api, add_access
from minikube_py.env import SystemClock, read_file
from minikube_py.errors import ASK_AGAIN, InvalidRequest

Json = dict[str, Any]
READ_LIMIT_S = 15.0
"""How long the scheduler may take to read what no pod needed before."""
PAUSE_S = 0.1


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=input_files.file, metavar="POD.yaml", help="a Pod, YAML or JSON")
    namespace_help = "its namespace, if the file has none (default: default)"
    parser.add_argument("-n", "--namespace", default="default", metavar="NS", help=namespace_help)
    add_limit(parser)
    add_access(parser)


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.api import yaml_text
    from minikube_py.cli.running import run_interruptible

    with input_files.wrong_value("POD.yaml"):
        try:
            pod, *more = yaml_text.documents(read_file(arguments.file)) or [None]
        except yaml_text.YamlError as error:
            raise InvalidRequest(f"{arguments.file}: {error}") from None
        if more or not isinstance(pod, dict) or pod.get("kind") != "Pod":
            raise InvalidRequest(f"{arguments.file} {'has several objects' if more else 'is not a Pod'}")
        if not isinstance(pod.get("metadata") or {}, dict):
            raise InvalidRequest(f"{arguments.file}: metadata: a mapping is expected")
    answer = run_interruptible(_ask(arguments, pod))
    lines = [f"{answer['pod']} of {arguments.file}: nothing was created", "", *told(answer)]
    print(json.dumps(answer, indent=2) if arguments.json else "\n".join(lines))
    return 0


async def _ask(arguments: argparse.Namespace, pod: Json) -> Json:
    from minikube_py.api.errors import StatusError

    metadata = {"generateName": "pod", **(pod.get("metadata") or {})}
    namespace = metadata.get("namespace") or arguments.namespace
    name = metadata.get("name") or metadata["generateName"]
    async with Api(arguments) as api:
        path = f"/api/v1/namespaces/{namespace}/pods"
        try:
            admitted = await api.dry_run(path, {**pod, "metadata": metadata})
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
            admitted = await api.dry_run(path, {**pod, "metadata": {**metadata, "name": "", "generateName": name}})
        claims = await _claims(api, admitted, namespace)
        answer = await _answered(api, {"limit": str(arguments.limit)}, {**admitted, **claims})
    return {**answer, "pod": f"{namespace}/{name}"}


async def _answered(api: Api, params: dict[str, str], pod: Json) -> Json:
    """Asks again while the scheduler reads what the pod is the first to need."""
    from minikube_py.api.errors import StatusError

    clock = SystemClock()
    deadline_s = clock.monotonic_s() + READ_LIMIT_S
    while True:
        try:
            return await api.ask("POST", "what-if", params, pod)
        except StatusError as error:
            if not error.message.endswith(ASK_AGAIN) or clock.monotonic_s() >= deadline_s:
                raise
        await clock.sleep(PAUSE_S)


async def _claims(api: Api, pod: Json, namespace: str) -> Json:
    """What controllers would make for the pod from templates, as admitted in a dry run, and its status then."""
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": True}
    devices = f"/apis/resource.k8s.io/v1/namespaces/{namespace}"
    made: list[Json] = []

    async def make(path: str, kind: str, metadata: Json, template: Json) -> str:
        metadata = {**(template.get("metadata") or {}), **metadata, "ownerReferences": [owner]}
        claim = {"metadata": metadata, "spec": template["spec"]}
        made.append({**await api.dry_run(path, claim), "kind": kind})
        return str(made[-1]["metadata"]["name"])

    for volume in pod["spec"].get("volumes") or ():
        if template := (volume.get("ephemeral") or {}).get("volumeClaimTemplate"):
            path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
            await make(path, "PersistentVolumeClaim", {"name": f"{name}-{volume['name']}"}, template)
    statuses = []
    for claim in pod["spec"].get("resourceClaims") or ():
        if named := claim.get("resourceClaimTemplateName"):
            found = (await api.get(f"{devices}/resourceclaimtemplates/{named}"))["spec"]
            generated = {"generateName": f"{name}-{claim['name']}-"}
            own = await make(f"{devices}/resourceclaims", "ResourceClaim", generated, found)
            statuses.append({"name": claim["name"], "resourceClaimName": own})
    status = {**(pod.get("status") or {}), "resourceClaimStatuses": statuses}
    return {"status": status, "supposedClaims": made} if made else {}
