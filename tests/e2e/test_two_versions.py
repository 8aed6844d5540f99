"""An operator that speaks one version of its resource, users that speak another, and a webhook between them."""

from __future__ import annotations

import contextlib
import json
import ssl
import sys
import threading
from functools import partial
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import ours
import patience
from webhook_server import serving

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance"))

from asking import Ask, Server
from conversion_cases import DEFINITIONS, MERGE, at, client_of, definition, thing

OF = "c-moves"


def _operate(url: str, token: str, ended: threading.Event) -> None:
    """Writes into the status of each object of v2 how wide it has seen it, by one watch, until the server ends."""
    where = urlsplit(url)
    connection = HTTPSConnection(where.hostname or "", where.port, context=ssl._create_unverified_context())
    connection.request("GET", at(OF, "v2") + "?watch=true", headers={"Authorization": f"Bearer {token}"})
    with contextlib.closing(connection), Server(url, token) as server:
        response = connection.getresponse()
        while line := response.readline():
            event = json.loads(line)
            obj = event["object"]
            width = obj["spec"]["dimensions"]["width"]
            if event["type"] == "DELETED" or (obj.get("status") or {}).get("seen") == width:
                continue
            path = at(OF, "v2", obj["metadata"]["name"]) + "/status"
            server.ask(Ask("status", "PATCH", path, {"status": {"seen": width}}, MERGE))
            if ended.is_set():
                response.close()
                return


def _seen(server: Server, name: str) -> Any:
    found = json.loads(server.ask(Ask("seen", "GET", at(OF, "v1", name))).body)
    return (found.get("status") or {}).get("seen")


def _has_seen(server: Server, name: str, size: int) -> bool:
    return bool(_seen(server, name) == size)


def _served(server: Server) -> bool:
    return all(server.ask(Ask("served", "GET", at(OF, version))).code == 200 for version in ("v1", "v2"))


def test_an_operator_and_its_users_speak_two_versions(tmp_path: Path) -> None:
    ended = threading.Event()
    with serving(tmp_path) as webhooks, ours.serve() as local, Server(local["url"], local["token"]) as server:
        made = server.ask(Ask("made", "POST", DEFINITIONS, definition(OF, client_of(webhooks, "e2e", OF))))
        assert made.code == 201, made
        patience.eventually(partial(_served, server), "both versions are served")
        operator = threading.Thread(target=_operate, args=(local["url"], local["token"], ended), daemon=True)
        operator.start()
        for i in range(20):
            assert server.ask(Ask("made", "POST", at(OF, "v1"), thing(OF, "v1", f"t{i}", spec={"size": i}))).code == 201
        for i in range(20):
            patience.eventually(partial(_has_seen, server, f"t{i}", i), "the operator has seen it")
        change = Ask("change", "PATCH", at(OF, "v1", "t3"), {"spec": {"size": 77}}, MERGE)
        assert server.ask(change).code == 200
        patience.eventually(partial(_has_seen, server, "t3", 77), "the operator has seen the change")
        ended.set()
        assert server.ask(Ask("last", "PATCH", at(OF, "v1", "t3"), {"spec": {"size": 78}}, MERGE)).code == 200
        patience.eventually(lambda: not operator.is_alive(), "the operator has ended")
