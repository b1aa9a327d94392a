"""What a training step of several processes shares: gradients, and the statistics of batch normalisation."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from thermocline.team import Team


def sum_gradients(parameters: Iterable[nn.Parameter], team: Team) -> None:
    """Each gradient becomes the sum over a team's; they travel as one tensor, and every process adds in the same order."""
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if team.size > 1 and grads:
        whole = team.sum(torch.cat([grad.flatten() for grad in grads]))
        for grad, part in zip(grads, whole.split([grad.numel() for grad in grads])):
            grad.copy_(part.view_as(grad))


def share_statistics(net: nn.Module, team: Team) -> None:
    """Let batch normalisation see the whole batch, not a process's share of it; torch's own way does so on GPUs alone."""
    for module in net.modules() if team.size > 1 else ():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.forward = functools.partial(_normalise, module, team)


def _normalise(module: nn.modules.batchnorm._BatchNorm, team: Team, input: Tensor) -> Tensor:
    """y = (x - mean) / sqrt(var + eps) * weight + bias, mean and var over all samples and places   [ioffe2015batch, Alg. 1]"""
    if not module.training:
        return type(module).forward(module, input)
    x = input
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    places = [axis for axis in range(x.ndim) if axis != 1]
    count = team.sum(wide.new_tensor(x.numel() // x.shape[1]))
    mean = team.sum(wide.sum(places)) / count
    shape = [1, -1, *[1] * (x.ndim - 2)]
    variance = team.sum((wide - mean.view(shape)).square().sum(places)) / count
    if module.running_mean is not None and module.running_var is not None:
        assert module.num_batches_tracked is not None
        module.num_batches_tracked += 1
        weight = module.momentum if module.momentum is not None else 1 / float(module.num_batches_tracked)
        module.running_mean.lerp_(mean.detach().to(module.running_mean.dtype), weight)
        unbiased = variance.detach() * (count / (count - 1))
        module.running_var.lerp_(unbiased.to(module.running_var.dtype), weight)
    y = (wide - mean.view(shape)) * (variance.view(shape) + module.eps).rsqrt()
    if module.affine:
        y = y * module.weight.view(shape) + module.bias.view(shape)
    return y.to(x.dtype)
