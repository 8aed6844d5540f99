"""Turns the text of a KubeSchedulerConfiguration into upstream's internal object: `kube-scheduler --write-config-to`
prints the same.

Sources: cmd/kube-scheduler/app/options/configfile.go, pkg/scheduler/apis/config/v1/defaults.go and
pkg/scheduler/apis/config/validation/validation.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, NamedTuple

from minikube_py.api.decode import SCHEME, Document, open_document, read_value
from minikube_py.api.errors import FieldError, Verbatim, aggregate, duplicate, go_quote, invalid_value, required
from minikube_py.api.feature_gates import NO_GATES, FeatureGates
from minikube_py.api.meta import is_qualified_name
from minikube_py.api.schema import SCHEMA
from minikube_py.api.typed import DecodeError
from minikube_py.api.validation.resources import is_extended
from minikube_py.api.values import duration_ns
from minikube_py.scheduler.configuration import args as plugin_args
from minikube_py.scheduler.configuration.merging import ConfigError, PluginSet, default_plugins, merged
from minikube_py.scheduler.configuration.messages import (
    API_VERSION,
    ARGS,
    GROUP,
    KIND,
    MULTI_POINT,
    POINTS,
    message_name,
)

Object = dict[str, Any]

REMOVED: Final = frozenset(("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"))
DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"
FIT: Final = "NodeResourcesFit"
EXTENDER_TIMEOUT: Final = "5s"
MEANT_FOR_PROCESSES: Final = (
    "parallelism",
    "leaderElection",
    "clientConnection",
    "enableProfiling",
    "enableContentionProfiling",
    "delayCacheUntilActive",
)
"""Fields about upstream's process, not about scheduling."""

_EMBEDDED: Final = re.compile(rf"struct field {KIND}\.(enable(?:Contention)?Profiling) ")
"""Go names the struct that embeds these two."""


class Configuration(NamedTuple):
    """`given`: as read; `full`: with upstream's defaults; `names`: the fields present in the file."""

    given: Object
    full: Object
    names: frozenset[str]


def read(body: bytes, gates: FeatureGates = NO_GATES) -> Configuration:
    """Raises: ConfigError, with upstream's message."""
    try:
        document = open_document(body)
        given = _decoded(document, body.decode(errors="replace"))
    except DecodeError as error:
        raise ConfigError(_EMBEDDED.sub(rf"struct field {KIND}.DebuggingConfiguration.\1 ", str(error))) from None
    full = with_defaults(given, gates)
    errors = _validate(full)
    if errors:
        raise ConfigError(aggregate(str(error) for error in errors))
    _build_extenders(full)
    return Configuration(given, full, document.names)


# --- decoding -------------------------------------------------------------------------------------------------------


def _decoded(document: Document, text: str) -> Object:
    """Raises: ConfigError, DecodeError."""
    if not document.kind:
        raise ConfigError(f"Object 'Kind' is missing in '{text}'")
    if not document.api_version:
        raise ConfigError(f"Object 'apiVersion' is missing in '{text}'")
    kinds = {KIND, *(f"{name}Args" for name in ARGS)}
    if document.api_version != API_VERSION or document.kind not in kinds:
        raise ConfigError(
            f"no kind {go_quote(document.kind)} is registered for version {go_quote(document.api_version)} "
            f"in scheme {go_quote(SCHEME)}"
        )
    if document.kind != KIND:
        raise ConfigError(f"couldn't decode as {KIND}, got {GROUP}/v1, Kind={document.kind}: ")
    obj, problems = document.read(SCHEMA.message(message_name(KIND)))
    strict = [] if not problems else [", ".join(problems)]
    for i, profile in enumerate(obj.get("profiles") or ()):
        for j, config in enumerate(profile.get("pluginConfig") or ()):
            where = f"decoding .profiles[{i}].pluginConfig[{j}]: "
            args, wrong = _decoded_args(config.get("name") or "", config.get("args"), where)
            if wrong:
                strict.append(f"{where}strict decoding error: {wrong}")
            config["args"] = args
    if strict:
        raise ConfigError(f"strict decoding error: {', '.join(strict)}")
    return obj


def _decoded_args(plugin: str, raw: Any, where: str) -> tuple[Any, str]:
    """The arguments, and their strict decoding errors. Raises: ConfigError."""
    if plugin not in ARGS:
        return raw, ""
    told = f"decoding args for plugin {plugin}: "
    if raw is None:
        raw = {}
    expected = f"{plugin}Args"
    kind, version = (raw.get(key) or "" for key in ("kind", "apiVersion")) if isinstance(raw, dict) else ("", "")
    if version not in ("", API_VERSION) or (kind or expected) not in {f"{name}Args" for name in ARGS}:
        text = f"no kind {go_quote(kind or expected)} is registered for version {go_quote(version or API_VERSION)}"
        raise ConfigError(f"{where}{told}{text} in scheme {go_quote(SCHEME)}")
    try:
        obj, problems = read_value(raw, SCHEMA.message(message_name(kind or expected)))
    except DecodeError as error:
        raise ConfigError(f"{where}{told}{error}") from None
    if kind and kind != expected:
        raise ConfigError(f"{where}args for plugin {plugin} were not of type {expected}.{GROUP}, got {kind}.{GROUP}")
    if problems:
        return obj, f"{told}strict decoding error: {', '.join(problems)}"
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}, ""


