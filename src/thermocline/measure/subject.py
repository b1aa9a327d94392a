"""The net under study, and how it is run."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, cast

import torch
from rich.progress import track
from torch import Tensor, nn
from torch.utils.data import DataLoader

from thermocline.measure import source
from thermocline.nets import Tap
from thermocline.spec import Failure, InputError
from thermocline.team import ALONE, Team

BATCH = 1000  # samples a forward pass while measuring


class Subject(NamedTuple):
    """The net to look at: where to tap it, at which temperature its probabilities are meant, how to read its output."""

    net: nn.Module
    taps: tuple[Tap, ...]
    temperature: float
    logits: Callable[[Any], Tensor]
    probes: tuple[str, ...] = ("ridge",)
    progress: bool = False
    team: Team = ALONE

    def show(self, split: str, data: Any, *, labelled: bool = True) -> Iterator[tuple[source.Arguments, Tensor]]:
        """The batches of a split, drawn as a progress bar where that was asked for; if not `labelled`, all labels are 0."""
        part = self.share(data)
        order = None if self.team.size == 1 else torch.arange(part.start, part.stop)
        read = source.batches if labelled else source.samples
        batches = read(data, self.net, size=BATCH, order=order)
        with said_of(split):
            if self.progress:
                known = source.count(data)
                total = -(-known // BATCH) if known and not isinstance(data, DataLoader) else len(data) if known else None
                batches = track(batches, f"measuring on {split}", total)
            for arguments, labels in batches:
                first = next(iter(arguments.values()))
                blank = torch.zeros(len(first), dtype=torch.int64, device=first.device)
                yield arguments, labels if labelled and labels is not None else blank

    def share(self, data: Any) -> slice:
        """Which samples this process of a team looks at; all where it is alone."""
        if self.team.size == 1:
            return slice(0, None)
        count = source.count(data) if source.indexable(data) else None
        if count is None or count < self.team.size:
            raise InputError(f"{self.team.size} processes share data that can be read in any order and has a sample for each")
        return self.team.share(count)

    def run(self, arguments: Mapping[int | str, Tensor]) -> Tensor:
        """The logits of a batch, which stays as it is: a net that normalises its inputs in place gets a copy."""
        if not callable(self.logits):
            what = type(self.logits).__name__
            raise InputError(f"logits= is a function, such as lambda output: output['scores']; got a {what}")
        placed = [value.clone() for name, value in arguments.items() if isinstance(name, int)]
        named = {name: value.clone() for name, value in arguments.items() if isinstance(name, str)}
        try:
            returned = self.net(*placed, **named)
        except (InputError, Failure):
            raise
        except TypeError:
            _check_names(self.net, placed, named)
            raise
        except (RuntimeError, ValueError, AssertionError, IndexError) as error:  # whatever a net refuses inputs by
            if out_of_memory(error):
                raise
            kinds = " and ".join(f"{tuple(value.shape)} {value.dtype}" for value in arguments.values())
            reason = str(error).strip().partition("\n")[0] or f"{type(error).__name__}, without a word"
            raise InputError(f"the net does not run on inputs of {kinds}: {reason}") from error
        output = logits_in(self.logits(returned))
        if wrong := no_logits(output):
            raise InputError(f"the net returns {wrong}: pass logits=lambda output: ...")
        return output


def out_of_memory(error: Exception) -> bool:
    """Whether there was no room, on a GPU or, of which torch has no error of its own, in main memory."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "DefaultCPUAllocator" in str(error)


def _check_names(net: nn.Module, placed: list[Tensor], named: Mapping[str, Tensor]) -> None:
    """Raise unless a net takes inputs of these names, and so many without one."""
    takes = inspect.signature(net.forward)
    try:
        takes.bind(*placed, **named)
    except TypeError:
        came = ", ".join(map(repr, named)) if named else f"{len(placed)} without names"
        told = "name them as it does (labels are 'labels' or 'label'), or give pairs (inputs, labels)"
        raise InputError(f"the net takes forward({', '.join(takes.parameters)}), but the inputs are {came}: {told}") from None


@contextlib.contextmanager
def said_of(split: str) -> Iterator[None]:
    """What is wrong with inputs, with the name of the split they are of."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{split}: {error}") from error.__cause__


def no_logits(output: Any) -> str:
    """What an output is, where it is not logits; nothing where it is."""
    if isinstance(output, Tensor) and output.ndim == 2:
        return ""
    kind = f"a tensor of shape {tuple(output.shape)}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
    return f"{kind}, not (samples, classes) logits"


def logits_in(output: Any) -> Any:
    """What an output that has several parts calls its logits; else the output itself."""
    return output.get("logits", output) if isinstance(output, Mapping) else getattr(output, "logits", output)


@contextlib.contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """Evaluation mode, and float32 that is float32; afterwards each module and its buffers, and torch, as they were.

    A GPU rounds what convolutions of float32 read to TF32, 10 bits: small singular values would be those of the rounding.
    What is compiled runs as it was written: compiled with our hooks in it, it might not be compiled without again. And so do
    torch's own encoders, whose quick path calls no layers, and is taken in evaluation alone.
    """
    modes = {module: module.training for module in net.modules()}
    matmul, cudnn, mha = torch.backends.cuda.matmul, cast(Any, torch.backends.cudnn), torch.backends.mha
    before = matmul.allow_tf32, cudnn.allow_tf32
    quick = mha.get_fastpath_enabled()
    compiled = "torch._dynamo" in sys.modules  # without the compiler nothing is, and to import it takes seconds
    try:
        for module in modes:
            module.training = False  # not by eval(), which nets override to change weights, as where LoRA merges its own
        matmul.allow_tf32 = cudnn.allow_tf32 = False
        mha.set_fastpath_enabled(False)
        with _buffers_kept(net), torch.compiler.set_stance("force_eager") if compiled else contextlib.nullcontext():
            yield
    finally:
        mha.set_fastpath_enabled(quick)
        matmul.allow_tf32, cudnn.allow_tf32 = before
        for module, mode in modes.items():
            module.training = mode


@contextlib.contextmanager
def _buffers_kept(net: nn.Module) -> Iterator[None]:
    """Buffers that forward passes write to, as running means do that know no evaluation mode, have their values again after.

    One that was put in place of another gives way to it, unless it has another shape: a cache that grew is read by its size.
    """
    modules = [module for module in net.modules() if not isinstance(module, torch.jit.ScriptModule)]  # those are refused
    known = [(module._buffers, *named) for module in modules for named in module.named_buffers(recurse=False)]
    kept = [(*one, one[2].detach().clone()) for one in known if one[2].layout == torch.strided]
    try:
        yield
    finally:
        with torch.inference_mode():  # in which tensors of either kind can be written
            for buffers, name, buffer, value in kept:
                now = buffers.get(name)
                if now is None or now.shape != value.shape:
                    continue
                buffers[name] = buffer
                if not torch.equal(buffer, value):
                    buffer.copy_(value)
