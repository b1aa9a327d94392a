"""The verb `reproduce`: run what is missing, compare with what was published, write it down."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from thermocline.cli.common import DataDir, Device, Download, Jobs, err, fetch, out, say
from thermocline.cli.progress import show
from thermocline.spec import Failure, InputError

if TYPE_CHECKING:
    from thermocline.reproduce import Experiment
    from thermocline.spec import Run

MANY = 4  # experiments from which on each is a line in the terminal
Results = Annotated[Path, typer.Option(help="Folder of the rows, pages and figures of all experiments.")]


def reproduce(
    names: Annotated[
        list[str], typer.Argument(help="Experiments, groups such as table1, or all (see: list experiments).", metavar="NAME...")
    ],
    report: Annotated[bool, typer.Option("--report", help="Train nothing: compare the rows there are; write pages.")] = False,
    output: Annotated[Path | None, typer.Option("--out", "-o", help="Also write it all as one .html page.")] = None,
    seeds: Annotated[
        int, typer.Option(help="Number of seeds, if more than the experiment's own.", min=0, show_default=False)
    ] = 0,
    jobs: Jobs = 1,
    results: Results = Path("results"),
    data_dir: DataDir = None,
    download: Download = False,
    device: Device = "auto",
) -> None:
    """Run what is missing of experiments, in the order named, and print our numbers beside the published ones.

    Continues where it stopped. Without the data, or a GPU where one is needed, it says so and compares the rows there are.

    Writes a page and a figure into results/NAME, and reproduction.md, on all of them, into docs beside results or else into
    results.
    """
    from thermocline import reproduce as work

    experiments = list({one.name: one for name in names for one in work.select(name)}.values())
    if output is not None and output.suffix.lower() != ".html":
        raise InputError(f"{output} is to be a page: end its name in .html")
    _require(results if report else None, None if download else data_dir, device)
    failure = None
    if not report:
        options = {"data_dir": data_dir, "device": device}
        failure = _fill(experiments, results, seeds=seeds, jobs=jobs, download=download, **options)
    shelf = work.Shelf(results)
    studies = [work.study(experiment, shelf) for experiment in experiments]
    for shown in map(work.terminal, studies) if len(studies) < MANY else [work.glance(studies)]:
        out.print(shown)
    say("all verdicts", work.write(studies, shelf))
    for one in studies if len(studies) == 1 and studies[0].found.begun else []:
        say("this experiment", results / one.experiment.name / "README.md")
    if output is not None:
        from thermocline.reproduce import webpage

        say("page", webpage.write(studies, output, results=results))
    if failure:
        raise failure


def _require(results: Path | None, data_dir: str | None, device: str) -> None:
    """What was asked for by name must be there, whatever the rest comes to."""
    if results is not None and not results.is_dir():
        raise InputError(f"there is no folder {results} to report on")
    if data_dir is not None and not Path(data_dir).is_dir():
        raise InputError(f"there is no folder {data_dir} to read data from")
    if device != "auto":
        from thermocline.run import check_device  # which imports torch: a report does without

        check_device(device)


def _fill(
    experiments: list[Experiment], results: Path, *, seeds: int, jobs: int, data_dir: str | None, download: bool, device: str
) -> Exception | None:
    """Make what is missing, as far as it can be made here; the first error, since what is there is still to be compared."""
    from thermocline.run import follow_all

    places: dict[Path, Run] = {}
    failure = None
    for experiment in experiments:
        try:
            places |= _lacking(experiment, results, seeds, data_dir, download=download, device=device)
        except (InputError, Failure) as error:
            failure = failure or error
    try:
        if places:
            show(follow_all(places, jobs=jobs, device=device, data_dir=data_dir), runs=len(places), again="the same command")
    except (InputError, Failure) as error:
        failure = failure or error
    return failure


def _lacking(
    experiment: Experiment, results: Path, seeds: int, data_dir: str | None, *, download: bool, device: str
) -> dict[Path, Run]:
    """Compute what needs no runs, and find those that are missing and can be made here; where they cannot, say why."""
    from thermocline.reproduce import continuing

    if why := continuing.compute(experiment, results, device=device):
        err.print(f"{experiment.name}: not computed here: {escape(why)}", soft_wrap=True)
    missing = continuing.missing(experiment, results, seeds=seeds)
    if not missing:
        return {}
    fetch({name for run in missing.values() for name in (run.data.name, *run.data.ood)}, data_dir, download)
    if why := continuing.obstacle(experiment, missing.values(), device=device, data_dir=data_dir):
        err.print(f"{experiment.name}: {len(missing)} runs are not made here: {escape(why)}", soft_wrap=True)
        return {}
    return missing
