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
from minikube_py.env import read_file
from minikube_py.errors import InvalidRequest

Json = dict[str, Any]


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
    answer = run_interruptible(_ask(arguments, pod))
    lines = [f"{answer['pod']} of {arguments.file}: nothing was created", "", *told(answer)]
    print(json.dumps(answer, indent=2) if arguments.json else "\n".join(lines))
    return 0


async def _ask(arguments: argparse.Namespace, pod: Json) -> Json:
    metadata = dict(pod.get("metadata") or {})
    namespace = metadata.get("namespace") or arguments.namespace
    # A pod of that name may exist, so use another one.
    name = metadata.pop("name", "") or metadata.get("generateName", "pod")
    metadata["generateName"] = name
    pod = {**pod, "metadata": metadata}
    async with Api(arguments) as api:
        admitted = await api.dry_run(f"/api/v1/namespaces/{namespace}/pods", pod)
        answer = await api.ask("POST", "what-if", {"limit": str(arguments.limit)}, admitted)
    return {**answer, "pod": f"{namespace}/{name}"}
