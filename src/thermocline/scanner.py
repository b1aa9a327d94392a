"""A model you bring, on data you bring: one scan of it, or a watch on it while you train it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from thermocline import measure, provenance, record, report
from thermocline.data import Split
from thermocline.measure import source
from thermocline.measure.detecting import left_out
from thermocline.measure.spread import Spread
from thermocline.nets import Tap, Tokens, find_taps, named_taps
from thermocline.spec import Data, InputError, Net, Probe, Run, Train

WATCHED = ("accuracy", "loss", "logit_norm", "tempered_logit_norm", "temperature", "solution_rank")


@dataclass(frozen=True)
class Scan:
    """What a scan found: rows, and the numbers people ask for first."""

    found: record.Loaded

    def __repr__(self) -> str:
        return f"Scan({report.line(self.summary)}; see .table(), .layers, .rows)"

    @property
    def rows(self) -> pa.Table:
        """Everything measured, as one tidy table with the columns of `record.SCHEMA`."""
        return self.found.rows

    @property
    def summary(self) -> report.Summary:
        """The headline numbers; None or empty where a measure was not asked for."""
        return report.summary([self.found])[0]

    @property
    def effective_depth(self) -> float | None:
        return self.summary.effective_depth

    @property
    def ood_drop(self) -> dict[str, float]:
        return self.summary.ood_drop

    @property
    def solution_rank(self) -> float | None:
        return self.summary.solution_rank

    @property
    def layers(self) -> list[str]:
        """The paths of the layers that rows are of, in order of depth, the head last."""
        found = dict(zip(self.rows["depth"].to_pylist(), self.rows["layer"].to_pylist()))
        return [found[depth] for depth in sorted(found) if depth]

    def table(self) -> str:
        """The numbers and what they mean, as text."""
        return report.as_text(report.terminal([self.summary]))

    def save(self, directory: str | Path) -> Path:
        """Write a new run directory, which `thermocline report` and `record.load_rows` read beside any other."""
        _check_unused(directory, "scan")
        with record.open_run(directory, self.found.spec) as log:
            log.describe(self.found.provenance)
            log.fill(self.rows)  # last, and no log before it: a kill leaves a scan, or a folder that the next may take
        return Path(directory)

    def report(self, page: str | Path, *, figures: str | Path | None = None) -> Path:
        """Write the HTML page."""
        with tempfile.TemporaryDirectory() as folder:
            return report.render(self.save(Path(folder) / self.found.name), page, figures=figures)


def scan(
    model: nn.Module,
    train: Any,
    test: Any,
    ood: Mapping[str, Any] | None = None,
    *,
    temperature: float = 1.0,
    measures: str | Iterable[str] = ("all",),
    probes: Probe | Sequence[Probe] = ("ridge",),
    taps: Sequence[Tap | str] = (),
    pattern: str = "*",
    tokens: Tokens = "mean",
    logits: Callable[[Any], Tensor] = lambda output: output,
    name: str | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Scan:
    """Measure a classifier at every weight layer, showing it each sample of each set once (some 2,000 again, for gradients).

    Each set is (inputs, labels) tensors, a Dataset, a DataLoader or a Split, as the model expects its inputs; `ood` maps a
    name to the (train, test) of labelled other data, or to a test set alone, labelled or not, which is shown to detectors
    but not to probes. `temperature` is the one the model was trained at. Layers are those the model declares in `.taps`,
    else every Linear, convolution and attention that matches `pattern`, in the order they run; or those that `taps` names,
    by paths or as `nets.Tap`, the head last. `tokens` is how layers of tokens are viewed, but for a head that gives the
    logits at one of them. `probes` are the linear probes trained on each, ridge in closed form and logistic by the papers'
    protocol; the first gives the effective depth. `logits` picks the logits from what the model returns. `seed` says which
    of several trainings of one setting this is; reports then give their mean. The model's modes and hooks and all random
    states are as before.
    """
    net = inner(model)
    ood, temperature = measure.check_sets({} if ood is None else ood), _number(temperature)
    with _random_states_kept(train, test, *(split for pair in ood.values() for split in pair)):
        asked, kinds = ((one,) if isinstance(one, str) else tuple(one) for one in (measures, probes))
        facts = _facts(net, train, measure.select(asked), seed)
        what = _spec(net, name, train, temperature, seed, ood=tuple(ood), measures=asked, probes=kinds)
        options = {"temperature": temperature, "measures": asked, "probes": what.probes, "logits": logits}
        places = _taps(net, train, taps, logits, pattern, tokens)
        began = time.monotonic()
        rows = measure.measure(net, train, test, ood, taps=places, progress=progress, **options)
        facts["wall_seconds"] = round(time.monotonic() - began, 1)
        if gone := left_out(net.get_submodule(places[-1].path), places[-1].path, rows, facts["measures"]):
            facts["notes"] = [gone]
            warnings.warn(gone, stacklevel=2)
        what = dataclasses.replace(what, scanned=provenance.identity(net, rows))
        return Scan(record.Loaded(Path(what.name), what, facts, record.table(what, [(0, rows)]), True))


def _spec(
    net: nn.Module, name: str | None, data: Any, temperature: float, seed: int, *, ood: tuple[str, ...] = (), **more: Any
) -> Run:  # fmt: skip
    """What is known of a net that was trained elsewhere."""
    sets = Data(data.name if isinstance(data, Split) else "data", ood=ood)
    return Run(sets, Net(name or type(net).__name__), Train(temperature=temperature), seed=seed, **more)


def _facts(net: nn.Module, data: Any, names: Iterable[str], seed: int) -> dict[str, Any]:
    """How rows come about that are measured now."""
    facts = {**provenance.session(next(net.parameters()).device, 1), "seed": seed}
    facts["measures"] = {one: measure.MEASURES[one].explain() for one in names}
    return facts | ({"classes": list(data.names)} if isinstance(data, Split) and data.names else {})


def inner(model: nn.Module) -> nn.Module:
    """The net itself: hooks set after a model was compiled never fire, so read the one inside."""
    net = getattr(model, "_orig_mod", model)
    # In parallel each of several copies would fire a hook, or processes that do not measure would be waited for.
    while isinstance(net, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        net = getattr(net.module, "_orig_mod", net.module)
    if not isinstance(net, nn.Module):
        raise InputError(f"the model must be a torch.nn.Module, got a {type(net).__name__}")
    if next(net.parameters(), None) is None:
        raise InputError(f"{type(net).__name__} has no parameters: there is nothing to measure")
    if empty := [name for name, value in net.named_parameters() if nn.parameter.is_lazy(value)]:
        raise InputError(f"{empty[0]} has no values yet: run the net on a batch once, so that its lazy layers take their shape")
    if empty := [name for name, value in net.named_parameters() if value.is_meta]:
        raise InputError(f"{empty[0]} has no values, as it is on the meta device: load the weights first")
    return net


def head_of(net: nn.Module, data: Any) -> Tap:
    """The tap of the layer whose output is the logits."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="layers left out")
        return _taps(net, data)[-1]


