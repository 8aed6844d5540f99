"""Message classes from the table of `schema`, by protobuf's runtime, in a separate pool: no conflict with other
packages that include etcd's definitions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from minikube_py.etcd.schema import ENUMS, MESSAGES, lines

PACKAGE: Final = "etcdserverpb"


def _build(*, whole: bool) -> dict[str, Any]:
    """`whole`: with the messages marked by `!` in place of their bytes."""
    file = descriptor_pb2.FileDescriptorProto(name="minikube_py/etcd.proto", package=PACKAGE, syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    enums = {name for name, *_ in lines(ENUMS)}
    for name, *values in lines(ENUMS):
        # An enum's values share the enclosing scope, so each message's enums get a separate one.
        enum = file.message_type.add(name=f"{name}Of").enum_type.add(name=name)
        for at, value in enumerate(values):
            enum.value.add(name=value, number=at)
    for name, *fields in lines(MESSAGES):
        message = file.message_type.add(name=name)
        for position, word in enumerate(fields, start=1):
            choice, _, named = word.rpartition("/")
            field_name, _, kind = named.partition(":")
            kind, _, number = kind.partition("=")
            field = message.field.add(name=field_name, number=int(number) if number else position)
            first, *rest = field_name.split("_")
            field.json_name = first + "".join(word[:1].upper() + word[1:] for word in rest)
            field.label = kinds.LABEL_REPEATED if kind.startswith("*") else kinds.LABEL_OPTIONAL
            kind = kind.lstrip("*")
            if kind in enums:
                field.type, field.type_name = kinds.TYPE_ENUM, f".{PACKAGE}.{kind}Of.{kind}"
            elif kind.endswith("!") and not whole:
                field.type = kinds.TYPE_BYTES
            elif kind[0].isupper():
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".{PACKAGE}.{kind.rstrip('!')}"
            else:
                field.type = getattr(kinds, f"TYPE_{kind.upper()}")
            if choice:
                if not message.oneof_decl:
                    message.oneof_decl.add(name=choice)
                field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindFileByName(file.name).message_types_by_name
    return {name: message_factory.GetMessageClass(found[name]) for name, *_ in lines(MESSAGES)}


BY_NAME: Final = _build(whole=False)
WHOLE_BY_NAME: Final = _build(whole=True)
"""For JSON, where nested messages are not bytes."""
pb: Final[Any] = SimpleNamespace(**BY_NAME)
"""`pb.RangeRequest` and so on."""
