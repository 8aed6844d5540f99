"""What `bench schedule` takes, and how it refuses the rest."""

import argparse
from typing import Any

import pytest

from minikube_py.cli import bench
from minikube_py.cli import main as cli
from minikube_py.cli.bench import configure


@pytest.mark.parametrize(
    ("flags", "code", "text"),
    (
        pytest.param(["--utilisation", "1"], 2, "1 is not within 0 to 0.999", id="full"),
        pytest.param(["--churn", "much"], 2, "'much' is not a number", id="no number"),
        pytest.param(["--nodes", "1000,0"], 2, "0 is not within 1 to 100,000", id="no nodes"),
        pytest.param(["--sampling", "all,half"], 2, "'half' is not one of all, upstream", id="no such sampling"),
        pytest.param(["--predicates", "disk"], 2, "invalid choice: 'disk'", id="no such mix"),
        pytest.param(["--members", "2"], 2, "invalid choice: 2", id="an even number of members"),
        pytest.param(["--matcher", "tree"], 2, "'tree' is not one of scan, ", id="no such matcher"),
        pytest.param(["--store-index", "fits"], 2, "write NAME=STRUCTURE", id="half an index"),
        pytest.param(["--results", "/dev/null/x"], 1, "cannot write results under", id="no results"),
    ),
)
def test_what_is_refused(flags: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "schedule", *flags]) == code
    assert text in capsys.readouterr().err


def test_lists_are_read_and_defaults_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = argparse.ArgumentParser()
    configure(parser)
    seen: list[Any] = []
    part = bench.PARTS["schedule"]._replace(run=lambda arguments: seen.append(arguments) or 0)
    monkeypatch.setitem(bench.PARTS, "schedule", part)
    given = ["schedule", "--nodes", "1_000,20000", "--matcher", "columns, max-tree", "--store-index", "a=scan"]
    assert bench.run(parser.parse_args(given)) == 0
    assert seen[0].nodes == (1000, 20000) and seen[0].matcher == ("columns", "max-tree")
    assert seen[0].store_index == ["a=scan"] and seen[0].sampling is None and seen[0].predicates == "all"


def test_no_pods_a_second_are_not_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "density", "--latency-rate", "0"]) == 2
    assert "0 is not within 0.001 to 1,000,000,000" in capsys.readouterr().err


@pytest.mark.parametrize("part", bench.PARTS)
def test_an_unknown_flag_is_reported_by_the_part_whose_help_lists_the_known(
    part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", part, *([__file__] if part == "scheduler-perf" else []), "--nope", "3"]
    assert cli.main(words) == 2
    said = f"minikube-py bench {part}: unrecognized arguments: --nope 3; see minikube-py bench {part} --help\n"
    assert capsys.readouterr().err == said
