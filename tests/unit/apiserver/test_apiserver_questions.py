"""Schedulers in processes of their own come for what users ask: who is asked, who answers, and what if nobody does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from api_core import Core
from virtual_time import LoopClock

from minikube_py.api.errors import StatusError
from minikube_py.apiserver import auth
from minikube_py.apiserver.inprocess import InProcessTransport
from minikube_py.apiserver.questions import ANSWER_S, GONE_S, NAMES_MAX, POLL_S, Questions
from minikube_py.client.rest import RestClient
from minikube_py.scheduler.answering import Answering

EXPLAIN = "/minikube-py/v1/explain/pods/default/web"
QUESTIONS = "/minikube-py/v1/scheduler/questions"
ANSWERS = "/minikube-py/v1/scheduler/answers"
NOT_THERE = 'no scheduler has the pod "none": it does not exist, has finished, or names a scheduler that does not run'


class Scheduler:
    """Answers by what `found` says of a pod; `asked` are the questions it got."""

    def __init__(self, **found: Any) -> None:
        self.found = found
        self.asked: list[tuple[str, Any, dict[str, str]]] = []

    def ask(self, question: str, subject: Any, params: dict[str, str]) -> Any:
        self.asked.append((question, subject, params))
        found = self.found.get(subject.rpartition("/")[2]) if isinstance(subject, str) else {"subject": subject}
        if isinstance(found, Exception):
            raise found
        return found


def answering(core: Core, name: str, scheduler: Scheduler | None) -> Answering:
    client = RestClient(InProcessTransport(core.api, auth.SCHEDULER))
    made = Answering(client, LoopClock(), name, lambda: scheduler)  # type: ignore[arg-type,return-value]
    made.start()
    return made


async def settled() -> None:
    await asyncio.sleep(0.1)


async def test_the_one_that_has_the_pod_answers(core: Core) -> None:
    first, second = Scheduler(web={"fits": 3}), Scheduler()
    running = [answering(core, "first", first), answering(core, "second", second), answering(core, "idle", None)]
    await settled()
    status, found = await core.ask("GET", f"{EXPLAIN}?at=2&limit=7")
    assert (status, found) == (200, {"apiVersion": "minikube-py/v1", "fits": 3})
    assert first.asked == second.asked == [("explain", "default/web", {"at": "2", "limit": "7"})]
    status, found = await core.ask("GET", EXPLAIN.replace("web", "none"))
    assert (status, found["message"]) == (404, NOT_THERE)
    pod = {"metadata": {"name": "a", "namespace": "b", "uid": "c"}, "spec": {"containers": []}}
    status, found = await core.ask("POST", "/minikube-py/v1/what-if", pod)
    assert (status, found["subject"]) == (200, pod)
    for each in running:
        await each.stop()


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [(ValueError("decision 9 is not remembered"), 400, "decision 9"), (KeyError("x"), 500, "the scheduler cannot say")],
)
async def test_what_it_cannot_answer_is_told(core: Core, error: Exception, code: int, message: str) -> None:
    running = answering(core, "one", Scheduler(web=error))
    await settled()
    status, found = await core.ask("GET", EXPLAIN)
    assert (status, found["code"]) == (code, code) and message in found["message"]
    await running.stop()


async def test_nobody_comes(core: Core) -> None:
    status, found = await core.ask("GET", EXPLAIN)
    assert status == 503 and "no scheduler answers questions of this API server" in found["message"]
    running = answering(core, "one", Scheduler(web={"fits": 1}))
    await settled()
    assert (await core.ask("GET", EXPLAIN))[0] == 200
    await running.stop()
    await asyncio.sleep(POLL_S + GONE_S + 1)
    assert (await core.ask("GET", EXPLAIN))[0] == 503


async def test_only_schedulers_come_for_questions(core: Core) -> None:
    user = auth.known(auth.User("ann", (), "ann"))
    assert (await core.ask("GET", f"{QUESTIONS}?from=x", user=user))[0] == 403
    assert (await core.ask("POST", ANSWERS, {"from": "x", "id": 1}, user=user))[0] == 403
    assert (await core.ask("GET", EXPLAIN, user=auth.SCHEDULER))[0] == 403
    for method, path, body, code in (
        ("POST", QUESTIONS, {}, 405),
        ("GET", ANSWERS, None, 405),
        ("GET", QUESTIONS, None, 400),
        ("POST", ANSWERS, {"id": "x"}, 400),
        ("POST", ANSWERS, {"from": "x", "id": 77, "answer": {}}, 200),
        ("GET", f"{QUESTIONS}/more", None, 404),
    ):
        assert (await core.ask(method, path, body, user=auth.SCHEDULER))[0] == code, (method, path)


async def test_no_answer_in_time_names_who_was_asked() -> None:
    questions = Questions(LoopClock())
    coming = asyncio.create_task(questions.coming("slow"))
    await settled()
    began_s = asyncio.get_running_loop().time()
    with pytest.raises(StatusError, match=r"no answer within 20 s from scheduler slow") as caught:
        await questions.ask("explain", "default/web", {})
    assert caught.value.code == 504
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(ANSWER_S, abs=0.1)
    (asked,) = await coming
    questions.answered("slow", asked["id"], {"answer": {}})
    # What nobody waits for any more is not asked again.
    again = asyncio.create_task(questions.coming("slow"))
    await settled()
    questions.close()
    assert await again == []


async def test_a_process_that_came_back_gets_what_its_dead_self_would_have_taken() -> None:
    questions = Questions(LoopClock())
    dead, alive = (asyncio.create_task(questions.coming("one")) for _ in range(2))
    await settled()
    asking = asyncio.create_task(questions.ask("explain", "default/web", {}))
    (asked,) = await alive
    assert await dead == [] and asked["subject"] == "default/web"
    questions.answered("one", asked["id"], {"answer": {"fits": 1}})
    questions.answered("one", asked["id"], {"error": "twice"})
    assert await asking == {"fits": 1}


async def test_so_many_names_are_served() -> None:
    questions = Questions(LoopClock())
    polls = [asyncio.create_task(questions.coming(f"s{number}")) for number in range(NAMES_MAX)]
    await settled()
    with pytest.raises(StatusError, match="64 schedulers answer questions"):
        await questions.coming("one more")
    questions.close()
    assert await asyncio.gather(*polls) == [[]] * NAMES_MAX
