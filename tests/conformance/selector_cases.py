"""Selectors, right and wrong, and the pods they are tried on."""

from __future__ import annotations

from typing import Any

PODS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "sel-bare": ({}, {}),
    "sel-a": ({"a": "1"}, {"nodeName": "n1"}),
    "sel-b": ({"a": "2", "b": ""}, {"nodeName": "n2", "restartPolicy": "Never"}),
    "sel-c": ({"a": "10", "example.com/x": "y.z"}, {"hostNetwork": True, "schedulerName": "other"}),
}
"""Labels and spec of each, without containers."""

LABELS = [
    "", "a", "!a", "a=1", "a==1", "a!=1", "a in (1,2)", "a notin (1)", "a>1", "a<5", "a>1,a<5", "b=", "b in ()",
    "a,b", "a, !b", "example.com/x=y.z", "a in (1, 2 ), b", "a=1,a=2", "notin", "in in (in)", "a notin (1,2),!b",
    "a in (,1)", "a in (1,,2)", "b in (,)", "a=", "b",
    "a in b", "a in (b", "=x", "a=b=c", "a!", "!", "a=b,", "a>x", "a=b c", "-a=b", "a=-b", "a in (x)b", "a,,b",
    "a notin x", "a=!b", "!a=b", "a=b>c", "a b", "a&b", "foo/bar/baz=1", "x in (-a,b_)", "(a)", "a in (x y)",
    "a in (x=y)", "a in x)", "a>=5", ",", "a=b,!", "é=1", "a=é", "a=>", "x in", "x notin (", "x=(", "a" * 64,
    "b/" + "a" * 64, "A.b/c", "/x", "x/", "a>99999999999999999999", "a=" + "x" * 64, "a in (a b)", "a!b", "==",
]  # fmt: skip

FIELDS = [
    ("pods", text)
    for text in (
        "", "metadata.name=sel-a", "metadata.name==sel-a", "metadata.name!=sel-a", "metadata.namespace=default",
        "spec.nodeName=n1", "spec.nodeName=", "spec.nodeName!=", "spec.host=n2", "spec.restartPolicy=Never",
        "spec.hostNetwork=true", "spec.hostNetwork=false", "spec.schedulerName=other", "status.phase=Pending",
        "status.phase!=Pending", "status.podIP=", "status.podIPs=", "spec.serviceAccountName=",
        "spec.nodeName=n1,metadata.name=sel-a", "spec.nodeName=n1,metadata.name=sel-b", "metadata.name=x>y",
        "metadata.name=a\\,b", "metadata.name=a\\=b", ",,", "=", "metadata.name =x",
        "a", "a=b", "a=b>c", "metadata.name=a=b", "metadata.name=a\\", "metadata.name=a\\x", "metadata.name",
        "=x", "!=x", "metadata.name=a,zz", "metadata.name!=a,zz=1,b", "metadata.name>x", "spec.priority=0",
        "metadata.labels=x", "metadata.name in (a,b)",
    )
] + [
    ("configmaps", "type=x"), ("configmaps", "metadata.name=none"), ("leases", "spec.x=1"), ("events", "foo=1"),
    ("events", "involvedObject.name=none,type=Normal"), ("secrets", "type==a/nothing"),
    ("nodes", "metadata.namespace=x"),
    ("nodes", "a=b>c"), ("nodes", "spec.unschedulable=none"), ("services", "free.cpu>=4"), ("services", "free.cpu>4"),
    ("services", "free.cpu in (1,2)"), ("services", "spec.clusterIP=1.1.1.1,spec.type=ClusterIP"),
    ("namespaces", "metadata.name=none"), ("namespaces", "metadata.namespace=x"), ("namespaces", "status.phase=none"),
    ("replicationcontrollers", "status.replicas=77"), ("replicationcontrollers", "status.foo=0"),
    ("serviceaccounts", "secrets=x"), ("endpoints", "metadata.name=none"),
]  # fmt: skip
"""Plural and selector."""
