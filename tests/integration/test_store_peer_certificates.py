"""A certificate of a member that does not hold is reported as what it is."""

from __future__ import annotations

import asyncio

import pytest

from minikube_py.control_plane.certificates import ensure_authority
from minikube_py.control_plane.tls import peer_client_context, peer_server_context
from minikube_py.errors import Unavailable
from minikube_py.store.peer_asking import PeerAsker


def contexts(folder):
    authority = ensure_authority(folder / "ca.crt", folder / "ca.key")
    files = folder / "leaf.crt", folder / "leaf.key"
    authority.ensure_leaf(*files, ["localhost", "127.0.0.1"], client=True)
    return peer_server_context(*files, authority.pem), peer_client_context(*files, authority.pem)


async def test_a_certificate_that_does_not_hold_is_no_wrong_address(tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0, ssl=contexts(ours)[0])
    address = "{}:{}".format(*server.sockets[0].getsockname())
    try:
        with pytest.raises(Unavailable, match="certificate verify failed") as refused:
            await PeerAsker("token", contexts(theirs)[1]).who(address)
        assert "resolvable" not in str(refused.value)
    finally:
        server.close()
