"""The command line: one verb a task. Nothing heavy is imported until a verb needs it."""

from __future__ import annotations

import importlib
import io
import os
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.markup import escape
from rich.table import Table

from thermocline import spec
from thermocline.cli import attention as attending
from thermocline.cli import compare, detect, reproduce
from thermocline.cli.common import (
    LEADS,
    DataDir,
    Device,
    Download,
    Jobs,
    Temperature,
    err,
    fetch,
    out,
    points,
    require_known,
    require_once,
    require_unused,
    version,
)
from thermocline.cli.models import Inputs, Size, Weights, callable_of, chosen_inputs, images_for, module_of, try_out
from thermocline.cli.progress import interruptible, show
from thermocline.spec import InputError

PROBES = ", ".join(get_args(spec.Probe))
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Measure, steer and reproduce what softmax temperature does to a network's representations.",
)

app.callback()(version)


def main() -> None:
    """Run the command line: bad input is one line and exit code 2, a failed computation exit code 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not where it was closed
            stream.reconfigure(errors="replace")  # where a terminal or a log lacks a letter
    if not LEADS:
        out.quiet = err.quiet = True
    warnings.showwarning = lambda message, *_, **__: err.print(f"[yellow]warning:[/] {escape(str(message))}", highlight=True)
    try:
        if os.environ.get("WORLD_SIZE", "1") != "1" and sys.argv[1:2] not in (["train"], ["sweep"]):
            raise InputError("under torchrun only train and sweep share their work; start the others by themselves")
        require_known(sys.argv[1:])
        app(prog_name="thermocline")
    except InputError as error:
        _fail(str(error), code=2)
    except OSError as error:
        _fail(f"{error.strerror or error}: {error.filename}" if error.filename else str(error), code=2)
    except spec.Failure as error:
        kept = " What was measured so far is kept." if {*sys.argv[1:2]} & {"demo", "train", "sweep", "reproduce"} else ""
        _fail(f"{error}.{kept}", code=1)


def _fail(message: str, *, code: int) -> None:
    err.quiet = False  # of several processes, the one that fails speaks
    where = "" if LEADS else f" (process {os.environ['RANK']})"
    err.print(f"[bold red]error:[/]{where} {escape(message)}", soft_wrap=True, highlight=True)
    sys.exit(code)


@app.command()
def demo(
    to: Annotated[Path, typer.Option("--out", "-o", help="Folder for the two runs and their report.")] = Path("demo"),
    jobs: Annotated[int | None, typer.Option(help="Runs side by side (default: one a core, two at most).", min=1)] = None,
) -> None:
    """See what temperature does: train two small nets on built-in data, one hot, one cold, and compare them."""
    from thermocline.experiments import demo as experiment
    from thermocline.run import follow_all

    jobs, places = jobs or min(os.cpu_count() or 1, 2), {to / run.name: run for run in experiment.RUNS}
    show(follow_all(places, jobs=jobs, device="cpu"), runs=len(places), again=f"thermocline demo --out {to}")
    compare.conclude(list(places), to / "report.html")


@app.command()
def train(
    context: typer.Context,
    data: Annotated[
        str, typer.Option(help="Data set, e.g. runes, cifar100, folder:DIR (see: thermocline list data).")
    ] = "runes",
    net: Annotated[str, typer.Option(help="Architecture, e.g. mlp, resnet18 (see: thermocline list nets).")] = "mlp",
    temperature: Annotated[float, typer.Option(help="Softmax temperature of the loss.")] = 1.0,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training images (default: 30).")] = None,
    ood: Annotated[list[str] | None, typer.Option(help="Out-of-distribution data set; may be repeated.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of initialisation, sampling and augmentation.")] = 0,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting, as path=value (see: thermocline list settings).")
    ] = None,
    to: Annotated[Path | None, typer.Option("--out", "-o", help="Run directory (default: runs/NAME).")] = None,
    data_dir: DataDir = None,
    download: Download = False,
    device: Device = "auto",
) -> None:
    """Train one net at a temperature, measuring as it goes. The same command continues an interrupted run.

    On several GPUs, or CPUs: torchrun --nproc-per-node 4 -m thermocline train ...
    """
    require_once(context, set_ or ())
    what = spec.replace(spec.Run(), {"data.name": data, "net.name": net, "train.temperature": temperature, "seed": seed})
    if epochs is not None:
        what = spec.replace(what, {"train.epochs": epochs})
    what = spec.parse(spec.replace(what, {"data.ood": tuple(ood or ())}), set_ or ())
    from thermocline.run import follow

    fetch({what.data.name, *what.data.ood}, data_dir, download)
    directory = to or Path("runs") / what.name
    show(follow(what, directory, device=device, data_dir=data_dir), again="the same command")
    compare.conclude([directory], directory / "report.html")


@app.command()
def sweep(
    context: typer.Context,
    experiment: Annotated[str, typer.Argument(help="An experiment (see: thermocline list experiments).")] = "",
    over: Annotated[list[str] | None, typer.Option(help="Values of a setting to try, as path=a,b,c; may be repeated.")] = None,
    data: Annotated[str | None, typer.Option(help="Data set of every run (default: runes, or the experiment's).")] = None,
    net: Annotated[str | None, typer.Option(help="Architecture of every run (default: mlp, or the experiment's).")] = None,
    ood: Annotated[list[str] | None, typer.Option(help="Out-of-distribution data set; may be repeated.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A setting of every run: path=value.")] = None,
    jobs: Jobs = 1,
    to: Annotated[Path, typer.Option("--out", "-o", help="Folder for the runs and their report.")] = Path("runs"),
    data_dir: DataDir = None,
    download: Download = False,
    device: Device = "auto",
) -> None:
    """Train many nets: an experiment's, or one for each combination of values. The same command continues where it stopped."""
    require_once(context, set_ or (), over or ())
    same = {"data.name": data, "net.name": net, "data.ood": tuple(ood) if ood else None}
    changes = {path: value for path, value in same.items() if value is not None}
    base = [spec.replace(run, changes) for run in (_runs(experiment) if experiment else [spec.Run()])]
    runs = [spec.parse(run, [*(set_ or ()), *point]) for run in base for point in points(over or ())]
    from thermocline.run import check, follow_all

    fetch({name for run in runs for name in (run.data.name, *run.data.ood)}, data_dir, download)
    for run in runs:  # what cannot begin is said by itself, not below a report of earlier runs
        check(run, device=device, data_dir=data_dir)
    places = {to / run.name: run for run in runs}
    try:
        show(follow_all(places, jobs=jobs, device=device, data_dir=data_dir), runs=len(places), again="the same command")
    finally:
        there = [place for place in places if (place / "rows.log").exists()]
        if there:
            compare.conclude(there, to / "report.html")
        if there and len({run.train.temperature for run in runs}) > 1:
            out.print(f"which setting to take: [bold]thermocline advise {escape(str(to))}[/]", soft_wrap=True)


