"""IP addresses and networks as Go's net/netip reads them, with its error messages."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any, Final

from minikube_py.cel.values import CIDR, IP, EvaluationError, go_quote, no_overload

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_GROUP: Final = re.compile(r"[0-9a-fA-F]*")
_BITS: Final = re.compile(r"0|[1-9][0-9]*")


class NoAddress(Exception):
    def __init__(self, what: str, at: str = "") -> None:
        super().__init__(f"{what} (at {go_quote(at)})" if at else what)


def _check_ipv4(text: str) -> None:
    value = digits = fields = 0
    for i, char in enumerate(text):
        if char in "0123456789":
            if digits == 1 and value == 0:
                raise NoAddress("IPv4 field has octet with leading zero")
            value, digits = value * 10 + int(char), digits + 1
            if value > 255:
                raise NoAddress("IPv4 field has value >255")
        elif char == ".":
            if i in (0, len(text) - 1) or text[i - 1] == ".":
                raise NoAddress("IPv4 field must have at least one digit", text[i:])
            if fields == 3:
                raise NoAddress("IPv4 address too long")
            value, digits, fields = 0, 0, fields + 1
        else:
            raise NoAddress("unexpected character", text[i:])
    if fields < 3:
        raise NoAddress("IPv4 address too short")


def _check_ipv6(whole: str) -> None:
    text, percent, zone = whole.partition("%")
    if percent and not zone:
        raise NoAddress("zone must be a non-empty string")
    filled, ellipsis = 0, text.startswith("::")
    if ellipsis:
        text = text[2:]
        if not text:
            return
    while filled < 16:
        group = _GROUP.match(text)
        assert group is not None
        if len(group[0]) > 4:
            raise NoAddress("each group must have 4 or less digits", text)
        if not group[0]:
            raise NoAddress("each colon-separated field must have at least one digit", text)
        if text.startswith(".", group.end()):
            if not ellipsis and filled != 12:
                raise NoAddress("embedded IPv4 address must replace the final 2 fields of the address", text)
            if filled > 12:
                raise NoAddress("too many hex fields to fit an embedded IPv4 at the end of the address", text)
            _check_ipv4(text)
            text, filled = "", filled + 4
            break
        text, filled = text[group.end() :], filled + 2
        if not text:
            break
        if not text.startswith(":"):
            raise NoAddress("unexpected character, want colon", text)
        if len(text) == 1:
            raise NoAddress("colon must be followed by more characters", text)
        text = text[1:]
        if text.startswith(":"):
            if ellipsis:
                raise NoAddress("multiple :: in address", text)
            ellipsis, text = True, text[1:]
            if not text:
                break
    if text:
        raise NoAddress("trailing garbage after address", text)
    if filled < 16 and not ellipsis:
        raise NoAddress("address string too short")
    if filled == 16 and ellipsis:
        raise NoAddress("the :: must expand to at least one field of zeros")


def read_address(text: str) -> Address:
    """Without its zone. Raises: NoAddress."""
    try:
        first = next((char for char in text if char in ".:%"), "")
        if first == ".":
            _check_ipv4(text)
        elif first == ":":
            _check_ipv6(text)
        else:
            raise NoAddress("missing IPv6 address" if first else "unable to parse IP")
    except NoAddress as error:
        raise NoAddress(f"ParseAddr({go_quote(text)}): {error}") from None
    return ipaddress.ip_address(text.partition("%")[0])


def _is_mapped(address: Address) -> bool:
    return isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None


def ip_of(text: str) -> Any:
    quoted = go_quote(text)
    try:
        found = read_address(text)
    except NoAddress as error:
        return EvaluationError(f"IP Address {quoted} parse error during conversion from string: {error}")
    if "%" in text:
        return EvaluationError(f"IP address {quoted} with zone value is not allowed")
    if _is_mapped(found):
        return EvaluationError(f"IPv4-mapped IPv6 address {quoted} is not allowed")
    return IP(found)


def cidr_of(text: str) -> Any:
    said = "network address parse error during conversion from string: "
    address, slash, bits = text.rpartition("/")
    quoted = go_quote(text)
    try:
        if not slash:
            raise NoAddress("no '/'")
        found = read_address(address)
        if "%" in address:
            raise NoAddress("IPv6 zones cannot be present in a prefix")
        if _BITS.fullmatch(bits) is None or len(bits) > 18:
            raise NoAddress(f"bad bits after slash: {go_quote(bits)}")
        if int(bits) > found.max_prefixlen:
            raise NoAddress("prefix length out of range")
    except NoAddress as error:
        return EvaluationError(f"{said}{said}netip.ParsePrefix({quoted}): {error}")
    if _is_mapped(found):
        return EvaluationError(f"{said}IPv4-mapped IPv6 address {quoted} is not allowed")
    return CIDR(found, int(bits))


def _is_canonical(text: str) -> Any:
    found = ip_of(text)
    return found if type(found) is EvaluationError else str(found.address) == text


def _contains_ip(network: CIDR, other: Any) -> Any:
    if type(other) is EvaluationError:
        return no_overload()
    return other.address.version == network.address.version and other.address in network.network


def _contains_cidr(network: CIDR, other: Any) -> Any:
    if type(other) is EvaluationError:
        return other
    return network.bits <= other.bits and _contains_ip(network, IP(other.address))


def _is_global_unicast(ip: IP) -> bool:
    """As in Go: not unspecified, loopback, multicast, link-local or broadcast."""
    address = ip.address
    special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not (special or address.packed == b"\xff\xff\xff\xff")


def _is_link_local_multicast(ip: IP) -> bool:
    packed = ip.address.packed
    return packed[:3] == b"\xe0\0\0" if len(packed) == 4 else packed[0] == 0xFF and packed[1] & 0x0F == 2


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "string_to_ip": ip_of,
    "cidr_ip": lambda network: IP(network.address),
    "ip_family": lambda ip: ip.address.version,
    "ip_is_canonical": _is_canonical,
    "ip_is_unspecified": lambda ip: ip.address.is_unspecified,
    "ip_is_loopback": lambda ip: ip.address.is_loopback,
    "ip_is_link_local_multicast": _is_link_local_multicast,
    "ip_is_link_local_unicast": lambda ip: ip.address.is_link_local,
    "ip_is_global_unicast": _is_global_unicast,
    "is_ip": lambda text: type(ip_of(text)) is IP,
    "string_to_cidr": cidr_of,
    "is_cidr": lambda text: type(cidr_of(text)) is CIDR,
    "cidr_contains_ip_string": lambda network, text: _contains_ip(network, ip_of(text)),
    "cidr_contains_ip_ip": _contains_ip,
    "cidr_contains_cidr_string": lambda network, text: _contains_cidr(network, cidr_of(text)),
    "cidr_contains_cidr": _contains_cidr,
    "cidr_prefix_length": lambda network: network.bits,
    "cidr_masked": lambda network: CIDR(network.network.network_address, network.bits),
}
