"""Expressions in CEL, drawn by their types, with values at the edges of each: for `record_evaluations --drawn`."""

from __future__ import annotations

import random
from typing import Final

_LEAVES: Final[dict[str, tuple[str, ...]]] = {
    "int": ("0", "1", "-1", "7", "9223372036854775807", "-9223372036854775808", "v.a", "size(v.b)", "v.missing"),
    "uint": ("0u", "1u", "18446744073709551615u", "9223372036854775808u"),
    "double": ("0.0", "-0.0", "1.5", "1e308", "5e-324", "9223372036854775807.0", "1e21", "double('NaN')", "0.1"),
    "bool": ("true", "false", "v.on", "has(v.a)", "has(v.none)", "device.allowMultipleAllocations"),
    "string": ("''", "'a'", "'abcabc'", "'é😀z'", "'A,b;C'", "'2001:db8::1'", "'1.5Gi'", "'1.2.3'", "v.c.d", "' x\\t'",
               "'http://u@h:80/p?q=1'", "device.driver"),
    "bytes": ("b''", "b'a'", "b'\\xff\\x00'", "b'é'"),
    "duration": ("duration('0')", "duration('1.5s')", "duration('-2562047h47m16.854775808s')", "duration('90m')"),
    "timestamp": ("timestamp('0001-01-01T00:00:00Z')", "timestamp('9999-12-31T23:59:59.999999999Z')",
                  "timestamp('2024-02-29T12:30:45.123456789+05:30')", "timestamp(0)"),
    "list": ("[]", "[1, 2, 3]", "[3, 1, 2, 1]", "[v.a, 5]", "[9223372036854775807, 1]"),
    "strings": ("['b', 'a', 'é']", "[]", "'a,b,c'.split(',')", "['a', v.c.d]"),
    "map": ("{}", "{'a': 1}", "{'b': v.a}", "{'x': -1}"),
    "quantity": ("quantity('1.5Gi')", "quantity('100m')", "quantity('-1')", "quantity('12e6')", "quantity('0')"),
    "semver": ("semver('1.2.3')", "semver('1.2.3-rc.1+b')", "semver('1.2.3-rc.10')", "semver('v1.02', true)"),
    "ip": ("ip('127.0.0.1')", "ip('::1')", "ip('fe80::1')", "ip('224.0.0.1')", "ip('255.255.255.255')"),
    "cidr": ("cidr('10.0.0.0/8')", "cidr('2001:db8::/32')", "cidr('10.1.2.3/32')", "cidr('0.0.0.0/0')"),
    "format": ("format.dns1123Label()", "format.qualifiedName()", "format.uri()", "format.date()", "format.byte()"),
    "optional": ("optional.none()", "optional.of(1)", "v.?a", "v.?none", "optional.ofNonZeroValue(0)"),
    "dyn": ("v", "v.a", "v.b", "v.c", "v.b[2]", "v.b[3]", "v.none", "v.b[9]", "dyn(1u)", "dyn('a')", "dyn(1.0)"),
}  # fmt: skip
_RULES: Final[dict[str, tuple[str, ...]]] = {
    "int": ("{int} + {int}", "{int} - {int}", "{int} * {int}", "{int} / {int}", "{int} % {int}", "-({int})",
            "size({string})", "size({list})", "int({uint})", "int({double})", "int({timestamp})", "int({string})",
            "{string}.indexOf({string})", "{string}.lastIndexOf({string}, {int})", "{timestamp}.getHours()",
            "{timestamp}.getDayOfYear('+14:00')", "{timestamp}.getDayOfWeek()", "{timestamp}.getMilliseconds()",
            "{duration}.getMinutes()", "{duration}.getMilliseconds()", "{list}[{int}]", "{list}.sum()", "{list}.max()",
            "{map}['a']", "{map}[{string}]", "{bool} ? {int} : {int}", "{optional}.orValue({int})",
            "{optional}.value()", "sign({quantity})", "{quantity}.compareTo({quantity})", "{quantity}.asInteger()",
            "{semver}.compareTo({semver})", "{semver}.minor()", "{ip}.family()", "{cidr}.prefixLength()",
            "cel.bind(x, {int}, x + x)", "{list}.indexOf({int})", "{dyn} + 1", "int({dyn})"),
    "uint": ("{uint} + {uint}", "{uint} - {uint}", "{uint} * {uint}", "{uint} / {uint}", "{uint} % {uint}",
             "uint({int})", "uint({double})", "uint({string})"),
    "double": ("{double} + {double}", "{double} / {double}", "{double} * {double}", "double({int})", "double({uint})",
               "double({string})", "-({double})", "{quantity}.asApproximateFloat()"),
    "bool": ("{int} < {int}", "{int} <= {uint}", "{double} > {int}", "{uint} >= {double}", "{string} < {string}",
             "{bytes} <= {bytes}", "{timestamp} < {timestamp}", "{duration} > {duration}", "{bool} && {bool}",
             "{bool} || {bool}", "!{bool}", "{int} == {int}", "{dyn} == {dyn}", "{dyn} != {dyn}",
             "{double} == {double}",
             "{list} == {list}", "{map} == {map}", "{int} in {list}", "{string} in {map}", "{dyn} in {dyn}",
             "{int} in [1, 2, 3]", "{string}.contains({string})", "{string}.startsWith({string})",
             "{string}.matches('^[a-z]+$')", "{string}.matches('(a|b)*c?')", "bool({string})",
             "{list}.all(x, x > {int})", "{list}.exists(x, {int} / x > 0)", "{list}.exists_one(x, x == {int})",
             "{list}.all(i, x, i < x)", "{list}.exists(i, x, x == i)", "sets.contains({list}, {list})",
             "sets.intersects({list}, {list})", "sets.equivalent({list}, {list})", "{optional}.hasValue()",
             "{quantity}.isLessThan({quantity})", "{quantity} == {quantity}", "isQuantity({string})",
             "{quantity}.isInteger()", "{semver}.isGreaterThan({semver})", "{semver} == {semver}", "isSemver({string})",
             "{format} == {format}", "{format}.validate({string}).hasValue()", "{list}.reverse().all(x, x > {int})",
             "{int} in {list}.sort()", "{list}.distinct().isSorted()", "sets.contains({list}, lists.range({int}))",
             "{dyn}.orValue({bool}) == {dyn}", "isIP({string})", "isCIDR({string})",
             "{cidr}.containsIP({ip})", "{cidr}.containsCIDR({cidr})",
             "{cidr}.containsIP({string})", "{ip}.isGlobalUnicast()", "{ip}.isLoopback()", "{ip} == {ip}",
             "ip.isCanonical({string})", "isURL({string})", "type({dyn}) == int", "{dyn} < {dyn}", "{list}.isSorted()",
             "{dyn}.exists(x, x == 1)", "has(v.c.{name})", "has({map}.a)", "url({string}).getHost() == {string}"),
    "string": ("{string} + {string}", "string({int})", "string({uint})", "string({double})", "string({bool})",
               "string({bytes})", "string({duration})", "string({timestamp})", "string({ip})", "string({cidr})",
               "string({dyn})", "{string}.substring({int})", "{string}.substring({int}, {int})",
               "{string}.charAt({int})",
               "{string}.replace({string}, {string})", "{string}.replace({string}, {string}, {int})",
               "{string}.lowerAscii()", "{string}.upperAscii()", "{string}.trim()", "{strings}.join({string})",
               "{string}.find('[a-c]+')", "{strings}[{int}]", "strings.quote({string})", "{strings}.max()",
               "'%s|%d|%s'.format([{dyn}, {int}, {list}])", "'%f'.format([{double}])", "'%e'.format([{double}])",
               "'%x|%b'.format([{int}, {uint}])",
               "{format}.validate({string}).orValue([]).join()", "{dyn}.orValue({string})",
               "url({string}).getPort()", "{bool} ? {string} : {string}"),
    "bytes": ("{bytes} + {bytes}", "bytes({string})"),
    "duration": ("{duration} + {duration}", "{duration} - {duration}", "{timestamp} - {timestamp}", "-({duration})",
                 "duration({string})"),
    "timestamp": ("{timestamp} + {duration}", "{duration} + {timestamp}", "{timestamp} - {duration}",
                  "timestamp({int})", "timestamp({string})"),
    "list": ("{list} + {list}", "{list}.map(x, x * {int})", "{list}.filter(x, x > {int})",
             "{list}.map(x, x > 1, x + 1)",
             "{list}.slice({int}, {int})", "[{list}, {list}].flatten()", "{list}.distinct()", "{list}.sort()",
             "{list}.reverse()", "{list}.sortBy(x, -x)", "lists.range(3)", "{list}.transformList(i, x, i + x)",
             "[?{optional}, 1]", "{map}.map(k, {map}[k])", "[{int}, {int}]"),
    "strings": ("{string}.split({string})", "{string}.split({string}, {int})", "{string}.findAll('[a-c]')",
                "{string}.findAll('a|b*', 2)", "{strings}.sort()", "{strings}.map(x, x + {string})", "{map}.map(k, k)"),
    "map": ("{{'a': {int}}}", "{map}.transformMap(k, x, x + {int})", "{{?'a': {optional}}}",
            "{list}.transformMapEntry(i, x, {{string(x): i}})", "{bool} ? {map} : {map}"),
    "quantity": ("{quantity}.add({quantity})", "{quantity}.sub({quantity})", "{quantity}.add({int})",
                 "quantity({string})"),
    "semver": ("semver({string})", "semver({string}, true)"),
    "format": ("format.named('uuid').value()", "format.named({string}).orValue({format})"),
    "ip": ("ip({string})", "{cidr}.ip()"),
    "cidr": ("cidr({string})", "{cidr}.masked()"),
    "optional": ("optional.of({int})", "{optional}.or({optional})", "{list}[?{int}]", "{map}[?'a']",
                 "{optional}.optMap(x, x + {int})", "{list}.first()", "{map}.?b", "optional.ofNonZeroValue({int})"),
    "dyn": ("dyn({int})", "dyn({string})", "dyn({list})", "dyn({double})", "v.b[{int}]", "v[{string}]", "dyn({map})",
            "dyn({uint})", "v.c[{dyn}]", "dyn({bool})", "dyn(null)"),
}  # fmt: skip


def drawn(rng: random.Random, of: str, depth: int) -> str:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(_LEAVES[of])
    rule = rng.choice(_RULES[of])
    parts = dict.fromkeys((*_LEAVES, "name"), "")
    found, at = "", 0
    while at < len(rule):
        end = rule.find("}", at)
        if rule[at] == "{" and rule[at + 1] != "{" and rule[at + 1 : end] in parts:
            name = rule[at + 1 : end]
            inner = rng.choice("ade") if name == "name" else drawn(rng, name, depth - 1)
            found += inner if name == "name" or inner.replace(".", "").isalnum() else f"({inner})"
            at = end + 1
        elif rule.startswith(("{{", "}}"), at):
            found += rule[at]
            at += 2
        else:
            found += rule[at]
            at += 1
    return found


def expressions(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    return [drawn(rng, rng.choice(tuple(_LEAVES)), rng.randint(1, 3)) for _ in range(count)]
