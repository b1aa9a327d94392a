"""The step of `Step`, compiled: the same arithmetic in fewer and larger kernels.

Three things beside the compiler make it fast on a GPU. Weights are kept in the precision of the forward pass beside the
originals, so that none is cast twice a step. The gradients of convolutions' weights, which nothing waits for until the
optimiser, are computed on a stream of their own, beside the gradients of activations. And convolutions that read fewer than
eight channels read zeros beside them, which tensor cores want.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from thermocline.train.step import Step

CHANNELS = 8  # of images: a multiple of what tensor cores read at once


@torch.library.custom_op(
    "thermocline::weight_gradient", mutates_args=(), schema="(Tensor slope, Tensor x, Tensor weight, int[] how) -> Tensor"
)
def _weight_gradient(slope: Tensor, x: Tensor, weight: Tensor, how: list[int]) -> Tensor:
    """That of a convolution; on a GPU on a stream of its own, which the caller waits for."""
    if not x.is_cuda:
        return _alone(slope, x, weight, how)
    stream = _side(x.device.index)
    stream.wait_stream(torch.cuda.current_stream(x.device))
    with torch.cuda.stream(stream):
        gradient = _alone(slope, x, weight, how)
    # What they are stored in must not be given to others before the stream has read it.
    slope.record_stream(stream)
    x.record_stream(stream)
    return gradient


def _alone(slope: Tensor, x: Tensor, weight: Tensor, how: list[int]) -> Tensor:
    """The gradient of the weight without the other, laid out as the compiler was told it would be."""
    found, like = _slopes(slope, x, weight, how, [False, True, False])[1], torch.empty_like(weight)
    return found if found.stride() == like.stride() else like.copy_(found)


@_weight_gradient.register_fake
def _(slope: Tensor, x: Tensor, weight: Tensor, how: list[int]) -> Tensor:
    return torch.empty_like(weight)


@functools.cache
def _side(device: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def _slopes(slope: Tensor, x: Tensor, weight: Tensor, how: list[int], wanted: list[bool]) -> tuple[Tensor, Tensor, Tensor]:
    stride, padding, dilation, groups = how[:2], how[2:4], how[4:6], how[6]
    return torch.ops.aten.convolution_backward(slope, x, weight, None, stride, padding, dilation, False, [0, 0], groups, wanted)


class _Convolve(torch.autograd.Function):
    """A convolution without bias whose two gradients are computed apart."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, how: list[int]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.how = how
        return functional.conv2d(x, weight, None, how[:2], how[2:4], how[4:6], how[6])

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, Tensor, None]:
        x, weight = ctx.saved_tensors
        gradient = torch.ops.thermocline.weight_gradient(slopes[0], x, weight, ctx.how)
        wanted = [True, False, False]
        return _slopes(slopes[0], x, weight, ctx.how, wanted)[0] if ctx.needs_input_grad[0] else None, gradient, None


def _convolve(layer: nn.Conv2d, input: Tensor) -> Tensor:
    how = [int(number) for pair in (layer.stride, layer.padding, layer.dilation) for number in pair] + [layer.groups]
    if more := layer.weight.shape[1] * layer.groups - input.shape[1]:
        input = functional.pad(input, (0, 0, 0, 0, 0, more)).contiguous(memory_format=torch.channels_last)
    return _Convolve.apply(input.to(layer.weight.dtype), layer.weight, how)  # pyright: ignore[reportReturnType]


