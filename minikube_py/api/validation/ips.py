"""IP addresses and CIDRs as upstream's older fields take them: leading zeros are ignored, not refused."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from minikube_py.api.errors import FieldError, invalid_value
from minikube_py.fields.digits import whole_number

Address = IPv4Address | IPv6Address
NOT_AN_IP: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
NOT_A_CIDR: Final = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_LEADING_ZEROS: Final = re.compile(r"(?<![0-9a-fA-F:])0+(?=[0-9])")
_LIMIT: Final = 64
_USUAL: Final = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?:\.(?!$)|$)){4}")
"""Common IPv4 notation: valid without further checks."""


def parse_ip(text: str) -> Address | None:
    """None where it is no address. A zone (`fe80::1%eth0`) is none."""
    if not text or len(text) > _LIMIT or "%" in text or not text.isascii():
        return None
    try:
        return ip_address(_LEADING_ZEROS.sub("", text) if "." in text else text)
    except ValueError:
        return None


def parse_cidr(text: str) -> IPv4Network | IPv6Network | None:
    address, slash, length = text.partition("/")
    if not slash or not length.isascii() or not length.isdigit() or parse_ip(address) is None:
        return None
    try:
        return ip_network(f"{parse_ip(address)}/{whole_number(length)}", strict=False)
    except ValueError:
        return None


def _is_mapped(address: Address) -> bool:
    return isinstance(address, IPv6Address) and address.ipv4_mapped is not None


def validate_ip(text: str, path: str, known: tuple[str, ...] = ()) -> list[FieldError]:
    """`known`: stored values that may stay."""
    if text in known or _USUAL.fullmatch(text) is not None:
        return []
    address = parse_ip(text)
    if address is None:
        return [invalid_value(path, text, NOT_AN_IP)]
    if _has_leading_zeros(text):
        return [invalid_value(path, text, "must not have leading 0s")]
    if _is_mapped(address):
        return [invalid_value(path, text, "must not be an IPv4-mapped IPv6 address")]
    return []


def _has_leading_zeros(text: str) -> bool:
    return "." in text and _LEADING_ZEROS.search(text) is not None


def validate_canonical_ip(text: str, path: str) -> list[FieldError]:
    """In the one form in which Go prints it."""
    errors = validate_ip(text, path)
    if not errors and str(parse_ip(text)) != text:
        errors.append(invalid_value(path, text, f'must be in canonical form ("{parse_ip(text)}")'))
    return errors


def ip_warnings(text: str, path: str) -> list[str]:
    """What is said of an address that `validate_ip` lets pass."""
    address = parse_ip(text)
    if address is None or str(address) == text:
        return []
    if _is_mapped(address) or address.version == 4:
        shown = getattr(address, "ipv4_mapped", None) or address
        return [f'{path}: non-standard IP address "{text}" is invalid: use "{shown}"']
    return [f'{path}: IPv6 address "{text}" should be in RFC 5952 canonical format ("{address}")']


def cidr_warnings(text: str, path: str) -> list[str]:
    """What is said of a network that `validate_cidr` lets pass."""
    if ":" not in text or (network := parse_cidr(text)) is None or str(network) == text:
        return []
    return [f'{path}: IPv6 CIDR value "{text}" should be in RFC 5952 canonical format ("{network}")']


def validate_cidr(text: str, path: str, known: tuple[str, ...] = ()) -> list[FieldError]:
    if text in known:
        return []
    network = parse_cidr(text)
    if network is None:
        return [invalid_value(path, text, NOT_A_CIDR)]
    address_text, _, length = text.partition("/")
    if _has_leading_zeros(address_text) or str(whole_number(length)) != length:
        return [invalid_value(path, text, "must not have leading 0s in IP or prefix length")]
    address = parse_ip(address_text)
    if address is not None and _is_mapped(address):
        return [invalid_value(path, text, "must not have an IPv4-mapped IPv6 address")]
    if address != network.network_address:
        return [invalid_value(path, text, "must not have bits set beyond the prefix length")]
    return []


def is_ipv6(text: str) -> bool:
    address = parse_ip(text)
    return address is not None and address.version == 6 and address.ipv4_mapped is None


def is_dual_stack(addresses: list[str]) -> bool:
    """At least one of each family."""
    return len({is_ipv6(address) for address in addresses}) == 2


def validate_endpoint_ip(text: str, path: str) -> list[FieldError]:
    """Addresses that a service may send to."""
    address = parse_ip(text)
    if address is None:
        return [invalid_value(path, text, "must be a valid IP address")]
    if address.version == 6 and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    errors: list[FieldError] = []
    if address.is_unspecified:
        errors.append(invalid_value(path, text, f"may not be unspecified ({text})"))
    if address.is_loopback:
        errors.append(invalid_value(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
    if _in(address, "169.254.0.0/16", "fe80::/10"):
        errors.append(invalid_value(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
    if _in(address, "224.0.0.0/24", "ff02::/16"):
        detail = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
        errors.append(invalid_value(path, text, detail))
    return errors


def _in(address: Address, v4: str, v6: str) -> bool:
    if isinstance(address, IPv4Address):
        return address in IPv4Network(v4)
    return address in IPv6Network(v6)