# --- defaults -------------------------------------------------------------------------------------------------------


def with_defaults(given: Object, gates: FeatureGates) -> Object:
    full = deepcopy(given)
    full["apiVersion"], full["kind"] = API_VERSION, KIND
    profiles = full["profiles"] = full.get("profiles") or [{}]
    if len(profiles) == 1:
        profiles[0].setdefault("schedulerName", DEFAULT_SCHEDULER_NAME)
    for profile in profiles:
        profile.setdefault("schedulerName", "")
        _default_profile(profile, gates)
    full.setdefault("parallelism", 16)
    full.setdefault("percentageOfNodesToScore", 0)
    full.setdefault("podInitialBackoffSeconds", 1)
    full.setdefault("podMaxBackoffSeconds", 10)
    full.setdefault("enableProfiling", True)
    full.setdefault("enableContentionProfiling", full["enableProfiling"])
    election, client = full.setdefault("leaderElection", {}), full.setdefault("clientConnection", {})
    if election.get("leaderElect") is None:
        election["leaderElect"] = True
    for field, default in (
        ("leaseDuration", "15s"),
        ("renewDeadline", "10s"),
        ("retryPeriod", "2s"),
        ("resourceLock", "leases"),
        ("resourceName", "kube-scheduler"),
        ("resourceNamespace", "kube-system"),
    ):
        election[field] = default if election.get(field) in (None, "", "0s") else election[field]
    for field, value in (("contentType", "application/vnd.kubernetes.protobuf"), ("qps", 50), ("burst", 100)):
        client[field] = client.get(field) or value
    return full


def _build_extenders(full: Object) -> None:
    """Applies upstream's changes when constructing extenders, which it also writes out. Raises: ConfigError."""
    extenders = full.get("extenders") or ()
    for extender in extenders:
        if not duration_ns(extender.get("httpTimeout") or "0s"):
            extender["httpTimeout"] = EXTENDER_TIMEOUT
    managed = [resource for extender in extenders for resource in extender.get("managedResources") or ()]
    ignored = [resource["name"] for resource in managed if resource.get("ignoredByScheduler")]
    for profile in full["profiles"] if ignored else ():
        args = next((each["args"] for each in profile["pluginConfig"] if each["name"] == FIT), None)
        if args is None:
            raise ConfigError("couldn't build extenders: can't find NodeResourcesFitArgs in plugin config")
        # NodeResourcesFit ignores resources that extenders manage; this replaces its own list.
        args["ignoredResources"] = ignored


def _default_profile(profile: Object, gates: FeatureGates) -> None:
    sets = plugin_sets(profile.get("plugins") or {})
    plugins = profile["plugins"] = {
        point: _shown(merged(sets.get(point, PluginSet()), default_plugins(gates) if point == MULTI_POINT else ()))
        for point in (MULTI_POINT, *POINTS)
    }
    needed = sorted({each["name"] for point in plugins.values() for each in point.get("enabled", ())})
    configs = profile["pluginConfig"] = profile.get("pluginConfig") or []
    there = {config["name"] for config in configs}
    for config in configs:
        if config["name"] in ARGS:
            config["args"] = plugin_args.with_defaults(config["name"], config["args"])
    for name in needed:
        if name in ARGS and name not in there:
            configs.append({"name": name, "args": plugin_args.with_defaults(name, {})})


def plugin_sets(plugins: Mapping[str, Any]) -> dict[str, PluginSet]:
    """By point, a profile's plugin settings."""
    return {
        point: PluginSet(
            tuple((each["name"], each.get("weight") or 0) for each in said.get("enabled") or ()),
            tuple(each["name"] for each in said.get("disabled") or ()),
        )
        for point, said in plugins.items()
    }


def _shown(plugins: PluginSet) -> Object:
    found: Object = {}
    if plugins.enabled:
        found["enabled"] = [{"name": name, "weight": weight} for name, weight in plugins.enabled]
    if plugins.disabled:
        found["disabled"] = [{"name": name, "weight": 0} for name in plugins.disabled]
    return found


# --- validation -----------------------------------------------------------------------------------------------------


def _validate(full: Object) -> list[FieldError]:
    errors = _validate_process(full)
    profiles = full["profiles"]
    names: dict[str, int] = {}
    for i, profile in enumerate(profiles):
        path, name = f"profiles[{i}]", profile["schedulerName"]
        if not name:
            errors.append(required(f"{path}.schedulerName"))
        errors += _validate_share(profile.get("percentageOfNodesToScore"), f"{path}.percentageOfNodesToScore")
        errors += _validate_plugins(profile, path)
        if name in names:
            # Upstream prints the other path, which has no exported fields.
            errors.append(duplicate(f"{path}.schedulerName", Verbatim("{}")))
        names[name] = i
    errors += _validate_queue_sort(profiles)
    errors += _validate_share(full["percentageOfNodesToScore"], "percentageOfNodesToScore")
    first_s, last_s = full["podInitialBackoffSeconds"], full["podMaxBackoffSeconds"]
    if first_s <= 0:
        errors.append(invalid_value("podInitialBackoffSeconds", first_s, "must be greater than 0"))
    if last_s < first_s:
        text = "must be greater than or equal to PodInitialBackoffSeconds"
        errors.append(invalid_value("podMaxBackoffSeconds", last_s, text))
    return errors + _validate_extenders(full.get("extenders") or ())


