"""Asks Go of each pattern of `data/regex_answers.json` whether it is one, and where it is in each of the texts.

    python tests/conformance/record_regexes.py [SEED COUNT]

With arguments, so many drawn patterns come on top: sequences of the atoms below, repeated in all ways. Needs Go 1.26.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Final

HERE = Path(__file__).parent
DATA = HERE / "data" / "regex_answers.json"
TEXTS: Final = (
    "",
    "a",
    "ab-c.d",
    "Kelvin \u212a\u017f",
    "\u0391\u03b2\u03b3 \u03c2\u03a3",
    "x_9\n-]^",
    "{a}{2}",
    "\U0001f600\u00e9",
    "A[b]\\E",
)
ATOMS: Final = (
    "a", "-", ".", r"\d", r"\w", r"\s", r"\.", r"\-", "^", "$", "|", "\u00e9", "{", "}", "]", "[", "(", ")", "\\", "_",
    "[a-z]", "[^a]", "[a-z-.]", "[-a]", "[a-]", "[]a]", "[^]a]", "[[:alpha:]]", "[[:^alpha:]]", r"[\w-]", r"[\w-.]",
    r"[a-\d]", r"[a\-z]", "[z-a]", "[a-z&&[b]]", r"[\s\S]", "[[.a.]]", "[[:foo:]]", "[[=a=]]", "[!-~]", "[+--]",
    "[--a]", "[a--]", "[%--]", r"[^\n]", r"[\b]", r"[\P{Lu}a]", r"[^\pL]", r"[\W]", r"[\x00-\x{10FFFF}]",
    r"\pL", r"\PL", r"\p{Lu}", r"\p{Greek}", r"\P{Greek}", r"\p{^Greek}", r"\p{greek}", r"\p{Old_Italic}", r"\p{Foo}",
    r"\p{Any}", r"\p{Assigned}", r"\p{Cn}", r"\p{ASCII}", r"\p{Letter}", r"\p{Uppercase Letter}", r"\p{lu}", r"\p",
    r"\p{Lu", r"\x41", r"\x{1F600}", r"\x{110000}", r"\Q.\E", r"\Qab\E", r"\Q\E", "(?i)", "(?-i)", "(?i", "(?s)",
    "(?:a)", "(a)", "(?P<n>a)", "(?<n>a)", "(?P<n", "(?P<>a)",
    "(?i:k)", "(?i:S)", r"(?i:[^\W])", r"(?i:\p{Lu})", r"(?i:\P{Lu})",
    r"(?i:[\P{Lu}])", "(?i:[a-s])", "(?s:.)", "(?U)a+", "(?m:^)", "(?m:$)", "(?-)", "(?i-:a)", "(?ii)", "(?#c)",
    r"\b", r"\B", r"\A", r"\z", r"\Z", r"\h", "(?=a)", "(?!a)", r"\1", r"\C", r"\R", r"\/", r"\t", r"\u0041", r"\0",
    r"\07", r"\08", r"\777", "a{2}", "a{2,}", "a{,2}", "a{1001}", "a{02}", "a{2", "a**",
)  # fmt: skip
TIMES: Final = ("", "", "", "", "*", "+", "?", "*?", "+?", "??", "{0,3}", "++", "{2}?", "{3,1}", "{0}", "{1000}")


def drawn(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)

    def one() -> str:
        return "".join(rng.choice(ATOMS) + rng.choice(TIMES) for _ in range(rng.choice((1, 1, 2, 2, 3, 4))))

    return [one() for _ in range(count)]


def main() -> None:
    before = json.loads(DATA.read_text())["answers"] if DATA.exists() else []
    patterns = {each["pattern"]: None for each in before} | dict.fromkeys(ATOMS)
    if len(sys.argv) > 2:
        patterns |= dict.fromkeys(drawn(int(sys.argv[1]), int(sys.argv[2])))
    asked = {"texts": TEXTS, "answers": [{"pattern": each} for each in patterns]}
    go = ["go", "run", str(HERE / "regex_answers.go")]
    done = subprocess.run(go, input=json.dumps(asked), capture_output=True, check=True, text=True)
    found = json.loads(done.stdout)
    rows = ",\n".join(json.dumps(each, ensure_ascii=False) for each in found["answers"])
    DATA.write_text(f'{{"texts": {json.dumps(TEXTS, ensure_ascii=False)}, "answers": [\n{rows}\n]}}\n')
    print(f"{DATA.name}: {len(patterns)} patterns, {sum('found' in each for each in found['answers'])} of them good")


if __name__ == "__main__":
    main()
