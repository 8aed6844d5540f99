"""Expressions that ask the server's authorizers: evaluated again with the answers.

Source: apiserver `pkg/cel/library/authz.go`, `pkg/authentication/serviceaccount/util.go`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from minikube_py.api.authorizer_checks import Check, Unanswered, answered, answers_of
from minikube_py.api.service_tokens import account_user
from minikube_py.apiserver.auth import Asked
from minikube_py.apiserver.rules import User, account_groups
from minikube_py.apiserver.settling import Long

May = Callable[[User, Asked, str], Awaitable[tuple[bool, str]]]
"""Whether a user may, and why; the text is a field selector."""


class Asking:
    """A check's cost bounds how many an evaluation has: some 60."""

    def __init__(self, long: Long, may: May) -> None:
        self.long = long
        self._may = may

    async def run(
        self, user: User, bindings: Mapping[str, object], of: object, here: Callable[[], Any], job: str, *given: Any
    ) -> Any:
        """As `Long.run`; `given` holds the bindings, whose authorizer asks for this user."""
        known, here = answers_of(bindings).known, partial(answered, bindings, here)
        while True:
            found = await self.long.run(of, here, job, *given)
            if not isinstance(found, Unanswered):
                return found
            for check in found.checks:
                known[check] = await self._answer(user, check)
            # Each evaluation has a turn of its own.
            await asyncio.sleep(0)

    async def _answer(self, user: User, check: Check) -> tuple[bool, str]:
        if check.account is not None:
            namespace, name = check.account
            user = User(account_user(namespace, name), account_groups(namespace))
        asked = Asked(
            check.verb, check.group, check.plural, check.subresource, check.namespace, check.name, check.path
        )
        return await self._may(user, asked, check.field_selector)
