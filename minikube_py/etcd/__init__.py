"""etcd's v3 API in front of a store member (docs/adr/0029-etcds-api-in-front-of-the-store.md)."""