def _validate_process(full: Object) -> list[FieldError]:
    errors = []
    burst, election = full["clientConnection"]["burst"], full["leaderElection"]
    if burst < 0:
        errors.append(invalid_value("clientConnection.burst", burst, "must be non-negative"))
    if election["leaderElect"]:
        durations = {name: duration_ns(election[name]) for name in ("leaseDuration", "renewDeadline", "retryPeriod")}
        for name, value in durations.items():
            if value <= 0:
                errors.append(invalid_value(f"leaderElection.{name}", election[name], "must be greater than zero"))
        if durations["leaseDuration"] <= durations["renewDeadline"]:
            text = "must be greater than `RenewDeadline`"
            errors.append(invalid_value("leaderElection.leaseDuration", election["renewDeadline"], text))
        if election["resourceLock"] != "leases":
            text = 'resourceLock value must be "leases"'
            errors.append(invalid_value("leaderElection.resourceLock", election["resourceLock"], text))
    if full["parallelism"] <= 0:
        text = "should be an integer value greater than zero"
        errors.append(invalid_value("parallelism", full["parallelism"], text))
    return errors


def _validate_share(percent: int | None, path: str) -> list[FieldError]:
    if percent is None or 0 <= percent <= 100:
        return []
    return [invalid_value(path, percent, "not in valid range [0-100]")]


def _removed(path: str, name: str) -> FieldError:
    version = API_VERSION.partition("/")[2]
    text = f'was invalid in version "{version}" (KubeSchedulerConfiguration is version "{API_VERSION}")'
    return invalid_value(path, name, text)


def _validate_plugins(profile: Object, path: str) -> list[FieldError]:
    errors = [
        _removed(f"{path}.plugins.{point}.enabled[{i}]", plugin["name"])
        for point in POINTS
        if not point.startswith("placement")
        for i, plugin in enumerate(profile["plugins"][point].get("enabled", ()))
        if plugin["name"] in REMOVED
    ]
    seen: set[str] = set()
    for i, config in enumerate(profile["pluginConfig"]):
        at, name = f"{path}.pluginConfig[{i}]", config["name"]
        if name in seen:
            errors.append(duplicate(at, name))
        seen.add(name)
        if name in REMOVED:
            errors.append(_removed(at, name))
        elif name in ARGS and name != plugin_args.CHECKED_BY_ITSELF:
            errors += plugin_args.validate(name, config["args"], f"{at}.args")
    return errors


def _validate_queue_sort(profiles: Sequence[Object]) -> list[FieldError]:
    errors = []
    first = profiles[0]["plugins"]["queueSort"]
    if len(first.get("enabled", ())) > 1:
        text = "only one queue sort plugin can be enabled"
        errors.append(invalid_value("profiles[0].plugins.queueSort.Enabled", len(first["enabled"]), text))
    for i, profile in enumerate(profiles[1:], 1):
        own = profile["plugins"]["queueSort"]
        if own != first:
            text = "must be the same for all profiles"
            errors.append(invalid_value(f"profiles[{i}].plugins.queueSort", _internal(own), text))
    return errors


def _internal(plugins: Object) -> Object:
    """A plugin set as upstream prints its internal form."""
    return {
        key: [{"Name": p["name"], "Weight": p["weight"]} for p in plugins[key.lower()]]
        if key.lower() in plugins
        else None
        for key in ("Enabled", "Disabled")
    }


def _validate_extenders(extenders: Sequence[Object]) -> list[FieldError]:
    errors: list[FieldError] = []
    binders = 0
    seen: set[str] = set()
    for i, extender in enumerate(extenders):
        path = f"extenders[{i}]"
        weight = extender.get("weight", 0)
        if extender.get("prioritizeVerb") and weight <= 0:
            errors.append(invalid_value(f"{path}.weight", weight, "must have a positive weight applied to it"))
        binders += bool(extender.get("bindVerb"))
        for j, resource in enumerate(extender.get("managedResources") or ()):
            at, name = f"{path}.managedResources[{j}].name", resource["name"]
            wrong = is_qualified_name(name)
            errors += [invalid_value(at, name, message) for message in wrong]
            if not wrong and not is_extended(name):
                errors.append(invalid_value(at, name, "is an invalid extended resource name"))
            if name in seen:
                errors.append(invalid_value(at, name, "duplicate extender managed resource name"))
            seen.add(name)
    if binders > 1:
        text = "only one extender can implement bind"
        errors.append(invalid_value("extenders", f"found {binders} extenders implementing bind", text))
    return errors
