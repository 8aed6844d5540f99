"""Bodies of custom resources: plain JSON or YAML, pruned by its version's schema, not by a Go type.

Source: apiextensions-apiserver `pkg/apiserver/customresource_handler.go` (unstructuredSchemaCoercer).
"""

from __future__ import annotations

from typing import Any

import orjson

from minikube_py.api import go_numbers
from minikube_py.api.custom.structural import Malformed, Structural, coerce, drop_nulls, fill_defaults, prune
from minikube_py.api.decode import Named, decode_free, metadata_of
from minikube_py.api.errors import GroupResource, Json, go_quote, internal, invalid, invalid_value
from minikube_py.api.go_format import go_format, go_type
from minikube_py.api.typed import DecodeError


class CustomCodec:
    """See `api.kind.Codec`. `schema` is the version's; None: only metadata is known."""

    def __init__(self, named: Named, plural: str, schema: Structural) -> None:
        self._named = named
        self._plural = plural
        self._schema = schema

    def decode(self, body: bytes, content_type: str | None, field_validation: str) -> tuple[Json, list[str]]:
        return decode_free(self._named, body, content_type, field_validation, self._settle)

    def value(self, document: Any, strict: bool) -> tuple[Json, list[str]]:
        if not isinstance(document, dict) or not document.get("kind"):
            raise DecodeError(f"Object 'Kind' is missing in '{orjson.dumps(document).decode()}'")
        said = document.get("apiVersion", "")
        if not isinstance(said, str):
            found = f"{go_format(said)} is of the type {go_type(said)}"
            raise DecodeError(f".apiVersion accessor error: {found}, expected string")
        if not said:
            raise internal("Object 'apiVersion' is missing in 'object has no apiVersion field'")
        if said.count("/") > 1:
            raise DecodeError(f"unexpected GroupVersion string: {said}")
        return document, self._settle(document, strict)

    def _settle(self, obj: Json, strict: bool) -> list[str]:
        problems: list[str] = []
        go_numbers.read(obj)
        if "metadata" in obj:
            obj["metadata"], unknown = metadata_of(obj["metadata"])
            problems += [f"metadata.{path}" for path in unknown]
        else:
            obj["metadata"] = {}
        if (obj["kind"], obj.get("apiVersion")) != (self._named.kind, self._named.api_version):
            self._refuse_kind(obj)
        problems += prune(obj, self._schema, resource=True)
        drop_nulls(obj, self._schema)
        try:
            problems += coerce(obj, self._schema)
        except Malformed as error:
            raise DecodeError(str(error)) from None
        return [f"unknown field {go_quote(path)}" for path in problems] if strict else []

    def _refuse_kind(self, obj: Json) -> None:
        kind, version = obj["kind"], obj["apiVersion"]
        about = GroupResource(version.rpartition("/")[0], self._plural, kind)
        wrong = [invalid_value("kind", kind, f"must be {self._named.kind}")] if kind != self._named.kind else []
        if version != self._named.api_version:
            wrong.append(invalid_value("apiVersion", version, f"must be {self._named.api_version}"))
        raise invalid(about, obj["metadata"].get("name") or "", wrong)

    def read(self, value: bytes, defaults: bool = True) -> bytes:
        """A stored value read in this version: pruned, with defaults."""
        obj = orjson.loads(value)
        metadata = obj.pop("metadata")
        versioned = obj.pop("apiVersion", None) is not None
        before = orjson.dumps(obj)
        prune(obj, self._schema, resource=True)
        drop_nulls(obj, self._schema)
        coerce(obj, self._schema, lenient=True)
        if defaults:
            fill_defaults(obj, self._schema)
        if not versioned and orjson.dumps(obj) == before:
            return value
        go_numbers.write(obj)
        return orjson.dumps({"metadata": metadata, **obj})
