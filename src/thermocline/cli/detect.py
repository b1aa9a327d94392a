"""`thermocline detect`: out-of-distribution detection by files, from a model's features to scores and how good they are."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.markup import escape
from rich.table import Table

from thermocline import spec
from thermocline.cli.common import DataDir, Device, out, require_writable, say
from thermocline.cli.models import Inputs, Size, Weights, callable_of, chosen_inputs, module_of, sides, try_out, whole_images
from thermocline.cli.progress import interruptible, read_images
from thermocline.spec import InputError

if TYPE_CHECKING:
    from thermocline.data import Split

app = typer.Typer(
    no_args_is_help=True, help="Detect out-of-distribution samples: write features, fit a detector, score, evaluate."
)
FeaturesFile = Annotated[
    Path, typer.Argument(help="An .npz with features (n, d), logits (n, c); labels, weight and bias if known.")
]
DetectorFile = Annotated[Path, typer.Argument(help="A fitted detector, a .safetensors file.")]


@app.command()
@interruptible("nothing was written")
def features(
    model: Annotated[
        str, typer.Argument(help="A run directory, or what makes your classifier: a function or class, MODULE:CALLABLE.")
    ],
    to: Annotated[Path, typer.Option("--out", "-o", help="The .npz file to write.")],
    data: Annotated[
        str | None, typer.Option(help="Data set to read (default: what the model was trained on); see thermocline list data.")
    ] = None,
    like: Annotated[str | None, typer.Option(help="Data set a MODULE:CALLABLE was trained on, if --data is another.")] = None,
    split: Annotated[str, typer.Option(help="train or test.")] = "train",
    inputs: Inputs = None,
    size: Size = None,
    weights: Weights = None,
    data_dir: DataDir = None,
    device: Device = "auto",
) -> None:
    """Write the features before the head of a classifier, and its logits, on a data set: detectors read both."""
    from thermocline import screening, shelf
    from thermocline.measure.detecting import HEADED
    from thermocline.run import check_device

    if split not in ("train", "test"):
        raise InputError(f"--split takes train or test, got {split!r}")
    if not to.parent.is_dir():
        raise InputError(f"there is no folder {to.parent} to write {to.name} into: make it, or choose another with --out")
    require_writable(to.parent)
    read = _Reading(data, like, split, check_device(device), data_dir, size)
    if (Path(model) / "spec.json").exists():
        if inputs or weights or size is not None:
            raise InputError("--inputs, --size and --weights are for a MODULE:CALLABLE: a run directory knows them")
        net, temperature, images = _of_run(model, read)
        way = "standardised"
    elif ":" not in model:
        raise InputError(f"there is no run directory {model}, and it is not MODULE:CALLABLE, e.g. mynets:resnet")
    else:
        way = _way(model, inputs, read)
        net, temperature = module_of(callable_of(model), model, weights).to(read.place), None
        images = _for_own(way, read)
        try_out(net, model, images)
    found = screening.features_of(net, images)
    shelf.save_features(found._replace(temperature=temperature), to)
    what = f"{len(found.features)} samples of {images.name} ({split}), shown as {way}, {sides(images)}"
    out.print(f"{what}, {found.features.shape[1]} features", markup=False)
    if found.weight is None:
        lacking = "the head is not linear, or the logits are not its weight times its input, plus its bias"
        out.print(f"without the head's weight, so no {', '.join(HEADED)}: {lacking}")
    say("features", to)


class _Reading(NamedTuple):
    """Which images to read, and where."""

    data: str | None
    like: str | None
    split: str
    place: Any
    data_dir: str | None
    size: int | None

    def other(self, name: str, like: Split | None) -> Split:
        """The split wanted of a data set, as a net trained on another sees it."""
        from thermocline import data as sets

        if self.split == "train":
            return self.pair(spec.Data(name, size=self.size if like is None else None), like)[0]
        way = {"like": like, "size": self.size, "device": self.place, "data_dir": self.data_dir}
        return read_images(name, sets.reading_other(name, **way))[1]

    def pair(self, asked: spec.Data, like: Split | None = None) -> tuple[Split, Split]:
        """Both splits of a data set."""
        from thermocline import data as sets

        return read_images(asked.name, sets.reading(asked, like=like, device=self.place, data_dir=self.data_dir))


def _of_run(directory: str, read: _Reading) -> tuple[Any, Any, Split]:
    """The net of a run, the temperature it was at, and the images as it saw those it was trained on."""
    from thermocline import screening

    what, tensors = screening.saved(directory)
    home = read.like or what.data.name
    sizes = {key: getattr(what.data, key) for key in ("classes", "size", "train", "test", "imbalance", "label_noise")}
    known = read.pair(spec.Data(home, **sizes))
    net, temperature = screening.trained(what, tensors, known[0])
    same = read.data in (None, home)
    return net, temperature, known[read.split == "test"] if same else read.other(str(read.data), known[0])


def _way(model: str, inputs: str | None, read: _Reading) -> str:
    """How a model of the user's own sees images; raise unless it is known which."""
    if read.data is None and read.like is None:
        raise InputError("name the data to read with --data NAME")
    way = chosen_inputs(inputs, model)
    if read.like is None and way == "standardised":
        raise InputError(
            "--inputs standardised is by the mean and std of the data the model was trained on: name them with --like NAME "
            "(--data is what to read, if it is another set)"
        )
    return way


