"""A delete whose caller has gone ends, whatever it meets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from api_core import MERGE, Core, pod
from patience import until

from minikube_py.api.errors import StatusError
from minikube_py.api.kinds.core import PODS
from minikube_py.apiserver.deletes import ALONE_MAX
from minikube_py.apiserver.options import DeleteOptions

HERE = "/api/v1/namespaces/default/pods"


async def test_a_webhook_that_changes_what_it_is_asked_about_keeps_no_delete_for_ever(core: Core) -> None:
    await core.done("POST", HERE, pod("a", node="n0"))
    asked = 0

    class Hooked:
        def tell_options(self, told: Any) -> None: ...

        async def allow(self, old: Any, new: Any) -> None:
            nonlocal asked
            asked += 1
            annotated = {"metadata": {"annotations": {"n": str(asked)}}}
            await core.done("PATCH", f"{HERE}/a", annotated, content_type=MERGE)

    hooked: Any = Hooked()
    deleter = core.api.deleter
    caller = asyncio.ensure_future(deleter.delete(PODS, "default", "a", DeleteOptions(), None, hooked))

    async def asked_often() -> bool:
        return asked >= ALONE_MAX * 2

    await until(asked_often, "more attempts than a delete has alone")
    assert not caller.done(), "a caller that waits gets what the last attempt has"
    begun = asked
    caller.cancel()
    (deleting,) = deleter._deleting
    with pytest.raises(StatusError, match="the object has been modified"):
        await deleting
    assert asked - begun <= ALONE_MAX + 1 and not deleter._deleting
