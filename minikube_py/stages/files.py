"""Files of stages: read, checked field by field, compiled. Unsupported fields are rejected with file and line.

Source: KWOK 0.8 `pkg/apis/v1alpha1/stage_types.go` and `pkg/apis/internalversion/conversion.go`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from minikube_py.env import FILE_BYTES_MAX
from minikube_py.stages import jq, template
from minikube_py.stages.errors import NotUnderstood, StageRefused
from minikube_py.stages.expressions import NOWHERE, Condition, Rule, Source, cel, requirement
from minikube_py.stages.located import Located, documents
from minikube_py.stages.stage import (
    APPLY,
    MERGE,
    NODE,
    POD,
    STRATEGIC,
    TYPES,
    Apply,
    Event,
    Finalizers,
    Patch,
    Ref,
    Removal,
    Stage,
    Step,
)
from minikube_py.stages.template_syntax import Param

T = TypeVar("T")
API_VERSION: Final = "kwok.x-k8s.io/v1alpha1"
FILES_MAX, STAGES_MAX, STEPS_MAX = 1000, 1000, 100
KUSTOMIZATION: Final = ("kustomization.yaml", "kustomization.yml")
_GENERAL: Final = {"Now": Param(()), "StartTime": Param(()), "Version": Param(())}
_POD_IP: Final = Param(("string", "bool", "string", "string", "string"))
DOORS: Final[Mapping[Ref, Mapping[str, Param]]] = {
    POD: {
        **_GENERAL,
        "NodeIP": Param(()),
        "PodIP": Param(()),
        "NodeIPWith": Param(("string",)),
        "NodeIPsWith": Param(("string",)),
        "PodIPWith": _POD_IP,
        "PodIPsWith": _POD_IP,
    },
    NODE: {**_GENERAL, "NodeIP": Param(()), "NodeName": Param(()), "NodePort": Param(())},
}
"""Player functions for a kind's templates; other kinds use `_GENERAL`."""


@dataclass(frozen=True, slots=True)
class Stages:
    """`others`: objects other than stages, as FILE (KIND), for the caller to report. `files`: what was read."""

    all: tuple[Stage, ...]
    others: tuple[str, ...] = ()
    files: tuple[tuple[str, bytes], ...] = ()

    def refs(self) -> list[Ref]:
        """The kinds with stages, in file order."""
        return list(dict.fromkeys(stage.ref for stage in self.all))

    @property
    def for_nodes(self) -> bool:
        return any(stage.ref == NODE for stage in self.all)

    @property
    def beyond_kubelets(self) -> bool:
        """Whether they need more than kubelet permissions: to write statuses and delete pods."""
        for stage in self.all:
            for step in stage.steps:
                if isinstance(step, Finalizers | Apply) or (isinstance(step, Patch) and step.subresource != "status"):
                    return True
                if isinstance(step, Removal) and stage.ref != POD:
                    return True
        return any(ref not in (POD, NODE) for ref in self.refs())

    def of(self, ref: Ref) -> tuple[Stage, ...]:
        return tuple(stage for stage in self.all if stage.ref == ref)


def load(paths: Iterable[Path]) -> Stages:
    """Files, or folders of them by name, not recursive.

    Raises: StageRefused."""
    return parsed([(str(path), _bytes(path)) for path in _files(paths)])


def parsed(files: Sequence[tuple[str, bytes]]) -> Stages:
    """Raises: StageRefused."""
    found: list[Stage] = []
    others: list[str] = []
    for path, data in files:
        for document in documents(data, path):
            kinds = document.value.get("kind") if isinstance(document.value, dict) else None
            kind = kinds.value if kinds is not None else None
            named = os.path.basename(path) in KUSTOMIZATION or (kind is not None and kind != "Stage")
            if document.value is None:
                continue
            if named:
                others.append(f"{path} ({kind or 'Kustomization'})")
                continue
            found.append(_Reading(path, document).stage())
            if len(found) > STAGES_MAX:
                raise StageRefused(f"{path}:{document.line}: more than {STAGES_MAX:,} stages")
    if not found:
        names = ", ".join(path for path, _ in files) or "no file ends in .yaml, .yml or .json"
        raise StageRefused(f"{names}: no stages there; a stage is of kind Stage of {API_VERSION}")
    return Stages(tuple(found), tuple(others), tuple(files))