def _taps(
    net: nn.Module,
    data: Any,
    given: Sequence[Tap | str] = (),
    logits: Callable[[Any], Tensor] = lambda output: output,
    pattern: str = "*",
    tokens: Tokens = "mean",
) -> tuple[Tap, ...]:
    """The taps given, plain paths among them; else those the net declares, if that is what its `taps` are; else those found."""
    given = [given] if isinstance(given, str) else list(given)
    if wrong := [tap for tap in given if not isinstance(tap, (Tap, str))]:
        raise InputError(f"taps are paths of modules, or made by nets.Tap(path, view=...), the head last; got {wrong[0]!r}")
    declared = getattr(net, "taps", ())
    if not given and isinstance(declared, (tuple, list)) and declared and all(isinstance(tap, Tap) for tap in declared):
        return tuple(declared)
    arguments, _ = next(source.samples(data, net, size=8))
    subject = measure.Subject(net, (), 1.0, logits)
    with measure.evaluating(net), torch.no_grad():
        few = {name: argument[:8] for name, argument in arguments.items()}
        more = {name: torch.cat([argument, argument[:1]]) for name, argument in few.items()}
        run, other = functools.partial(subject.run, few), functools.partial(subject.run, more)
        if not given:
            return find_taps(net, run, more=other, pattern=pattern, tokens=tokens)
        taps = named_taps(net, run, given, more=other, tokens=tokens)
        with measure.capture(net, taps) as at:
            found = run()
    if len(set(taps)) < len(taps):
        raise InputError("taps names a layer twice: its depth would be counted twice")
    if (width := at[taps[-1]].shape[1:].numel()) != (count := found.shape[1:].numel()):
        head = f"{taps[-1].path} gives {width} values a sample, and there are {count} logits; one in forward() must be a module"
        raise InputError(f"the last of taps must be the head: {head}")
    return taps


