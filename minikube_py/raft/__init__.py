"""Raft as a pure state machine in the manner of etcd-io/raft: messages in; messages, entries and state out."""
