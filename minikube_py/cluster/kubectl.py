"""Runs kubectl; and finds commands that wait, which they would do forever while no time passes.

The command is found among flags as kubectl's parser finds it (github.com/spf13/cobra, `stripFlags`)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from minikube_py.cluster.errors import ClusterError

GLOBAL_SWITCHES: Final = frozenset((
    "disable-compression", "help", "insecure-skip-tls-verify", "match-server-version", "warnings-as-errors",
))  # fmt: skip
"""Flags of all commands that take no value; before the command, any other one takes the next argument."""
SWITCH_LETTERS: Final = frozenset("ARhiqtw")
FALSE: Final = frozenset(("0", "f", "F", "false", "FALSE", "False"))
NO_TIME: Final = re.compile(r"[+-]?0[hmsun.µ0]*")
POD_IS_THERE: Final = "--pod-running-timeout=1ms"
ELSEWHERE: Final = (
    "run it as a process of its own, with KUBECONFIG from kubeconfig_path, and call advance() until it has ended"
)


class _Call:
    """`words`: the command and its arguments; `flags`: those before `--` at `end`."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.end = arguments.index("--") if "--" in arguments else len(arguments)
        self.flags = arguments[: self.end]
        self.words = list(_words(self.flags))

    def switch(self, name: str, letter: str = "") -> bool | None:
        """The last value given; None without any."""
        found = None
        for each in self.flags:
            given = each == f"--{name}" or each.startswith(f"--{name}=")
            if given or (letter and re.match(r"-[A-Za-z]", each) and letter in _letters(each)):
                found = each.partition("=")[2] not in FALSE
        return found

    def value(self, name: str) -> str:
        found = ""
        for place, each in enumerate(self.flags):
            if each == f"--{name}":
                found = "".join(self.flags[place + 1 : place + 2])
            elif each.startswith(f"--{name}="):
                found = each.partition("=")[2]
        return found


def _words(flags: Sequence[str]) -> Iterator[str]:
    left = iter(flags)
    for each in left:
        name = each.lstrip("-")
        if not each.startswith("-"):
            if each:
                yield each
        elif "=" not in each and (name not in GLOBAL_SWITCHES if each.startswith("--") else len(each) == 2):
            next(left, None)


def _letters(cluster: str) -> str:
    """Those of `-Aw` that are switches, up to one that takes the rest as its value."""
    letters = cluster.partition("=")[0][1:]
    taken = next((place for place, each in enumerate(letters) if each not in SWITCH_LETTERS), len(letters))
    return letters[:taken]


def _wait(call: _Call) -> str:
    return "" if NO_TIME.fullmatch(call.value("timeout")) else "use wait(), for which time passes, or --timeout=0"


def _watch(call: _Call) -> str:
    shows = call.switch("watch", "w") or call.switch("watch-only")
    return f"leave the watch out, or {ELSEWHERE}" if shows else ""


def _rollout(call: _Call) -> str:
    if call.words[1:2] != ["status"] or call.switch("watch", "w") is False:
        return ""
    return "use wait(), for which time passes, or --watch=false"


def _delete(call: _Call) -> str:
    return "leave --wait out, and use wait(..., gone=True), for which time passes" if call.switch("wait") else ""


def _replace(call: _Call) -> str:
    waits = call.switch("force") or call.switch("wait")
    return f"delete the object, wait(..., gone=True), and create it; or {ELSEWHERE}" if waits else ""


def _scale(call: _Call) -> str:
    limit = call.value("timeout")
    return "" if not limit or NO_TIME.fullmatch(limit) else "leave --timeout out, and use wait(..., ready=N)"


def _talk(call: _Call) -> str:
    talks = any((call.switch("stdin", "i"), call.switch("tty", "t"), call.switch("attach"), call.switch("rm")))
    return "a container cannot be used interactively in virtual time" if talks else ""


def _logs(call: _Call) -> str:
    return "leave --pod-running-timeout out" if call.value("pod-running-timeout") else ""


def _always(_: _Call) -> str:
    return ELSEWHERE


def _never_there(_: _Call) -> str:
    return "a container cannot be used interactively in virtual time"


WAITING: Final[dict[str, Callable[[_Call], str]]] = {
    "apply": _replace, "attach": _never_there, "debug": _talk, "delete": _delete, "drain": _always, "events": _watch,
    "exec": _never_there, "get": _watch, "logs": _logs, "port-forward": _never_there, "proxy": _always,
    "replace": _replace, "rollout": _rollout, "run": _talk, "scale": _scale, "wait": _wait,
}  # fmt: skip
"""Of each command that may wait: what to do instead, or "" if these arguments do not make it wait."""
ADDED: Final = {"delete": "--wait=false", "logs": POD_IS_THERE}


def without_waiting(arguments: Sequence[str]) -> list[str]:
    """Arguments with which kubectl does not wait. Raises: ClusterError if it would."""
    call, given = _Call(arguments), list(arguments)
    name = call.words[0] if call.words else ""
    if name not in WAITING or call.switch("help", "h") or call.value("dry-run") in ("client", "server"):
        return given
    if instead := WAITING[name](call):
        said = " ".join(call.words[:2]) if name == "rollout" else name
        raise ClusterError(f"kubectl {said} would wait, and in virtual time no time passes meanwhile: {instead}")
    more = ADDED.get(name)
    return [*given[: call.end], more, *given[call.end :]] if more else given


def run_kubectl(kubeconfig: Path, arguments: Sequence[str], input: str | None) -> str:
    """Raises: ClusterError."""
    program = shutil.which("kubectl")
    if program is None:
        raise ClusterError(
            "there is no kubectl on the PATH: install it (https://kubernetes.io/docs/tasks/tools/), or use apply(), "
            "objects(), wait() or request(), which need none"
        )
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    done = subprocess.run([program, *arguments], input=input, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise ClusterError(f"kubectl {' '.join(arguments)} failed ({done.returncode}): {done.stderr.strip()}")
    return done.stdout
