"""Stages that are refused when they are read: with file and line, and with what is understood; and those that are
too much, whoever wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikube_py.stages import go_values, jq, template
from minikube_py.stages.errors import NotUnderstood, StageFailed, StageRefused
from minikube_py.stages.expressions import parse_duration_s
from minikube_py.stages.files import load

GOOD = """apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: a
spec:
  resourceRef:
    kind: Pod
  selector:
    matchExpressions:
    - key: .status.phase
      operator: In
      values: [Pending]
  weight: 1
  delay:
    durationMilliseconds: 10
  next:
    statusTemplate: |
      phase: Running
      startTime: {{ Now | Quote }}
"""


def refused(tmp_path: Path, text: str | bytes) -> str:
    file = tmp_path / "s.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(StageRefused) as caught:
        load([file])
    message = str(caught.value)
    assert message.startswith(f"{file}:"), message
    assert len(message) < 1500
    return message.removeprefix(f"{file}:")


def test_what_is_good_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "b.json").write_text("{}")
    with pytest.raises(StageRefused, match=r"b.json:1: apiVersion: kwok.x-k8s.io/v1alpha1 is expected"):
        load([tmp_path])
    (tmp_path / "b.json").write_text('{"kind": "StorageClass", "apiVersion": "storage.k8s.io/v1"}')
    found = load([tmp_path])
    assert [stage.name for stage in found.all] == ["a"]
    assert found.others == (f"{tmp_path / 'b.json'} (StorageClass)",)
    assert found.all[0].where == f"{tmp_path / 'a.yaml'}:1"
    assert not found.beyond_kubelets and not found.for_nodes


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        (".status.phase", ".status | tojson", 10, "'tojson' is not understood"),
        (".status.phase", '.a | test("x")', 10, "'test' is not understood"),
        (".status.phase", ".a + 1", 10, "'+' is not understood"),
        (".status.phase", """'"\\(.a)"'""", 10, "an interpolated string is not understood"),
        ("operator: In", "operator: Intersects", 10, "is none of In, NotIn, Exists, DoesNotExist"),
        ("values: [Pending]", "values: []", 10, "In needs values"),
        ("values: [Pending]", "values: [1]", 12, "a text is expected"),
        ("weight: 1", "weight: -1", 13, "a whole number of 0 or more"),
        ("weight: 1", "weigth: 1", 13, "spec.weigth: not understood; here are resourceRef"),
        ("durationMilliseconds: 10", "durationMilliseconds: soon", 15, "a whole number"),
        ("durationMilliseconds: 10", "jitterDurationFrom: {cel: {expression: '1'}}", 15, "KWOK does not read cel here"),
        ("phase: Running", "phase: {{ env `HOME` }}", 18, "function 'env' is not understood; these are: "),
        ("phase: Running", "phase: {{ .a", 19, "not understood"),
        ("phase: Running", "phase: {{ if .a }}", 18, "{{if}} has no {{end}}"),
        ("phase: Running", "phase: {{ $x }}", 18, "undefined variable '$x'"),
        ("phase: Running", '{{ template "x" }}', 18, "is not understood"),
        ("phase: Running", "{{ printf .a }}", 18, "with a literal format"),
        ("phase: Running", '{{ printf "%x" 1 }}', 18, "%x of printf is not understood"),
        ("phase: Running", "{{ lower 1 2 }}", 18, "lower takes 1 arguments, not 2"),
        ("    statusTemplate", "    statusPatchAs: {username: x}\n    statusTemplate", 17, "another user"),
        ("kind: Pod", "kind: Pod\n    name: x", 8, "spec.resourceRef.name: not understood"),
        ("kind: Stage", "kind: Stage\nother: 1", 3, "the document.other: not understood"),
        ("spec:", "spec: 1\nspec2:", 7, "the document.spec2: not understood"),
        ("  name: a", "  name: a\n  name: b", 5, "the key 'name' is written twice"),
        ("- key: .status.phase", "- cel: {expression: 'self.a'}\n      key: x", 10, "cel excludes other fields"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, words: str
) -> None:
    assert old in GOOD
    message = refused(tmp_path, GOOD.replace(old, new, 1))
    assert message.startswith(f"{line}: ") and words in message, message


def test_expressions_in_cel_are_for_other_kinds_than_pods_and_nodes(tmp_path: Path) -> None:
    rule = "- cel:\n        expression: self.status.phase == 'Pending'"
    text = GOOD.replace("- key: .status.phase\n      operator: In\n      values: [Pending]", rule)
    assert "CEL about Pods and Nodes is not understood" in refused(tmp_path, text)
    (tmp_path / "s.yaml").write_text(text.replace("kind: Pod", "kind: PersistentVolume"))
    assert load([tmp_path]).beyond_kubelets
    assert "CEL: " in refused(tmp_path, text.replace("kind: Pod", "kind: Service").replace("self.status", "it.status"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 5000, "nesting depth"),
        ("[" * 150 + "]" * 150, "nested deeper"),
        ("a: &a [x, *a]", "holds itself"),
        ("a: *b", "there is no anchor 'b'"),
        ("a: !python/object:os.system x\n", "the tag"),
        ("\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10 if n else ['x'])}]" for n in range(12)), "aliases"),
        ("a: b: c", "no YAML"),
        (b"\xff\xfe\x00", "no YAML"),
        ("? [a]\n: b", "a key that is no text"),
        ("1", "a mapping is expected"),
        ("x" * (5 << 20), "larger than"),
        (GOOD.replace("phase: Running", "{{ if 1 }}" * 200 + "{{ end }}" * 200), "nested deeper"),
        (GOOD.replace("phase: Running", f"{{{{ {'(' * 200}1{')' * 200} }}}}"), "nested deeper"),
        (GOOD.replace(".status.phase", "(" * 200 + ".a" + ")" * 200), "nested deeper"),
        (GOOD.replace("phase: Running", "x" * 200_000), "longer than 100,000 characters"),
        (GOOD.replace(".status.phase", ".a" * 10_000), "longer than 10,000 characters"),
        ("\n---\n".join([GOOD] * 1001), "more than 1,000 stages"),
    ],
)
def test_what_is_too_much_is_refused(tmp_path: Path, text: str | bytes, words: str) -> None:
    assert words in refused(tmp_path, text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StageRefused, match="there is no such file"):
        load([tmp_path / "none.yaml"])
    with pytest.raises(StageRefused, match="no stages there"):
        load([tmp_path])


BOMBS = [
    '{{ $x := "xxxxxxxxxx" }}' + "{{ $x = printf `%s%s` $x $x }}" * 60 + "{{ $x }}",
    "{{ $x := list 1 }}" + "{{ $x = list $x $x }}" * 60 + "{{ $x }}",
    "{{ $x := list 1 }}" + "{{ $x = list $x $x }}" * 60 + "{{ Quote $x }}",
    "{{ $x := list 1 }}" + "{{ $x = list $x $x }}" * 60 + "{{ YAML $x 1 }}",
    "{{ $x := list 1 }}" + "{{ $x = dict `a` $x `b` $x }}" * 60 + "{{ toJson $x }}",
    "{{ range until 9999 }}{{ range until 9999 }}{{ range until 9999 }}{{ end }}{{ end }}{{ end }}",
    "{{ range 1000000000 }}x{{ end }}",
    "{{ until 100000 }}",
    "{{ indent 1000000000 `x` }}",
    "{{ replace `` `xxxxxxxxxxxxxxxxxxxxxxxxx` (join `,` (until 9999)) | replace `x` `xxxxxxxxxxxxxxxxxxxxxxxxxx` }}",
    "{{ $x := until 9999 }}{{ range $x }}{{ $x }}{{ end }}",
    "{{ $x := join `,` (until 9999) }}{{ range until 9999 }}{{ if eq $x $x }}{{ end }}{{ end }}",
    "{{ $x := list 1 }}" + "{{ $x = list $x $x }}" * 60 + "{{ range until 999 }}{{ if Quote $x }}{{ end }}{{ end }}",
    "{{ $x := list 1 }}" + "{{ $x = list $x $x }}" * 12 + "{{ range until 999 }}{{ if Quote $x }}{{ end }}{{ end }}",
]


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_template_that_grows_without_end_fails(bomb: str) -> None:
    compiled = template.compile(bomb, {})
    with pytest.raises(StageFailed):
        compiled.render({}, {})


def test_an_expression_that_takes_too_long_selects_nothing() -> None:
    data = {"a": list(range(1000))}
    assert jq.compile(".a[]").values(data) == data["a"]
    assert jq.compile(".a | map(.) | length").values(data) == [1000]
    assert jq.compile("(.a[], .a[]) == (.a[], .a[])").values(data) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1h1m1.5s", 3661.5), ("-2ms", -0.002), ("1us", 1e-6), ("1µs", 1e-6), (".5s", 0.5), ("5.s", 5.0), ("0", 0.0)],
)
def test_durations_are_read_as_go_reads_them(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "-", "5", "1d", "1 s", ".s", "s", "9" * 30 + "h", "1h-1m"])
def test_what_is_no_duration_is_none(text: str) -> None:
    assert parse_duration_s(text) is None


def test_a_value_too_deep_to_print_fails() -> None:
    value: object = "x"
    for _ in range(5000):
        value = [value]
    for show in (go_values.shown, go_values.as_json, go_values.quoted):
        with pytest.raises(StageFailed, match="nested deeper"):
            show(value)


def test_a_wrong_template_names_its_line_below_empty_ones() -> None:
    with pytest.raises(NotUnderstood) as caught:
        template.compile("\n\n  a: 1\n  b: {{ nope }}", {})
    assert caught.value.line == 4
