"""`thermocline detect`: out-of-distribution detection by files, from a model's features to scores and how good they are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from thermocline.cli.common import DataDir, Device, callable_of, module_of, out, say
from thermocline.spec import InputError

app = typer.Typer(
    no_args_is_help=True, help="Detect out-of-distribution samples: features of a model, a fitted detector, scores, metrics."
)
FeaturesFile = Annotated[
    Path, typer.Argument(help="An .npz with features (n, d), logits (n, c); labels, weight and bias if known.")
]
DetectorFile = Annotated[Path, typer.Argument(help="A fitted detector, a .safetensors file.")]


@app.command()
def features(
    model: Annotated[str, typer.Argument(help="A run directory, or what makes your classifier, as MODULE:CALLABLE.")],
    to: Annotated[Path, typer.Option("--out", "-o", help="The .npz file to write.")],
    data: Annotated[str | None, typer.Option(help="Data set (default: that of the run); see thermocline list data.")] = None,
    like: Annotated[str | None, typer.Option(help="Data set the model was trained on, where --data is another.")] = None,
    split: Annotated[str, typer.Option(help="train or test.")] = "train",
    weights: Annotated[Path | None, typer.Option(help="Weights of a MODULE:CALLABLE, a .safetensors file.")] = None,
    data_dir: DataDir = None,
    device: Device = "auto",
) -> None:
    """Write what the head of a classifier reads and gives on a data set: what detectors are fitted to, and score."""
    from thermocline import data as sets
    from thermocline import record, screening, shelf
    from thermocline.run import check_device

    if split not in ("train", "test"):
        raise InputError(f"--split takes train or test, got {split!r}")
    place = check_device(device)
    what = record.load_run(model).spec if (Path(model) / "spec.json").exists() else None
    home = like or (what.data.name if what else data)
    if what is None and ":" not in model:
        raise InputError(f"there is no run directory {model}, and it is not MODULE:CALLABLE, e.g. mynets:resnet")
    if home is None:
        raise InputError("name the data to read with --data NAME")
    if what and record.load_checkpoint(model) is None:
        raise InputError(f"{model} has no checkpoint: its weights are not there to read")
    own = ("classes", "size", "train", "test", "imbalance", "label_noise") if what else ()
    sizes: dict[str, Any] = {key: getattr(what.data, key) for key in own} if what else {}
    known = sets.load(home, device=place, data_dir=data_dir, **sizes)
    chosen = known if data in (None, home) else sets.load(data, like=known[0], device=place, data_dir=data_dir)
    if what:
        net, temperature = screening.trained(model, known[0])
    else:
        net, temperature = module_of(callable_of(model), model, weights).to(place), None
    found = screening.features_of(net, chosen[split == "test"])
    shelf.save_features(found._replace(temperature=temperature), to)
    out.print(f"{len(found.features)} samples of {data or home} ({split}), {found.features.shape[1]} features", highlight=False)
    say("features", to)


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
    """Fit a detector to the features of training data, and keep it."""
    from thermocline import screening, shelf
    from thermocline.run import check_device

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
    """Score samples, higher the more in-distribution: one row a sample, in the order of the file."""
    import pyarrow as pa

    from thermocline import screening, shelf
    from thermocline.run import check_device

    shelf.require_suffix(to)
    place = check_device(device)
    scores = screening.score(shelf.load_detector(detector, device=place), shelf.load_features(features, device=place)).cpu()
    shelf.save_table(pa.table({"index": range(len(scores)), "score": scores.numpy()}), to)
    low, middle, high = scores.quantile(scores.new_tensor([0.05, 0.5, 0.95])).tolist()
    out.print(f"{len(scores)} scores: median {middle:.4g}, 5 % below {low:.4g}, 5 % above {high:.4g}", highlight=False)
    say("scores", to)


@app.command("eval")
def evaluate(
    detector: DetectorFile,
    inside: Annotated[Path, typer.Option("--id", help="Features of in-distribution test data.")],
    outside: Annotated[list[Path], typer.Option("--ood", help="Features of other data; may be repeated.")],
    to: Annotated[Path | None, typer.Option("--out", "-o", help="Also write the table, as .csv or .parquet.")] = None,
    device: Device = "auto",
) -> None:
    """Say how well a detector tells in-distribution data from others: AUROC with its 95 % interval, AUPR, FPR at 95 % TPR."""
    from thermocline import screening, shelf
    from thermocline.run import check_device

    if to is not None:
        shelf.require_suffix(to)
    place = check_device(device)
    others = {str(path): shelf.load_features(path, device=place) for path in outside}
    found = screening.evaluate(shelf.load_detector(detector, device=place), shelf.load_features(inside, device=place), others)
    table = Table("other data", "AUROC", "95 % interval", "AUPR (ID)", "AUPR (OOD)", "FPR95 (ID positive)", "samples")
    for row in found.to_pylist():
        table.add_row(
            row["ood"], f"{row['auroc']:.4f}", f"{row['auroc_low']:.4f} to {row['auroc_high']:.4f}", f"{row['aupr_id']:.4f}",
            f"{row['aupr_ood']:.4f}", f"{row['fpr95']:.4f}", f"{row['id_samples']} and {row['ood_samples']}",
        )  # fmt: skip
    out.print(table)
    if to is not None:
        shelf.save_table(found, to)
        say("table", to)
