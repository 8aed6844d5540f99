"""File names in a role's folder of secrets (`--secrets-dir`). `secrets` creates them."""

from __future__ import annotations

from typing import Final

AUTHORITY: Final = "authority.pem"
AUTHORITY_KEY: Final = "authority.key"
CLIENTS: Final = "client-authority.pem"
"""Authority of client certificates for an API server."""
CLIENTS_KEY: Final = "client-authority.key"
SERVER: Final = "server.pem"
SERVER_KEY: Final = "server.key"
PEER: Final = "peer.pem"
PEER_KEY: Final = "peer.key"
TOKEN: Final = "token"
"""In the store's folder: the token of its clients, which have it as STORE_TOKEN."""
PEER_TOKEN: Final = "peer-token"
STORE_TOKEN: Final = "store-token"
ETCD_CLIENT: Final = "etcd-client.pem"
"""Client certificate of an API server and the administrator for an etcd of the same authority."""
ETCD_CLIENT_KEY: Final = "etcd-client.key"
USERS_FILE: Final = "users.csv"
ACCOUNTS_KEY: Final = "service-accounts.key"
"""Signs the tokens of service accounts."""
KUBECONFIG: Final = "kubeconfig"
