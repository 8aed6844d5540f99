"""Convert the published openb trace to the compact table that minikube_py carries.

minikube-py trace convert --from FOLDER             writes openb_nodes.csv and openb_pods.csv
minikube-py trace convert --from FOLDER --lists     writes openb_lists.csv: the shapes of all pod lists, counted
minikube-py trace convert --from FOLDER --usage     writes usage_fit.json: what a generator of usage was fitted to
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from minikube_py.cli import forms, input_files
from minikube_py.lab import pod_lists, trace
from minikube_py.lab.prediction import generator
from minikube_py.lab.report import require_writable

ENVIRONMENT = "MINIKUBE_PY_DATA"
TABLES = "nodes and pods"


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="command", metavar="convert", required=True)
    convert = commands.add_parser(
        "convert", help="convert the published CSV files to tables", allow_abbrev=False, description=__doc__
    )
    convert.formatter_class = argparse.RawDescriptionHelpFormatter
    source_help = f"folder of the published CSV files (default: ${ENVIRONMENT})"
    convert.add_argument("--from", dest="source", type=input_files.folder, metavar="DIR", help=source_help)
    target_help = "where to write the tables (default: .)"
    convert.add_argument("--to", dest="target", type=Path, default=Path("."), metavar="DIR", help=target_help)
    lists_help = "write the table of all pod lists, which `lab packing` replays, instead of nodes and pods"
    which = convert.add_mutually_exclusive_group()
    which.add_argument("--lists", action="store_true", help=lists_help)
    usage_help = "write the usage generator's parameters, fitted to half of the real day, and figures of both halves"
    which.add_argument("--usage", action="store_true", help=usage_help)
    convert.add_argument("--pods", choices=trace.POD_LISTS, default="default", help="which pod list (default: default)")
    forms.watch(convert)


def run(arguments: argparse.Namespace) -> int:
    form = "--lists" if hasattr(arguments, "lists") else "--usage" if hasattr(arguments, "usage") else TABLES
    forms.require(arguments, form, {"pods": (TABLES,)})
    source = arguments.source or (Path(os.environ[ENVIRONMENT]) if os.environ.get(ENVIRONMENT) else None)
    if source is None:
        raise trace.TraceError(f"the folder of the published files is not set; give --from or ${ENVIRONMENT}")
    require_writable(arguments.target, "--to")
    if arguments.usage:
        from minikube_py.studies.prediction import fit

        tables = {generator.TABLE: fit.convert(source)}
    else:
        of_lists = arguments.lists
        tables = {pod_lists.TABLE: pod_lists.convert(source)} if of_lists else trace.convert(source, arguments.pods)
    for name, table in tables.items():
        path = arguments.target / name
        try:
            path.write_bytes(table)
        except OSError as error:
            raise trace.TraceError(f"cannot write {path}: {error.strerror}; name another folder with --to") from error
        print(f"wrote {path}: {len(table.splitlines()) - (1 if arguments.lists else 2):,} rows, {len(table):,} bytes")
    return 0
