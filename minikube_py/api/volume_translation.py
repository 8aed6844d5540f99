"""Translates volumes of former in-tree plugins to the CSI drivers that replaced them.

Only what scheduling and attaching need: a volume's plugin, its driver, its handle ("" for azureFile, which neither
needs), and the topology that reaches it. Source: `csi-translation-lib`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
ZONES_SEPARATOR: Final = "__"
_UNSPECIFIED: Final = "UNSPECIFIED"
_AWS_VOLUME: Final = re.compile(r"vol-[^/]*")


class TranslationError(Exception):
    """The volume is invalid for its driver."""


class InTree(NamedTuple):
    """`handle(source, labels)`: the volume's handle; labels are None for a pod's inline volume. `topology_key`: the
    node label that the driver uses for zones, "" for none. `is_on`: whether the scheduler treats the plugin as
    replaced."""

    plugin: str
    driver: str
    handle: Callable[[Mapping[str, Any], Mapping[str, str] | None], str]
    topology_key: str = ""
    is_on: bool = True


def _aws_handle(source: Mapping[str, Any], labels: Mapping[str, str] | None) -> str:
    text = str(source.get("volumeID") or "")
    if not text.startswith("aws://"):
        return text
    try:
        found = urlsplit(text).path.strip("/")
    except ValueError:
        # Brackets that hold no address.
        found = ""
    if not _AWS_VOLUME.fullmatch(found):
        raise TranslationError(
            f"failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({text})"
        )
    return found


def _gce_handle(source: Mapping[str, Any], labels: Mapping[str, str] | None) -> str:
    name = source.get("pdName") or ""
    text = "" if labels is None else labels.get(BETA_ZONE) or labels.get(ZONE) or ""
    zones = text.split(ZONES_SEPARATOR)
    if len(zones) > 1:
        return f"projects/{_UNSPECIFIED}/regions/{_gce_region(zones)}/disks/{name}"
    return f"projects/{_UNSPECIFIED}/zones/{zones[0] or _UNSPECIFIED}/disks/{name}"


def _gce_region(zones: list[str]) -> str:
    regions: dict[str, None] = {}
    for zone in zones:
        parts = zone.split("-")
        if len(parts) != 3:
            expected = "zone in unexpected format, expected: {locale}-{region}-{zone}"
            raise TranslationError(f"failed to get region from zones: {expected}, got: {zone}")
        regions["-".join(parts[:2])] = None
    if len(regions) != 1:
        listed = " ".join(f"{region}:{{}}" for region in sorted(regions))
        raise TranslationError(
            f"failed to get region from zones: multiple or no regions gotten from zones, got: map[{listed}]"
        )
    return next(iter(regions))


def _azure_handle(source: Mapping[str, Any], labels: Mapping[str, str] | None) -> str:
    kind = source.get("kind")
    if kind is not None and kind.lower() != "managed":
        raise TranslationError(f"kind({kind}) is not supported in csi migration")
    return str(source.get("diskURI") or "")


def _id_handle(source: Mapping[str, Any], labels: Mapping[str, str] | None) -> str:
    return str(source.get("volumeID") or "")


def _path_handle(source: Mapping[str, Any], labels: Mapping[str, str] | None) -> str:
    return str(source.get("volumePath") or "")


_OFF: Final = False
IN_TREE: Final[Mapping[str, InTree]] = {
    "awsElasticBlockStore": InTree(
        "kubernetes.io/aws-ebs", "ebs.csi.aws.com", _aws_handle, "topology.ebs.csi.aws.com/zone"
    ),
    "azureDisk": InTree("kubernetes.io/azure-disk", "disk.csi.azure.com", _azure_handle),
    "azureFile": InTree("kubernetes.io/azure-file", "file.csi.azure.com", _id_handle, is_on=_OFF),
    "cinder": InTree(
        "kubernetes.io/cinder", "cinder.csi.openstack.org", _id_handle, "topology.cinder.csi.openstack.org/zone"
    ),
    "gcePersistentDisk": InTree("kubernetes.io/gce-pd", "pd.csi.storage.gke.io", _gce_handle, "topology.gke.io/zone"),
    "portworxVolume": InTree("kubernetes.io/portworx-volume", "pxd.portworx.com", _id_handle),
    "vsphereVolume": InTree("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", _path_handle, is_on=_OFF),
}
"""By the volume field of the source."""
BY_PLUGIN: Final[Mapping[str, InTree]] = {each.plugin: each for each in IN_TREE.values()}


def in_tree_of(spec: Mapping[str, Any]) -> tuple[InTree, Mapping[str, Any]] | None:
    """The in-tree plugin of a persistent volume's spec, and its source."""
    for field, plugin in IN_TREE.items():
        source = spec.get(field)
        if source is not None:
            return plugin, source
    return None


def translated_affinity(volume: Mapping[str, Any], topology_key: str) -> Mapping[str, Any]:
    """The volume's spec with zones under the driver's key, from its node affinity or else from its labels."""
    spec, labels = volume["spec"], volume["metadata"].get("labels") or {}
    required = (spec.get("nodeAffinity") or {}).get("required") or {}
    terms = [dict(term) for term in required.get("nodeSelectorTerms") or ()]
    zone, region = _labels_in_use(terms, labels)
    renamed = {}
    if _values(terms, zone):
        renamed[zone] = topology_key
    elif zone in labels:
        zones = sorted({text.strip() for text in labels[zone].split(ZONES_SEPARATOR)} - {""})
        if zones:
            asked = {"key": topology_key, "operator": "In", "values": zones}
            terms = terms or [{}]
            for term in terms:
                term["matchExpressions"] = [*(term.get("matchExpressions") or ()), asked]
    if region == BETA_REGION and _values(terms, region):
        renamed[region] = REGION
    for term in terms:
        expressions = term.get("matchExpressions") or ()
        term["matchExpressions"] = [{**each, "key": renamed.get(each["key"], each["key"])} for each in expressions]
    found: dict[str, Any] = dict(spec)
    if terms:
        found["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    return found


def _keys(terms: list[dict[str, Any]]) -> set[str]:
    return {each["key"] for term in terms for each in term.get("matchExpressions") or ()}


def _values(terms: list[dict[str, Any]], key: str) -> bool:
    """Whether an expression has values for the label."""
    return any(
        each["key"] == key and each.get("values") for term in terms for each in term.get("matchExpressions") or ()
    )


def _labels_in_use(terms: list[dict[str, Any]], labels: Mapping[str, str]) -> tuple[str, str]:
    """The zone and region labels that describe the volume: current or beta."""
    keys = _keys(terms)
    if ZONE not in keys and (BETA_ZONE in keys or (ZONE not in labels and BETA_ZONE in labels)):
        return BETA_ZONE, BETA_REGION
    return ZONE, REGION
