"""Reads a range of keys from an etcd in pages that its link can carry.

etcd bounds an answer by a number of keys alone, and one that is incomplete at its deadline is lost. So the next page
has fewer keys after one that was late or large, and more after one that was neither."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any, Final

from minikube_py.env import Clock
from minikube_py.etcd.client import READ_ATTEMPT_S, EtcdClient
from minikube_py.etcd.errors import Late
from minikube_py.etcd.messages import pb

log = logging.getLogger(__name__)
FIRST: Final = 1
MOST: Final = 2_000
PAGE_BYTES: Final = 8 << 20
ONE_KEY_S: Final = 60.0
"""For a page of one key that was late in READ_ATTEMPT_S, of another member: 1.5 MB at 25 KB/s."""
ALIVE_S: Final = 20.0
"""For any answer at all after one that was late: what is on its way of that one comes first."""
SOON_S: Final = READ_ATTEMPT_S / 4


class Pages:
    """`keys`: how many the next page has; what was learned of the link is kept from one range to the next."""

    def __init__(self, client: EtcdClient, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self.keys, self._one_key_s = FIRST, READ_ATTEMPT_S

    async def read(self, request: Any) -> AsyncIterator[Any]:
        """Answers to a request without limit or order, all at its revision, or if it has none at that of the first.
        Raises: as `EtcdClient.read`."""
        asked = pb.RangeRequest()
        asked.CopyFrom(request)
        while True:
            answer = await self._page(asked)
            yield answer
            if not answer.more:
                return
            asked.revision = asked.revision or answer.header.revision
            asked.key = answer.kvs[-1].key + b"\0"

    async def _page(self, asked: Any) -> Any:
        while True:
            limit = asked.limit = self.keys
            once_s = self._one_key_s if limit == 1 else READ_ATTEMPT_S
            begin_s, place = self._clock.monotonic_s(), self._client.place
            try:
                answer = await self._client.read("KV/Range", asked, once_s)
            except Late as late:
                self._client.pass_over(place)
                self._one_key_s = READ_ATTEMPT_S
                if once_s == ONE_KEY_S:
                    raise
                # If it hangs, this is not answered either, and ends the reading.
                await self._client.read("KV/Range", pb.RangeRequest(key=asked.key, keys_only=True), ALIVE_S)
                self.keys, self._one_key_s = min(self.keys, max(limit // 4, 1)), ONE_KEY_S
                log.warning("%s: it is asked for pages of %d keys", late, self.keys)
                continue
            size_bytes = answer.ByteSize()
            if size_bytes > PAGE_BYTES:
                self.keys = max(self.keys // 2, 1)
            elif 2 * size_bytes <= PAGE_BYTES and self._clock.monotonic_s() - begin_s < SOON_S:
                self.keys, self._one_key_s = min(self.keys * 2, MOST), READ_ATTEMPT_S
            return answer