@app.command()
def scan(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            help="Function or class that makes your classifier, MODULE:CALLABLE; --attention: a transformers folder."
        ),
    ],
    data: Annotated[
        str | None, typer.Option(help="Data set the classifier was trained on (see: thermocline list data).")
    ] = None,
    inputs: Inputs = None,
    size: Size = None,
    weights: Weights = None,
    ood: Annotated[
        list[str] | None,
        typer.Option(help="Out-of-distribution data set; a test set is enough for detection; repeatable."),
    ] = None,
    temperature: Temperature = 1.0,
    seed: Annotated[int, typer.Option(help="Number of this training, if you scan several of one setting.", min=0)] = 0,
    pattern: Annotated[str, typer.Option(help="Layers to measure, by their paths, e.g. 'layer*.conv*'.")] = "*",
    probe: Annotated[list[str] | None, typer.Option(help=f"Linear probe to train: {PROBES}; may be repeated.")] = None,
    attention: Annotated[
        bool, typer.Option("--attention", help="Measure how far a transformers model's attention disperses instead.")
    ] = False,
    prompts: Annotated[
        Path | None,
        typer.Option(help='File of prompts for --attention: one a line, or .jsonl with "text" (default: lists of numbers).'),
    ] = None,
    lengths: Annotated[str, typer.Option(help="How many numbers the built-in prompts list.")] = attending.LENGTHS,
    count: Annotated[int, typer.Option(help="Built-in prompts of each length.", min=1)] = attending.COUNT,
    to: Annotated[Path, typer.Option("--out", "-o", help="Folder for the rows and the report.")] = Path("scan"),
    data_dir: DataDir = None,
    download: Download = False,
    device: Device = "auto",
) -> None:
    """Measure a classifier of your own at every weight layer: ranks, probes, collapse, detection, in one pass.

    With --attention: entropy, largest weight and spread of logits of every head of a transformers model, by length.
    """
    attending.require(context, attention=attention)
    require_unused(to)
    make = None if attention else callable_of(model)
    if make is None or data is None:
        attending.scan(model, prompts, lengths, count, to, device)
        return
    from thermocline.run import check_device
    from thermocline.scanner import scan as scan_model

    place = check_device(device)
    way, probes = chosen_inputs(inputs, model), tuple(probe or ["ridge"])
    spec.replace(spec.Run(), {"train.temperature": temperature, "probes": probes})  # refuses what no run can have
    fetch({data, *(ood or ())}, data_dir, download)
    with interruptible("nothing was written"):
        net = module_of(make, model, weights).to(place)  # first: images may take long to read
        sets, said = images_for(way, data, ood or (), size=size, device=place, data_dir=data_dir)
        try_out(net, model, sets[0])
        options = {"temperature": temperature, "pattern": pattern, "probes": probes, "name": model, "seed": seed}
        result = scan_model(net, *sets, **options, progress=True)
    result.save(to)
    out.print(said, f"layers, in order of depth: {', '.join(result.layers)}", sep="\n", markup=False)
    compare.conclude([to], to / "report.html")


