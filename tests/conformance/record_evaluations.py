"""Asks upstream's own CEL what the expressions of `data/cel_evaluations.json` are, and what each evaluation costs.

    python tests/conformance/record_evaluations.py [FILE | --drawn SEED COUNT]

FILE: a JSON list of expressions to take up; --drawn: so many of `drawn_expressions`. Without either, those that are
recorded are asked again. Left out are expressions that do not compile, those that make protobuf messages, which we do
not know, and those in which upstream's own code breaks. Needs Go and its module cache, with what `cel_answers.go`
names. Where eight runs disagree, as Go walks maps in any order, nothing is recorded.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import drawn_expressions

HERE = Path(__file__).parent
DATA = HERE / "data" / "cel_evaluations.json"
FORMATS = HERE / "data" / "cel_formats.json"
"""Literal formats and what upstream says as it compiles them; null: nothing."""
RUNS = 8
BROKEN = re.compile("internal error|interface \\{\\}")
MESSAGES = re.compile(r"google\.protobuf\.(?!Timestamp|Duration)|google\{")
MODULE = """module answers

go 1.26

require (
\tk8s.io/apiserver v0.36.2
\tk8s.io/dynamic-resource-allocation v0.36.2
)
"""


def built(folder: Path) -> Path:
    (folder / "main.go").write_text((HERE / "cel_answers.go").read_text())
    (folder / "go.mod").write_text(MODULE)
    subprocess.run(["go", "build", "-mod=mod", "-o", "answers", "."], cwd=folder, check=True)
    return folder / "answers"


def asked(program: Path, variables: dict[str, Any], expressions: list[str]) -> list[dict[str, Any]]:
    given = {"variables": variables, "asked": [{"expression": each} for each in expressions]}
    done = subprocess.run([program], input=json.dumps(given).encode(), capture_output=True, check=True)
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


def main() -> None:
    before = json.loads(DATA.read_text())
    expressions = []
    if sys.argv[1:2] == ["--drawn"]:
        expressions = drawn_expressions.expressions(int(sys.argv[2]), int(sys.argv[3]))
    elif len(sys.argv) > 1:
        expressions = json.loads(Path(sys.argv[1]).read_text())
    expressions = sorted(each for each in {*before["answers"], *expressions} if not MESSAGES.search(each))
    with tempfile.TemporaryDirectory() as folder:
        program = built(Path(folder))
        runs = [asked(program, before["variables"], expressions) for _ in range(RUNS)]
        formats = list(json.loads(FORMATS.read_text()))
        refusals = [each.get("invalid") for each in asked(program, before["variables"], formats)]
    found = {
        expression: every[0]
        for expression, *every in zip(expressions, *runs)
        if "invalid" not in every[0]
        and not BROKEN.search(every[0].get("error", ""))
        and all(each == every[0] for each in every)
    }
    DATA.write_text(json.dumps({**before, "answers": found}, indent=0, ensure_ascii=False) + "\n")
    FORMATS.write_text(json.dumps(dict(zip(formats, refusals)), indent=0, ensure_ascii=False) + "\n")
    print(f"{DATA.name}: {len(found)} of {len(expressions)} expressions")


if __name__ == "__main__":
    main()