def _for_own(way: str, read: _Reading) -> Split:
    """The images as a model of the user's own sees them."""
    name = str(read.data or read.like)
    with whole_images():
        if read.like is None:
            return read.other(name, None).seen(way)
        known = read.pair(spec.Data(read.like, size=read.size))
    return known[read.split == "test"].seen(way) if name == read.like else read.other(name, known[0].seen(way))


@app.command()
def fit(
    name: Annotated[str, typer.Argument(help="Detector, e.g. neco, vim, knn (see: thermocline list detectors).")],
    features: FeaturesFile,
    to: Annotated[Path, typer.Option("--out", "-o", help="The .safetensors file to write.")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the detector, e.g. k=50; may be repeated.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Softmax temperature the model was trained at (default: the file's, or 1).")
    ] = None,
    device: Device = "auto",
) -> None:
    """Fit a detector to the features of training data, and save it."""
    from thermocline import screening, shelf
    from thermocline.run import check_device

    if temperature is not None and any(text.startswith("temperature=") for text in set_ or ()):
        raise InputError("--temperature and --set both name temperature; leave one of them out")
    found = shelf.load_features(features, device=check_device(device))
    known = 1.0 if found.temperature is None else float(found.temperature)
    chosen = known if temperature is None else temperature
    detector = screening.fit(screening.make(name, set_ or (), found, temperature=chosen), found)
    shelf.save_detector(detector, to)
    say(repr(detector), to)


@app.command()
def score(
    detector: DetectorFile,
    features: FeaturesFile,
    to: Annotated[Path, typer.Option("--out", "-o", help="The .csv or .parquet file to write.")],
    device: Device = "auto",
) -> None:
    """Score samples, one row each, in the order of the file; higher is more in-distribution."""
    import pyarrow as pa

    from thermocline import screening, shelf
    from thermocline.run import check_device

    shelf.require_suffix(to)
    place = check_device(device)
    scores = screening.score(shelf.load_detector(detector, device=place), shelf.load_features(features, device=place)).cpu()
    shelf.save_table(pa.table({"index": range(len(scores)), "score": scores.numpy()}), to)
    low, middle, high = scores.quantile(scores.new_tensor([0.05, 0.5, 0.95])).tolist()
    out.print(f"{len(scores)} scores: median {middle:.4g}, 5 % below {low:.4g}, 5 % above {high:.4g}")
    say("scores", to)


@app.command("eval")
def evaluate(
    detectors: Annotated[list[Path], typer.Argument(help="Fitted detectors, .safetensors files; several are compared.")],
    inside: Annotated[Path, typer.Option("--id", help="Features of in-distribution test data.")],
    outside: Annotated[list[Path], typer.Option("--ood", help="Features of other data; may be repeated.")],
    to: Annotated[Path | None, typer.Option("--out", "-o", help="Also write the table, as .csv or .parquet.")] = None,
    device: Device = "auto",
) -> None:
    """Say how well detectors tell in-distribution from other data: AUROC with its 95 % interval, AUPR, FPR at 95 % TPR."""
    import pyarrow as pa

    from thermocline import screening, shelf
    from thermocline.run import check_device

    if to is not None:
        shelf.require_suffix(to)
    place = check_device(device)
    fitted = {str(path): shelf.load_detector(path, device=place) for path in detectors}
    known = shelf.load_features(inside, device=place)
    others = {str(path): shelf.load_features(path, device=place) for path in outside}
    found: list[dict[str, Any]] = []
    for name, detector in fitted.items():
        try:
            found += ({"detector": name} | row for row in screening.evaluate(detector, known, others).to_pylist())
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
    for name, rows in itertools.groupby(found, key=lambda row: row["detector"]):
        if len(fitted) > 1:
            out.print(f"[bold]{escape(name)}[/]", soft_wrap=True)
        table = Table("other data", "AUROC", "95 % interval", "AUPR (ID)", "AUPR (OOD)", "FPR95 (ID positive)", "samples")
        for row in rows:
            table.add_row(
                escape(row["ood"]), f"{row['auroc']:.4f}", f"{row['auroc_low']:.4f} to {row['auroc_high']:.4f}",
                f"{row['aupr_id']:.4f}", f"{row['aupr_ood']:.4f}", f"{row['fpr95']:.4f}",
                f"{row['id_samples']} and {row['ood_samples']}",
            )  # fmt: skip
        out.print(table)
    if to is not None:
        shelf.save_table(pa.Table.from_pylist(found), to)
        say("table", to)
