"""Keys and values written by hand are those that protobuf's runtime writes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minikube_py.etcd.answers import MESSAGES_MAX, kvs_bytes, kvs_of, range_answer, range_response
from minikube_py.etcd.messages import pb
from minikube_py.mvcc.types import KeyValue, RangeResult

EDGES = [0, 1, 127, 128, 16_383, 16_384, (1 << 31) - 1, 1 << 31, (1 << 63) - 1, -1, -(1 << 63)]
NUMBERS = st.sampled_from(EDGES) | st.integers(-(1 << 63), (1 << 63) - 1)
BYTES = st.binary(max_size=20) | st.sampled_from([b"", bytes(127), bytes(128), bytes(16_384)])
KVS = st.lists(
    st.builds(KeyValue, BYTES.map(lambda key: key or b"k"), BYTES, NUMBERS, NUMBERS, NUMBERS, NUMBERS), max_size=20
)


@given(KVS)
def test_what_is_written_by_hand_is_what_the_runtime_writes(kvs: list[KeyValue]) -> None:
    assert kvs_bytes(2, kvs) == pb.RangeResponse(kvs=kvs_of(kvs)).SerializeToString()
    assert kvs_bytes(3, kvs) == pb.DeleteRangeResponse(prev_kvs=kvs_of(kvs)).SerializeToString()


@given(KVS, st.booleans(), NUMBERS)
def test_an_answer_is_the_same_with_few_keys_and_with_many(kvs: list[KeyValue], more: bool, count: int) -> None:
    def header(revision: int) -> object:
        return pb.ResponseHeader(revision=revision)

    result = RangeResult(kvs, count, more, 7)
    made = range_answer(header, result)
    assert (type(made) is bytes) == (len(kvs) > MESSAGES_MAX)
    read = pb.RangeResponse.FromString(made) if type(made) is bytes else made
    assert read == range_response(header, result)
