"""Versions of one definition that share some of their fields, without a webhook (strategy None): written by one, stored
as another, and read after the storage version has changed. Recorded by `record_custom.py`.
"""

from __future__ import annotations

from custom_cases import DEFINITIONS, GROUP, INTEGER, JSON_PATCH, MERGE, STRING, Case, Json, definition, of, thing

APPLY = "application/apply-patch+yaml"


def _version(name: str, storage: bool = False, served: bool = True, **fields: Json) -> Json:
    schema = of(spec=of(common=STRING, **fields), status=of(common=STRING, **fields))
    return {"name": name, "served": served, "storage": storage, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}


def _own(name: str, default: str) -> Json:
    return {name: STRING, f"{name}d": {**STRING, "default": default}, "deep": of(**{name: INTEGER})}


def _versions(storage: str, *more: Json) -> list[Json]:
    own = {"v1": _own("a", "one"), "v2": _own("b", "two"), "v3": _own("c", "three")}
    return [*(_version(name, name == storage, name != "v3" or bool(more), **fields) for name, fields in own.items()), *more]


def _paths(name: str) -> tuple[str, str]:
    return tuple(f"/apis/{GROUP}/{version}/namespaces/default/{name}" for version in ("v1", "v2"))  # type: ignore[return-value]


def _stored_in(storage: str, plural: str) -> list[Case]:
    """Of a definition stored as `storage`, and as the other after that."""
    kind, (v1, v2) = plural.removesuffix("s").capitalize(), _paths(plural)
    found = [Case("POST", DEFINITIONS, definition(plural, None, spec={"versions": _versions(storage)}), await_names=True)]
    whole = {"common": "x", "a": "1", "b": "2", "c": "3", "deep": {"a": 1, "b": 2, "c": 3}}

    def everywhere(name: str) -> list[Case]:
        return [Case("GET", f"{at}/{name}?fieldManager=") for at in (v1, v2)]

    def put(at: str, version: str, name: str, spec: Json, **more: Json) -> Case:
        return Case("POST", f"{at}?fieldManager=j", {**thing(kind, name, spec=spec, **more), "apiVersion": f"{GROUP}/{version}"})

    for at, version in ((v1, "v1"), (v2, "v2")):
        name = f"of-{version}"
        found += [put(at, version, name, whole, status=whole), *everywhere(name)]
        for changed in (v1, v2):
            found += [
                Case("PATCH", f"{changed}/{name}?fieldManager=k", {"metadata": {"labels": {"x": changed[-5:-1]}}}, MERGE), *everywhere(name),
                Case("PATCH", f"{changed}/{name}?fieldManager=l", {"spec": {**whole, "common": "y"}}, MERGE), *everywhere(name),
                Case("PATCH", f"{changed}/{name}/status?fieldManager=s", {"status": whole}, MERGE), *everywhere(name),
                Case("PATCH", f"{changed}/{name}?fieldManager=m", [{"op": "test", "path": "/spec/a", "value": "1"}], JSON_PATCH),
            ]  # fmt: skip
        config = {**thing(kind, f"applied-{version}", spec={"common": "x", "a": "1"}), "apiVersion": f"{GROUP}/{version}"}
        target = f"{at}/applied-{version}?fieldManager="
        found += [Case("PATCH", f"{target}{who}&force={force}", config, APPLY) for who, force in (("p", "false"), ("p", "false"), ("q", "true"))]
        found += [*everywhere(f"applied-{version}"), put(at, version, f"kept-{version}", whole)]
        found += [Case("GET", f"{at}?labelSelector=x"), Case("POST", f"{at}?dryRun=All&fieldManager=j", put(at, version, "dry", whole).body)]
    other = "v1" if storage == "v2" else "v2"
    # The added version tells when the change is in effect.
    versions = _versions(other, _version("v4", **_own("z", "four")))
    found += [
        Case("PATCH", f"{DEFINITIONS}/{plural}.{GROUP}", {"spec": {"versions": versions}}, MERGE),
        Case("GET", f"/apis/{GROUP}/v4/namespaces/default/{plural}/none", until_code=404), Case("GET", f"/apis/{GROUP}/v4/namespaces/default/{plural}", until_code=200),
    ]  # fmt: skip
    for version in ("v1", "v2"):
        for name in (f"kept-{version}", f"of-{version}"):
            found += [*everywhere(name), Case("PATCH", f"{v1}/{name}?fieldManager=n", {}, MERGE), *everywhere(name)]
        found += [Case("PATCH", f"{v2}/kept-{version}?fieldManager=n", {"metadata": {"finalizers": ["a.b/c"]}}, MERGE), *everywhere(f"kept-{version}")]
        found += [Case("DELETE", f"{v1}/kept-{version}"), *everywhere(f"kept-{version}"), Case("DELETE", f"{v2}/of-{version}")]
        found.append(Case("PATCH", f"{v1}/kept-{version}", {"metadata": {"finalizers": None}}, MERGE))
    return found


def _not_served() -> list[Case]:
    """What is no path, no subresource or no place for a method."""
    jars, (v1, v2) = f"/apis/{GROUP}/v1/jars", _paths("jars")
    found = [Case("POST", f"{v1}", thing("Jar", "there"))]
    plain = Case("POST", DEFINITIONS, definition("lids", None, spec={"versions": [{**_version("v1", True), "subresources": None}]}), await_names=True)
    found += [plain, Case("POST", _paths("lids")[0], thing("Lid", "there"))]
    places = [
        f"{v1}/there/scale", f"{v1}/none/log", f"{v1}/there/a/b", f"{jars}/there", f"{jars}/there/status", f"/apis/{GROUP}/v9/jars", f"{v2.replace('v2', 'v9')}/there",
        f"/apis/{GROUP}/v1/nones", f"/apis/{GROUP}/v1/nones/x/y", f"/apis/{GROUP}/v1/namespaces/default/nones/x", "/apis/nope.example.com/v1/things/x", "/apis/nope.example.com/v1",
        "/apis/nope.example.com", f"{_paths('lids')[0]}/there/status", f"{_paths('lids')[0]}/none/status",
    ]  # fmt: skip
    for place in places:
        found += [Case(method, place, {} if method[0] == "P" else None, MERGE if method == "PATCH" else "application/json") for method in ("GET", "PATCH", "PUT", "POST", "DELETE")]
    return [*found, Case("PATCH", v1, {}, MERGE), Case("PUT", v1, {}), Case("PATCH", jars, {}, MERGE), Case("PUT", jars, {})]


def cases() -> list[Case]:
    return [*_stored_in("v2", "jars"), *_stored_in("v1", "mugs"), *_not_served()]
