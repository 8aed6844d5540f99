"""Transcripts: commands and the log that each must leave. How they are written and rewritten: raft_script.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from raft_script import Script, read_blocks, rewrite

FOLDER = Path(__file__).parent / "transcripts"
FILES = sorted(path.stem for path in FOLDER.glob("*.txt"))


@pytest.mark.parametrize("name", FILES)
def test_transcript(name: str) -> None:
    script = Script()
    for block in read_blocks((FOLDER / f"{name}.txt").read_text()):
        actual = script.run(block.commands)
        assert actual == block.expected, f"{name}.txt, line {block.line}:\n{block.commands}\n----\n{actual}"


def test_there_are_transcripts_of_all_that_matters() -> None:
    expected = {
        "check_quorum", "conflicts", "elections", "joint", "learners", "pre_vote", "read_index", "remove_leader",
        "slow_disk", "snapshots", "transfer",
    }  # fmt: skip
    assert expected <= set(FILES)


def test_rewriting_what_is_right_changes_nothing() -> None:
    text = (FOLDER / "elections.txt").read_text()
    assert rewrite(text) == text


def test_a_wrong_expectation_is_noticed() -> None:
    (block,) = read_blocks("add-nodes 1\ncampaign 1\n----\nok\n")
    assert Script().run(block.commands) != block.expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [("campaign 1\n", "without ----"), ("dance 1\n----\n", "no such command: dance")],
    ids=["no rule", "unknown command"],
)
def test_a_broken_transcript_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        for block in read_blocks(text):
            Script().run(block.commands)
