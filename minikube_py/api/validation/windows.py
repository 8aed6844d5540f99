"""Windows options of pods: users, credentials, and host process containers.

Source: `pkg/apis/core/validation` (validateWindowsSecurityContextOptions, validateWindowsHostProcessPod).
"""

from __future__ import annotations

import re
from typing import Final

from minikube_py.api.errors import FieldError, Json, invalid_value
from minikube_py.api.meta import is_dns1123_subdomain

CREDENTIAL_BYTES_MAX: Final = 64 << 10
DOMAIN_BYTES_MAX: Final = 256
USER_BYTES_MAX: Final = 104
_LABEL: Final = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_DNS: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NET_BIOS: Final = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}')
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_NOT_IN_USERS: Final = re.compile(r'["/\\:;|=,+*?<>@\[\]]')
_KINDS: Final = ("initContainers", "containers", "ephemeralContainers")
_ONLY_DOTS: Final = re.compile(r"[. ]+")


def validate_windows(options: Json | None, path: str) -> list[FieldError]:
    if not options:
        return []
    errors: list[FieldError] = []
    if (name := options.get("gmsaCredentialSpecName")) is not None:
        at = f"{path}.gmsaCredentialSpecName"
        errors += [invalid_value(at, name, message) for message in is_dns1123_subdomain(name)]
    if (spec := options.get("gmsaCredentialSpec")) is not None:
        at, size = f"{path}.gmsaCredentialSpec", len(spec.encode())
        if not size:
            errors.append(invalid_value(at, spec, "gmsaCredentialSpec cannot be an empty string"))
        elif size > CREDENTIAL_BYTES_MAX:
            limit = f"gmsaCredentialSpec size must be under {CREDENTIAL_BYTES_MAX >> 10} KiB"
            errors.append(invalid_value(at, spec, limit))
    if (user := options.get("runAsUserName")) is not None:
        errors += [invalid_value(f"{path}.runAsUserName", user, f"runAsUserName{wrong}") for wrong in _wrong_user(user)]
    return errors


def _wrong_user(text: str) -> list[str]:
    if not text:
        return [" cannot be an empty string"]
    if _CONTROL.search(text):
        return [" cannot contain control characters"]
    domain, backslash, user = text.rpartition("\\")
    if "\\" in domain:
        return [" cannot contain more than one backslash"]
    found = []
    if len(domain.encode()) >= DOMAIN_BYTES_MAX:
        found.append(f"'s Domain length must be under {DOMAIN_BYTES_MAX} characters")
    if backslash and not (_NET_BIOS.fullmatch(domain) or _DNS.fullmatch(domain)):
        found.append("'s Domain doesn't match the NetBios nor the DNS format")
    if not user:
        found.append("'s User cannot be empty")
    elif len(user.encode()) > USER_BYTES_MAX:
        found.append(f"'s User length must not be longer than {USER_BYTES_MAX} characters")
    if _ONLY_DOTS.fullmatch(user):
        found.append("'s User cannot contain only periods or spaces")
    if _NOT_IN_USERS.search(user):
        found.append('\'s User cannot contain the following characters: "/\\:;|=,+*?<>@[]')
    return found


def validate_host_process(spec: Json, path: str) -> list[FieldError]:
    """Either all containers of a pod are host processes, or none."""
    own = _host_process(spec)
    errors: list[FieldError] = []
    if own is None and not any("securityContext" in each for kind in _KINDS for each in spec.get(kind) or ()):
        return errors
    chosen = []
    for kind in _KINDS:
        for i, container in enumerate(spec.get(kind) or ()):
            theirs = _host_process(container)
            if own is not None and theirs is not None and own != theirs:
                at = f"{path}.{kind}[{i}].securityContext.windowsOptions.hostProcess"
                told = f"pod hostProcess value must be identical if both are specified, was {str(own).lower()}"
                errors.append(invalid_value(at, theirs, told))
            chosen.append(own if theirs is None else theirs)
    if any(chosen):
        if not all(chosen):
            why = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
            errors.append(invalid_value(path, "", why))
        if not spec.get("hostNetwork"):
            why = "hostNetwork must be true if pod contains any hostProcess containers"
            errors.append(invalid_value(f"{path}.hostNetwork", False, why))
    return errors


def _host_process(holder: Json) -> bool | None:
    found: bool | None = ((holder.get("securityContext") or {}).get("windowsOptions") or {}).get("hostProcess")
    return found
