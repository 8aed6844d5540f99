"""Scheduler queries over HTTP, answered by the scheduler in this process or by polling ones.

| Path | |
|---|---|
| `GET /minikube-py/v1/explain/pods/<namespace>/<name>?at=N&limit=10` | each node's verdict and scores; the decision |
| `POST /minikube-py/v1/what-if` | the same for a pod that does not exist; nothing is created |

For administrators alone, as all paths are that no rule names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import orjson

from minikube_py.api.errors import StatusError, bad_request, method_not_allowed, path_not_found
from minikube_py.apiserver.messages import Request, Response
from minikube_py.errors import RequestError

if TYPE_CHECKING:
    from minikube_py.apiserver.core import ApiServer

EXPLAIN_PODS: Final = "/minikube-py/v1/explain/pods/"
WHAT_IF: Final = "/minikube-py/v1/what-if"

AskScheduler = Callable[[str, Any, Mapping[str, str]], "dict[str, Any] | None"]
"""(question, subject, parameters) -> the answer; None if no scheduler of this process has the pod."""


async def answer(path: str, request: Request, server: ApiServer) -> Response:
    """Raises: StatusError 400, 404, 405, 500, 503."""
    question = "what-if" if path == WHAT_IF else "explain"
    if request.method != ("POST" if question == "what-if" else "GET"):
        raise method_not_allowed()
    await request.read_body()
    subject, name = _pod(request) if question == "what-if" else _key(path)
    try:
        found = None if server.ask_scheduler is None else server.ask_scheduler(question, subject, request.query)
        if found is None and (server.ask_scheduler is None or server.questions.names()):
            found = await server.questions.ask(question, subject, request.query)
    except StatusError:
        raise
    except ValueError as error:
        raise bad_request(str(error)) from error
    except RequestError:
        raise
    except Exception as error:
        raise StatusError(500, "InternalError", f"the scheduler cannot say: {error}", None) from error
    if found is None:
        never = "" if question == "what-if" else "does not exist, has finished, or "
        why = f"it {never}names a scheduler that does not run"
        raise StatusError(404, "NotFound", f'no scheduler has the pod "{name}": {why}', None)
    return Response(200, orjson.dumps({"apiVersion": "minikube-py/v1", **found}))


def _key(path: str) -> tuple[str, str]:
    parts = [unquote(part) for part in path.removeprefix(EXPLAIN_PODS).split("/")]
    if len(parts) != 2 or not all(parts):
        raise path_not_found()
    return "/".join(parts), parts[1]


def _pod(request: Request) -> tuple[dict[str, Any], str]:
    """A pod as it would be stored: the response to a create with dryRun=All."""
    try:
        pod = orjson.loads(request.body)
        pod["spec"]["containers"], pod["metadata"]["namespace"], pod["metadata"]["uid"]
        return pod, str(pod["metadata"]["name"])
    except (ValueError, KeyError, TypeError) as error:
        raise bad_request("send a Pod as a create with dryRun=All answers it") from error