app.command()(compare.report)
app.command()(compare.advise)
app.command()(compare.tradeoff)
app.add_typer(detect.app, name="detect")
app.command()(reproduce.reproduce)


@app.command()
def bench(
    names: Annotated[list[str] | None, typer.Argument(help="Benchmarks or groups of them (default: measure).")] = None,
    threads: Annotated[int, typer.Option(help="CPU threads of each side.", min=1)] = 1,
    repeat: Annotated[int, typer.Option(help="Times each side runs; the fastest counts.", min=1)] = 3,
    scale: Annotated[float, typer.Option(help="Size of the problems; 1 is what docs/performance.md reports.")] = 1.0,
    device: Device = "cpu",
) -> None:
    """Time the engine against the obvious code on this machine: seconds, peak memory, and whether the answers agree."""
    from thermocline import bench as benches

    heads = ("benchmark", "ours, s", "theirs", "faster", "ours, MB", "theirs", "smaller")
    table, notes = Table(*heads, title_justify="left"), []
    table.columns[0].no_wrap = True
    with interruptible("the table comes at the end, of all that was asked for"), err.status("timing") as status:
        for one in benches.run(names or ["measure"], threads=threads, repeat=repeat, scale=scale, device=device):
            status.update(f"done: {one.name}")
            if not err.is_terminal:  # where a status leaves no trace
                err.print(f"done: {one.name}")
            table.title = f"{one.hardware}, scale {scale:g}"
            seconds = (f"{one.ours_seconds:.3g}", f"{one.theirs_seconds:.3g}", f"{one.ratio:.{1 if one.ratio >= 2 else 2}f} x")
            memory = (f"{one.ours_peak_mb:.0f}", f"{one.theirs_peak_mb:.0f}", f"{one.memory_ratio:.1f} x")
            table.add_row(one.name, *seconds, *memory)
            notes.append(f"{one.name}: {one.note}; answers{'' if one.agree else ' DIFFER'}: {one.difference}")
    if scale != 1:
        notes.append("sizes are those of --scale 1")
    out.print(table, *notes, sep="\n")


KINDS = ("data", "nets", "measures", "detectors", "settings", "experiments", "benches")


@app.command("list")
def list_(
    kind: Annotated[str, typer.Argument(help=f"One of: {', '.join(KINDS)}.")] = "",
    results: reproduce.Results = Path("results"),
) -> None:
    """Show the names that commands take: data sets, nets, measures, detectors, settings, experiments, benchmarks."""
    for one in [kind] if kind else KINDS:
        if one not in KINDS:
            raise spec.unknown("list", one, KINDS)
        table = Table(title=one, title_justify="left", title_style="bold", show_header=False, box=None, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)  # the words one types stay whole
        for cells in _entries(one, results):
            table.add_row(*map(escape, cells))
        out.print(table, "")
        if one == "experiments" and not results.is_dir():
            said = f"none counts as run, since there is no folder {escape(str(results))}: give --results DIR"
            err.print(said, soft_wrap=True)


def _entries(kind: str, results: Path) -> Iterable[tuple[str, str]]:
    """The rows of one listing: what to type, and what it is."""
    if kind == "settings":
        for path, type_, default, help_ in spec.describe():
            yield path, f"{help_}\n  {type_}; default {default}"
    elif kind == "experiments":
        yield from _listed(results)
    elif kind == "benches":
        from thermocline.bench import BENCHES

        yield from ((name, f"{case.description}\n  against {case.theirs_is}") for name, case in BENCHES.items())
    elif kind == "detectors":
        from thermocline import screening

        yield from screening.described()
    elif kind == "measures":
        from thermocline.measure import MEASURES

        for name, one in MEASURES.items():
            meaning, formula, reference = one.explain().values()
            yield name, f"{meaning}\n  {formula}\n  {reference}"
    else:
        yield from importlib.import_module(f"thermocline.{kind}").NAMES.items()


def _runs(name: str) -> list[spec.Run]:
    """The runs of an experiment."""
    from thermocline.reproduce import catalogue

    runs = catalogue.module(name).RUNS
    if not runs:
        raise InputError(f"{name} trains nothing; give: thermocline reproduce {name}")
    return runs


def _listed(results: Path) -> Iterable[tuple[str, str]]:
    """Every experiment: its claim, its cost, and how many of its runs are in the folder of results."""
    from thermocline.reproduce import Shelf, catalogue

    shelf = Shelf(results)
    for name in catalogue.modules():
        if name not in catalogue.names():
            yield name, (catalogue.module(name).__doc__ or "").strip().split("\n\n")[0]
            continue
        one = catalogue.load(name)
        there, stopped, total = shelf.count(one)
        state = f"run: {there} of {total}" if total else f"not run here: {one.why}"
        state += f", {stopped} stopped" if stopped else ""
        yield name, f"{one.says}\n  {one.cost.words}; {state}"