def _files(paths: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(each for each in path.iterdir() if each.suffix in (".yaml", ".yml", ".json"))
        else:
            found.append(path)
    if len(found) > FILES_MAX:
        raise StageRefused(f"more than {FILES_MAX:,} files")
    return found


def _bytes(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise StageRefused(f"{path}: there is no such file")
        if path.stat().st_size > FILE_BYTES_MAX:
            raise StageRefused(f"{path}: larger than {FILE_BYTES_MAX:,} bytes")
        return path.read_bytes()
    except OSError as error:
        raise StageRefused(f"{path}: {error.strerror or error}") from None


class _Reading:
    """One document."""

    def __init__(self, name: str, document: Located) -> None:
        self._name, self._document = name, document
        self._doors: Mapping[str, Param] = _GENERAL
        self._ref = POD

    def _refused(self, at: Located, path: str, why: str, line: int = 0) -> StageRefused:
        return StageRefused(f"{self._name}:{line or at.line}: {path}: {why}")

    def _compiled(self, at: Located, path: str, make: Callable[[str], T]) -> T:
        text = self._text(at, path)
        try:
            return make(text)
        except NotUnderstood as error:
            raise self._refused(at, path, str(error), (at.text_line or at.line) + error.line - 1) from None

    # --- values -----------------------------------------------------------------------------------------------------

    def _fields(self, at: Located, path: str, *known: str) -> dict[str, Located]:
        """The present, non-null ones."""
        if not isinstance(at.value, dict):
            raise self._refused(at, path, "a mapping is expected")
        for name, value in at.value.items():
            if name not in known:
                raise self._refused(value, f"{path}.{name}", f"not understood; here are {', '.join(known)}")
        return {name: value for name, value in at.value.items() if value.value is not None}

    def _text(self, at: Located, path: str) -> str:
        if not isinstance(at.value, str):
            raise self._refused(at, path, "a text is expected")
        return at.value

    def _whole(self, at: Located, path: str, least: int = 0) -> int:
        value = at.value
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 1 << 53:
            raise self._refused(at, path, f"a whole number of {least} or more is expected")
        return value

    def _bool(self, at: Located | None, path: str) -> bool:
        if at is None:
            return False
        if not isinstance(at.value, bool):
            raise self._refused(at, path, "true or false is expected")
        return at.value

    def _list(self, at: Located | None, path: str) -> list[tuple[Located, str]]:
        if at is None:
            return []
        if not isinstance(at.value, list):
            raise self._refused(at, path, "a list is expected")
        return [(each, f"{path}[{number}]") for number, each in enumerate(at.value)]

    def _texts(self, at: Located | None, path: str) -> dict[str, str]:
        if at is None:
            return {}
        if not isinstance(at.value, dict):
            raise self._refused(at, path, "a mapping is expected")
        return {key: self._text(each, f"{path}.{key}") for key, each in at.value.items()}

    def _optional(self, at: Located | None, path: str) -> str:
        return "" if at is None else self._text(at, path)

    # --- the stage --------------------------------------------------------------------------------------------------

    def stage(self) -> Stage:
        document = self._document
        top = self._fields(document, "the document", "apiVersion", "kind", "metadata", "spec", "status")
        for name, wanted in (("apiVersion", API_VERSION), ("kind", "Stage")):
            if name not in top or top[name].value != wanted:
                raise self._refused(top.get(name, document), name, f"{wanted} is expected")
        metadata = top.get("metadata", document).value
        named = metadata.get("name") if "metadata" in top and isinstance(metadata, dict) else None
        if named is None:
            raise self._refused(document, "metadata.name", "a stage needs a name")
        if "spec" not in top:
            raise self._refused(document, "spec", "a stage needs a spec")
        spec = self._fields(
            top["spec"], "spec", "resourceRef", "selector", "weight", "weightFrom", "delay", "next", "steps",
            "immediateNextStage",
        )  # fmt: skip
        self._ref = ref = self._resource(spec.get("resourceRef"), top["spec"])
        self._doors = DOORS.get(ref, _GENERAL)
        labels, annotations, conditions = self._selector(spec.get("selector"))
        delay_s, delay_from, jitter_s, jitter_from = self._delay(spec.get("delay"))
        return Stage(
            name=self._text(named, "metadata.name"),
            ref=ref,
            where=f"{self._name}:{document.line}",
            labels=labels,
            annotations=annotations,
            conditions=conditions,
            weight=self._whole(spec["weight"], "spec.weight") if "weight" in spec else 0,
            weight_from=self._source(spec.get("weightFrom"), "spec.weightFrom"),
            delay_s=delay_s,
            delay_from=delay_from,
            jitter_s=jitter_s,
            jitter_from=jitter_from,
            steps=self._all_steps(spec),
            immediate=self._bool(spec.get("immediateNextStage"), "spec.immediateNextStage"),
        )

    def _resource(self, at: Located | None, spec: Located) -> Ref:
        path = "spec.resourceRef"
        if at is None:
            raise self._refused(spec, path, "a stage needs one")
        fields = self._fields(at, path, "apiGroup", "kind")
        if "kind" not in fields:
            raise self._refused(at, f"{path}.kind", "a stage needs one")
        group = self._text(fields["apiGroup"], f"{path}.apiGroup") if "apiGroup" in fields else "v1"
        return Ref(group or "v1", self._text(fields["kind"], f"{path}.kind"))

    def _selector(self, at: Located | None) -> tuple[dict[str, str], dict[str, str], tuple[Condition, ...] | None]:
        if at is None:
            return {}, {}, None
        path = "spec.selector"
        fields = self._fields(at, path, "matchLabels", "matchAnnotations", "matchExpressions")
        conditions = [
            self._condition(each, where)
            for each, where in self._list(fields.get("matchExpressions"), f"{path}.matchExpressions")
        ]
        return (
            self._texts(fields.get("matchLabels"), f"{path}.matchLabels"),
            self._texts(fields.get("matchAnnotations"), f"{path}.matchAnnotations"),
            tuple(conditions),
        )

    def _condition(self, at: Located, path: str) -> Condition:
        fields = self._fields(at, path, "key", "operator", "values", "jq", "cel")
        if "cel" in fields:
            self._alone(fields, "cel", at, path)
            return Rule(self._cel(fields["cel"], f"{path}.cel"))
        if "jq" in fields:
            self._alone(fields, "jq", at, path)
            at, path = fields["jq"], f"{path}.jq"
            fields = self._fields(at, path, "key", "operator", "values")
        if "key" not in fields or "operator" not in fields:
            raise self._refused(at, path, "key and operator are needed, or jq, or cel")
        operator = self._text(fields["operator"], f"{path}.operator")
        values = [self._text(each, where) for each, where in self._list(fields.get("values"), f"{path}.values")]
        return self._compiled(fields["key"], f"{path}.key", lambda key: requirement(key, operator, values))

    def _alone(self, fields: Mapping[str, Any], name: str, at: Located, path: str) -> None:
        if len(fields) > 1:
            raise self._refused(at, path, f"{name} excludes other fields")

    def _cel(self, at: Located, path: str) -> Any:
        fields = self._fields(at, path, "expression")
        if "expression" not in fields:
            raise self._refused(at, path, "expression is needed")
        if self._ref in (POD, NODE):
            why = "CEL about Pods and Nodes is not understood, as KWOK reads it of Go's structs; jq is"
            raise self._refused(at, path, why)
        return self._compiled(fields["expression"], f"{path}.expression", cel)

    def _source(self, at: Located | None, path: str, cel_too: bool = True) -> Source:
        if at is None:
            return NOWHERE
        fields = self._fields(at, path, "expressionFrom", "jq", "cel")
        if len(fields) != 1:
            raise self._refused(at, path, "one of expressionFrom, jq and cel is needed")
        if "cel" in fields:
            if not cel_too:
                raise self._refused(at, path, "KWOK does not read cel here; jq is understood")
            return Source(expression=self._cel(fields["cel"], f"{path}.cel"))
        text, where = fields.get("expressionFrom"), f"{path}.expressionFrom"
        if text is None:
            where = f"{path}.jq.expression"
            text = self._fields(fields["jq"], f"{path}.jq", "expression").get("expression")
            if text is None:
                raise self._refused(fields["jq"], where, "is needed")
        return Source(query=self._compiled(text, where, jq.compile))

    def _delay(self, at: Located | None) -> tuple[float | None, Source, float | None, Source]:
        if at is None:
            return None, NOWHERE, None, NOWHERE
        path = "spec.delay"
        fields = self._fields(
            at, path, "durationMilliseconds", "durationFrom", "jitterDurationMilliseconds", "jitterDurationFrom"
        )

        def milliseconds(name: str) -> float | None:
            return self._whole(fields[name], f"{path}.{name}") / 1000 if name in fields else None

        return (
            milliseconds("durationMilliseconds") or 0.0,
            self._source(fields.get("durationFrom"), f"{path}.durationFrom"),
            milliseconds("jitterDurationMilliseconds"),
            self._source(fields.get("jitterDurationFrom"), f"{path}.jitterDurationFrom", cel_too=False),
        )

    # --- steps ------------------------------------------------------------------------------------------------------

    def _all_steps(self, spec: dict[str, Located]) -> tuple[Step, ...]:
        if "steps" in spec and "next" in spec:
            raise self._refused(spec["next"], "spec.next", "steps and next exclude each other")
        if "next" in spec:
            return tuple(self._next(spec["next"], "spec.next"))
        found: list[Step] = []
        for each, path in self._list(spec.get("steps"), "spec.steps"):
            fields = self._fields(each, path, "patch", "event", "finalizers", "delete", "apply")
            found += self._step(fields, path)
            if len(found) > STEPS_MAX:
                raise self._refused(each, path, f"more than {STEPS_MAX} steps")
        return tuple(found)

    def _step(self, fields: dict[str, Located], path: str) -> list[Step]:
        """In KWOK's order; a delete excludes patches and applies."""
        found: list[Step] = []
        if "event" in fields:
            found.append(self._event(fields["event"], f"{path}.event"))
        if "finalizers" in fields:
            found.append(self._finalizers(fields["finalizers"], f"{path}.finalizers"))
        if self._bool(fields.get("delete"), f"{path}.delete"):
            if "patch" in fields or "apply" in fields:
                raise self._refused(fields["delete"], path, "what is deleted cannot be patched in the same step")
            found.append(Removal())
        if "patch" in fields:
            found.append(self._patch(fields["patch"], f"{path}.patch"))
        if "apply" in fields:
            found.append(self._apply(fields["apply"], f"{path}.apply"))
        return found

    def _next(self, at: Located, path: str) -> list[Step]:
        fields = self._fields(
            at, path, "event", "finalizers", "delete", "patches", "statusTemplate", "statusSubresource", "statusPatchAs"
        )
        if "statusPatchAs" in fields:
            raise self._impersonation(fields["statusPatchAs"], f"{path}.statusPatchAs")
        found: list[Step] = []
        if "event" in fields:
            found.append(self._event(fields["event"], f"{path}.event"))
        if "finalizers" in fields:
            found.append(self._finalizers(fields["finalizers"], f"{path}.finalizers"))
        patches = self._list(fields.get("patches"), f"{path}.patches")
        if len(patches) > STEPS_MAX:
            raise self._refused(at, path, f"more than {STEPS_MAX} patches")
        status = fields.get("statusTemplate")
        if patches and status is not None:
            raise self._refused(status, f"{path}.statusTemplate", "patches and statusTemplate exclude each other")
        found += [self._patch(each, where) for each, where in patches]
        if status is not None and status.value:
            subresource = fields.get("statusSubresource")
            name = "status" if subresource is None else self._text(subresource, f"{path}.statusSubresource")
            found.append(Patch(self._template(status, f"{path}.statusTemplate"), "status", self._usual_type, name))
        if self._bool(fields.get("delete"), f"{path}.delete"):
            found.append(Removal())
        return found

    @property
    def _usual_type(self) -> str:
        return STRATEGIC if self._ref in (POD, NODE) else MERGE

    def _impersonation(self, at: Located, path: str) -> StageRefused:
        return self._refused(at, path, "acting as another user is not understood")

    def _template(self, at: Located | None, path: str, within: Located | None = None) -> template.Template:
        if at is None:
            assert within is not None
            raise self._refused(within, path, "is needed")
        return self._compiled(at, path, lambda text: template.compile(text, self._doors))

    def _event(self, at: Located, path: str) -> Event:
        fields = self._fields(at, path, "type", "reason", "message")
        kind, reason, message = (self._optional(fields.get(name), f"{path}.{name}") for name in Event.__slots__)
        if kind not in ("Normal", "Warning"):
            raise self._refused(at, f"{path}.type", "Normal or Warning is expected")
        return Event(kind, reason, message)

    def _finalizers(self, at: Located, path: str) -> Finalizers:
        fields = self._fields(at, path, "add", "remove", "empty")

        def values(name: str) -> tuple[str, ...]:
            items = self._list(fields.get(name), f"{path}.{name}")
            return tuple(
                self._optional(self._fields(each, where, "value").get("value"), f"{where}.value")
                for each, where in items
            )

        return Finalizers(values("add"), values("remove"), self._bool(fields.get("empty"), f"{path}.empty"))

    def _type(self, at: Located | None, path: str, usual: str, *without: str) -> str:
        if at is None:
            return usual
        name = self._text(at, path)
        known = [each for each in TYPES if each not in without]
        if name not in known:
            raise self._refused(at, path, f"{name!r} is none of {', '.join(known)}")
        return TYPES[name]

    def _patch(self, at: Located, path: str) -> Patch:
        fields = self._fields(at, path, "subresource", "root", "template", "type", "impersonation")
        if "impersonation" in fields:
            raise self._impersonation(fields["impersonation"], f"{path}.impersonation")
        return Patch(
            self._template(fields.get("template"), f"{path}.template", at),
            self._optional(fields.get("root"), f"{path}.root"),
            self._type(fields.get("type"), f"{path}.type", self._usual_type, "apply"),
            self._optional(fields.get("subresource"), f"{path}.subresource"),
        )

    def _apply(self, at: Located, path: str) -> Apply:
        fields = self._fields(at, path, "template", "subresource", "type", "impersonation")
        if "impersonation" in fields:
            raise self._impersonation(fields["impersonation"], f"{path}.impersonation")
        return Apply(
            self._template(fields.get("template"), f"{path}.template", at),
            self._type(fields.get("type"), f"{path}.type", APPLY, "json"),
            self._optional(fields.get("subresource"), f"{path}.subresource"),
        )
