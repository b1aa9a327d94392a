"""`thermocline scan --attention`: how far a transformers model's attention disperses, on prompts or on lists of numbers."""

from __future__ import annotations

import warnings
from pathlib import Path

import typer

from thermocline.cli.common import given as written
from thermocline.cli.common import out, say
from thermocline.cli.progress import interruptible
from thermocline.spec import InputError

LENGTHS, COUNT = "8,16,32,64,128,256", 16
_OURS = {"prompts", "lengths", "count"}
_EITHER = {"model", "attention", "to", "device"}


def require(context: typer.Context, *, attention: bool) -> None:
    """Raise where options of the two kinds of scan were mixed."""
    given = written(context)
    if attention and (wrong := sorted(given - _OURS - _EITHER)):
        raise InputError(f"--{wrong[0].replace('_', '-')} is for classifiers and does not go with --attention")
    if not attention and (wrong := sorted(given & _OURS)):
        raise InputError(f"--{wrong[0]} is for language models: give --attention too")
    if not attention and "data" not in given:
        raise InputError(
            "name the data the classifier was trained on with --data, or give --attention to scan a language model"
        )
    if "prompts" in given and (wrong := sorted(given & {"lengths", "count"})):
        raise InputError(f"--{wrong[0]} is for the built-in lists of numbers: leave out either it or --prompts")


def scan(model: str, prompts: Path | None, lengths: str, count: int, to: Path, device: str) -> None:
    """Measure, keep the rows, print the tables, write the page and the figure."""
    items = _lengths(lengths)
    from thermocline.integrations import dispersion, loading, maximum, reading
    from thermocline.integrations import transformers as hot
    from thermocline.run import check_device

    texts = None if prompts is None else loading.read_prompts(prompts)
    place = check_device(device)
    words = hot.library().utils.logging
    words.set_verbosity_error()
    words.disable_progress_bar()
    with interruptible("nothing was written"):
        net, tokenizer = loading.load(model, place)
        options = {"name": Path(model).name or model, "progress": True}
        if texts is None or prompts is None:
            found = maximum.scan(net, tokenizer, lengths=items, count=count, **options)
        else:
            ids = [ids for ids, _ in maximum.tokenized(tokenizer, texts)]
            found = dispersion.scan(net, maximum.stacked(ids), split=prompts.stem, **options)
    found.save(to)
    out.print(reading.terminal(found.found))
    say("rows", to)
    try:
        say("figure", found.write(to / "attention.svg"))
        say("report", found.write(to / "attention.html"))
    except InputError as error:
        out.print(f"no report page: {error}", markup=False)


def report(runs: list[str], output: Path, figures: Path | None, format_: str) -> bool:
    """Print and draw a scan of attention, where that is the one run to report on; whether it was."""
    from thermocline import record
    from thermocline.report import page

    places = record.find_runs(runs)
    if len(places) != 1 or not (places[0] / "spec.json").exists():
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they say of a classifier's run is said when it is read for its own page
        try:
            run = record.load_run(places[0])
        except InputError:
            return False
    if not page.of_attention(run):
        return False
    if format_ != "html":
        raise InputError(f"{places[0]} is a scan of attention, which is drawn as a page: it cannot be written as {format_}")
    page.drawing()  # says what is not installed, where that is so
    from thermocline.integrations import drawing, reading

    out.print(reading.terminal(run))
    say("report", drawing.save(run, output))
    for ending in ("svg", "png", "pdf") if figures else ():
        say("figure", drawing.save(run, Path(figures or "") / f"attention.{ending}"))
    return True


def _lengths(text: str) -> list[int]:
    """The lengths in a list of them, ascending.

    >>> _lengths("16,8")
    [8, 16]
    """
    try:
        found = sorted({int(word) for word in text.split(",")})
    except ValueError:
        found = []
    if not found or found[0] < 1:
        raise InputError(f"--lengths takes whole numbers above 0, e.g. 8,16,32; got {text!r}")
    return found