class Compiled:
    """A `Step` that is compiled when it is first taken."""

    def __init__(self, step: Step, *, backend: str = "inductor") -> None:
        self.step, self.separate = step, _Separate(step.net)
        names, self.trained = zip(*step.state.named_parameters())
        self.read = {name: self._copy(name, weight) for name, weight in self._half()}
        self.copies = {
            name: copy.detach()[:, : weight.shape[1]] for (name, weight), copy in zip(self._half(), self.read.values())
        }
        self.sources: list[Any] = [self.read.get(name, parameter) for name, parameter in zip(names, self.trained)]
        self.originals = [dict(zip(names, self.trained))[name] for name in self.copies]
        # Many small kernels side by side in one, where nothing depends on another.
        options: dict[str, Any] = {"options": {"combo_kernels": True}} if backend == "inductor" else {"backend": backend}
        self._forward = torch.compile(self._look, dynamic=False, fullgraph=True, **options)

    def __call__(self) -> Tensor:
        """Take it; returns the loss before, on the device."""
        with self.separate as counters:
            loss, temperature, hits = self._forward()
            gradients = torch.autograd.grad([loss], self.sources, allow_unused=True)
        if loss.is_cuda:
            torch.cuda.current_stream().wait_stream(_side(loss.device.index))
        with torch.no_grad():
            self.step.advance(temperature, hits)
            self._widen(gradients)
            self.step.follow()
            if self.originals:
                _copy_all(list(self.copies.values()), self.originals)
            if counters:
                torch._foreach_add_(counters, 1)  # pyright: ignore[reportPrivateImportUsage]
        self.step.state.optimizer.zero_grad()
        return loss.detach()

    def _look(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.step.forward(self._run)

    def _run(self, images: Tensor) -> Tensor:
        return torch.func.functional_call(self.step.net, self.read, (images,)) if self.read else self.step.net(images)

    def _widen(self, gradients: tuple[Tensor | None, ...]) -> None:
        """Give the originals the gradients of their copies."""
        wide, narrow = [], []
        for parameter, gradient in zip(self.trained, gradients):
            # Fused kernels go through memory, not indices: a gradient is laid out as its parameter is.
            if gradient is not None and (gradient.dtype, gradient.stride()) == (parameter.dtype, parameter.stride()):
                parameter.grad = gradient
            elif gradient is not None:
                parameter.grad = torch.empty_like(parameter)
                wide.append(parameter.grad)
                narrow.append(gradient[:, : parameter.shape[1]] if parameter.ndim > 1 else gradient)
        if wide:
            _copy_all(wide, narrow)

    def _half(self) -> Iterator[tuple[str, Tensor]]:
        """The weights that the forward pass reads in half precision, if it does; one that two layers share is there once."""
        if self.step.train.precision != "bfloat16":
            return
        trained = {name for name, _ in self.step.state.named_parameters()}
        for path, layer in self.step.net.named_modules():
            if isinstance(layer, nn.Conv2d | nn.Linear) and (name := f"{path}.weight") in trained:
                yield name, layer.weight

    def _copy(self, name: str, weight: Tensor) -> Tensor:
        """In half precision; of a convolution that reads few channels, with more of zeros."""
        copy = weight.detach().bfloat16()
        layer = self.step.net.get_submodule(name.removesuffix(".weight"))
        ours = any(layer is one for one, _ in self.separate.forwards)
        if ours and isinstance(layer, nn.Conv2d) and layer.groups == 1 and weight.shape[1] < CHANNELS:
            copy = functional.pad(copy, (0, 0, 0, 0, 0, CHANNELS - weight.shape[1]))
            copy = copy.contiguous(memory_format=torch.channels_last)
        return copy.requires_grad_()


class _Separate:
    """While a step is taken: convolutions as above, and the counters of batch normalisation left to the caller.

    Measuring, between steps, finds the net as it is. What is put in place is the same object every time: the compiler looks.
    """

    def __init__(self, net: nn.Module) -> None:
        convolutions = [layer for layer in net.modules() if type(layer) is nn.Conv2d and _plain(layer)]
        self.forwards = [(layer, functools.partial(_convolve, layer)) for layer in convolutions]
        norms = [layer for layer in net.modules() if isinstance(layer, nn.BatchNorm2d) and layer.momentum is not None]
        self.counters = [(layer, count) for layer in norms if (count := layer.num_batches_tracked) is not None]

    def __enter__(self) -> list[Tensor]:
        for layer, forward in self.forwards:
            layer.forward = forward
        for layer, _ in self.counters:
            layer.num_batches_tracked = None
        return [count for _, count in self.counters]

    def __exit__(self, *error: object) -> None:
        for layer, forward in self.forwards:
            assert layer.forward is forward
            del layer.forward
        for layer, count in self.counters:
            layer.num_batches_tracked = count


def _copy_all(into: list[Tensor], given: list[Tensor]) -> None:
    """All in one kernel, but for those that skip memory or lie in it otherwise: one of them in the list makes it one each."""
    alike = [a.stride() == b.stride() == torch.empty_like(a, device="meta").stride() for a, b in zip(into, given)]
    for a, b, plain in zip(into, given, alike):
        if not plain:
            a.copy_(b)
    if any(alike):
        into, given = ([one for one, plain in zip(some, alike) if plain] for some in (into, given))
        torch._foreach_copy_(into, given)  # pyright: ignore[reportPrivateImportUsage]


def _plain(layer: nn.Conv2d) -> bool:
    return layer.bias is None and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