class Watch:
    """Measures a model every so many steps of your own training loop, on a fixed sample of your data.

    Either call `watch.step(step)` after each step, or train inside `with Watch(...) as watch:`, where it counts the forward
    passes made in training mode. Closing it, or leaving `with` without an error, measures the end too. A temperature that
    moves is given with a step, or set as `watch.temperature`, from when on measurements are at it. `rows` is what was seen
    so far; `directory` also keeps them as a run, `writer` (anything with `add_scalar(tag, value, step)`, such as
    TensorBoard's) draws them as they come. `overhead` is the share of the time since the start that watching took.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Any,
        *,
        every: int = 200,
        samples: int = 2048,
        measures: Iterable[str] = WATCHED,
        temperature: float = 1.0,
        taps: Sequence[Tap | str] = (),
        logits: Callable[[Any], Tensor] = lambda output: output,
        directory: str | Path | None = None,
        name: str | None = None,
        seed: int = 0,
        writer: Any = None,
    ) -> None:
        for what, value in (("every", every), ("samples", samples)):
            if value < 1:
                raise InputError(f"{what} must be at least 1, got {value}")
        if writer is not None and not callable(getattr(writer, "add_scalar", None)):
            words = f"which a {type(writer).__name__} has not: log what step() gives"
            raise InputError(f"writer must have add_scalar(tag, value, step), {words}")
        self.net, self.outer = inner(model), model
        self.every, self.writer = every, writer
        self.spent, self.count, self._measuring = 0.0, 0, False
        self._last: int | None = None  # the step training has come to, unless it has not begun or nobody watches any more
        names = measure.select(measures)
        if lacking := [name for name in names if measure.MEASURES[name].needs & {"probes", "ood"}]:
            raise InputError(f"{lacking[0]} needs test or other data, which a Watch has none of: use scan")
        self.began = time.monotonic()
        with _random_states_kept(data):
            self._sample = _sample(data, self.net, samples)
            places = _taps(self.net, self._sample, taps, logits)
        self._options = {"measures": names, "taps": places, "logits": logits}
        self.temperature = temperature
        known = {"measures": names, "follow": names, "probes": (), "scanned": provenance.identity(self.net)}
        self._what = _spec(self.net, name, data, self.temperature, seed, **known)
        self._seen: dict[int, list[record.Row]] = {}
        self._closing = contextlib.ExitStack()
        self._log = None
        if directory is not None:
            _check_unused(directory, "watch")
            self._log = self._closing.enter_context(record.open_run(directory, self._what))
            self._log.describe(_facts(self.net, data, names, seed))
        self.spent = time.monotonic() - self.began

    def __enter__(self) -> Watch:
        # On what the user calls: a compiled net does not call the hooks of the one inside. One compiled in place traces its
        # own, and would compile the measuring. Not a decorator: it imports the compiler, which takes seconds.
        count: Any = torch.compiler.disable(self._count)
        self._closing.callback(self.outer.register_forward_pre_hook(count).remove)
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if error is not None:
            self._last = None  # what an error left behind is not the end of training
        elif self._last is None and not self._seen:  # where nothing was closed by hand before
            warnings.warn(f"{type(self.net).__name__} made no forward pass in training mode: use watch.step()", stacklevel=2)
        self.close()

    def close(self) -> None:
        """Measure the end, unless it was, and stop watching; with a directory, make it a finished run."""
        try:
            if self._last is not None and self._last > max(self._seen, default=-1):
                self._measure(self._last)
        finally:
            self._last = None
            if self._log is not None and not self._log.finished:
                self._log.describe({"wall_seconds": round(time.monotonic() - self.began, 1)})
                self._log.finish(self._seen)
            self._closing.close()

    def _count(self, module: nn.Module, inputs: Any) -> None:
        # Before the forward pass of a step nothing of that step is in flight, so measuring cannot disturb it.
        if self.net.training and not self._measuring:
            self.step(self.count)
            self.count += 1
            self._last = self.count

    @property
    def temperature(self) -> float:
        """The temperature of the next measurement."""
        return self._options["temperature"]

    @temperature.setter
    def temperature(self, value: float | Tensor) -> None:
        self._options["temperature"] = Train(temperature=_number(value)).temperature

    def step(self, step: int, *, temperature: float | Tensor | None = None) -> dict[str, float] | None:
        """Measure, if this step is one of those; returns the numbers under flat slash keys."""
        if temperature is not None:
            self.temperature = temperature
        self._last = step
        return None if step % self.every or step in self._seen else self._measure(step)

    def _measure(self, step: int) -> dict[str, float]:
        began = time.monotonic()
        self._measuring = True
        try:
            with _random_states_kept():
                rows = measure.measure(self.net, self._sample, None, {}, final=False, follow=("all",), **self._options)
        finally:
            self._measuring = False
        if self._log is not None and not self._log.recorded(step):
            self._log.append(step, rows)
        self._seen[step] = rows
        scalars = {_key(row): row.value for row in rows}
        if self.writer is not None:
            for tag, value in scalars.items():
                self.writer.add_scalar(tag, value, step)
        self.spent += time.monotonic() - began
        return scalars

    @property
    def rows(self) -> pa.Table:
        """What was seen so far."""
        return record.table(self._what, sorted(self._seen.items()))

    @property
    def overhead(self) -> float:
        """The share of the time since the start that went into watching."""
        return self.spent / max(time.monotonic() - self.began, 1e-9)


def _check_unused(directory: str | Path, what: str) -> None:
    if record.begun(directory):
        raise InputError(f"{directory} holds an earlier {what} or run; choose another directory")


def _number(value: float | Tensor) -> float:
    """A temperature as losses take it, which may be a tensor of one element."""
    return value.item() if isinstance(value, Tensor) and value.numel() == 1 else value  # pyright: ignore[reportReturnType]


def _key(row: record.Row) -> str:
    """Where a number goes in a log, in the letters that all loggers take (MLflow's are words, dots, dashes and slashes).

    >>> _key(record.Row("train", "head", 3, "full", "rank", "of=covariance,rtol=0.001", 7.0))
    'rank/train/head/of-covariance/rtol-0.001'
    """
    words = (row.measure, row.split, row.layer, row.params.replace(",", "/").replace("=", "-"))
    return "/".join(re.sub(r"[^\w./ -]", "-", word) for word in words if word)


def _sample(data: Any, net: nn.Module, samples: int) -> tuple[source.Arguments, Tensor]:
    """Samples spread over a set, in whatever order its classes come, held where the net is.

    Of what can only be read in its own order, up to 64 times as many are looked at.
    """
    if source.indexable(data) and (count := source.count(data)):
        batches = list(source.batches(data, net, size=1000, order=source.some(samples, of=count)))
        arguments = {name: torch.cat([one[name] for one, _ in batches]) for name in batches[0][0]}
        return arguments, torch.cat([labels for _, labels in batches])
    some, start, names = Spread(limit=samples), 0, ()
    for arguments, labels in source.batches(data, net, size=1000):
        names = tuple(arguments)
        some.add(start, *arguments.values(), labels)
        start += len(labels)
        if start >= 64 * samples:
            break
    *found, labels = some.values
    return dict(zip(names, found)), labels


@contextlib.contextmanager
def _random_states_kept(*data: Any) -> Iterator[None]:
    """Whatever loaders and layers draw inside, torch, numpy, Python and the loaders go on as if nothing had."""
    python, numpy = random.getstate(), np.random.get_state()
    own = {one: one.get_state() for split in data for one in source.generators(split)}
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=list(devices)):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
            for one, state in own.items():
                one.set_state(state)
