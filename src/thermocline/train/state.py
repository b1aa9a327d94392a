"""Where training stands: the step, the optimiser and the temperature, beside the net they belong to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from thermocline import nets, spec

MOVING = {"sgd": ("momentum_buffer",), "adam": ("exp_avg", "exp_avg_sq", "step"), "adamw": ("exp_avg", "exp_avg_sq", "step")}


class State:
    """Everything that changes in training, and can be taken up again."""

    def __init__(self, net: nn.Module, train: spec.Train) -> None:
        self.step, self.net, self.train = 0, net, train
        # What training is judged by: the samples that were right since a step, and the loss that is too much (0: not known).
        self.since, self.right, self.limit = 0, 0, 0.0
        weight = next(net.parameters())
        # On the device, and set at every step from the schedule; "factor" is a group's share of the rate. Fused kernels of
        # a GPU take rates in float32 alone.
        exact = torch.float32 if weight.is_cuda else weight.dtype
        self.rate = torch.tensor([train.lr], dtype=exact, device=weight.device)
        self.temperature = torch.tensor(train.temperature, dtype=weight.dtype, device=weight.device)
        learned = train.temperature_schedule == "learned"
        self.log_temperature = nn.Parameter(self.temperature.log()) if learned else None
        self.optimizer = self._optimizer(list(self._groups()))
        self.rates = [self.rate.clone() for _ in self.optimizer.param_groups]
        for group, rate in zip(self.optimizer.param_groups, self.rates):
            group["lr"] = rate[0]

    def _groups(self) -> Iterator[dict[str, Any]]:
        """The net without its head, where biases and norms may decay apart; the head; a temperature that is learned."""
        head, train = nets.taps(self.net)[-1].path + ".", self.train
        named = [(name, parameter) for name, parameter in self.net.named_parameters() if parameter.requires_grad]
        body = [parameter for name, parameter in named if not name.startswith(head)]
        last = [parameter for name, parameter in named if name.startswith(head)]
        apart = [parameter for parameter in body if parameter.ndim < 2 and train.norm_weight_decay != 1]
        body = [parameter for parameter in body if parameter.ndim > 1 or not apart]
        yield {"params": body, "factor": 1.0, "weight_decay": train.weight_decay}
        if apart:
            yield {"params": apart, "factor": 1.0, "weight_decay": train.weight_decay * train.norm_weight_decay}
        yield {"params": last, "factor": train.head_lr, "weight_decay": train.weight_decay * train.head_weight_decay}
        if self.log_temperature is not None:
            yield {"params": [self.log_temperature], "factor": 1.0, "weight_decay": 0.0}

    def _optimizer(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        train = self.train
        if train.optimizer == "sgd":
            return torch.optim.SGD(groups, lr=self.rate[0], momentum=train.momentum, nesterov=train.nesterov, fused=True)
        kind = torch.optim.Adam if train.optimizer == "adam" else torch.optim.AdamW
        return kind(groups, lr=self.rate[0], betas=(train.momentum, 0.999), fused=True, capturable=self.rate.is_cuda)

    def parameters(self) -> Iterator[nn.Parameter]:
        """Everything that is trained, in one order."""
        return (parameter for _, parameter in self.named_parameters())

    def tensors(self) -> dict[str, Tensor]:
        """Everything a resumed run needs besides the step: weights, buffers, what the optimiser remembers, T, how it went."""
        found = {f"net.{name}": value for name, value in self.net.state_dict().items()}
        for name, parameter in self.named_parameters():
            for key in MOVING[self.train.optimizer]:
                if (value := self.optimizer.state[parameter].get(key)) is not None:
                    found[f"{key}.{name}"] = value
        learned = {} if self.log_temperature is None else {"log_temperature": self.log_temperature.detach()}
        judged = torch.tensor([self.since, self.right, self.limit], dtype=torch.float64)
        return {**found, "temperature": self.temperature, "judged": judged, **learned}

    def restore(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        """Continue from what `tensors` returned at that step."""
        own = {f"net.{name}": value.shape for name, value in self.net.state_dict().items()} | {"temperature": torch.Size()}
        if wrong := [name for name, shape in own.items() if name not in tensors or tensors[name].shape != shape]:
            raise spec.Failure(f"the checkpoint does not fit at {wrong[0]}: another run wrote it; begin in a new directory")
        self.net.load_state_dict({n.removeprefix("net."): value for n, value in tensors.items() if n.startswith("net.")})
        keys = MOVING[self.train.optimizer] if self.train.optimizer != "sgd" or self.train.momentum else ()
        if missing := [key for key in keys if not any(name.startswith(f"{key}.") for name in tensors)]:
            raise spec.Failure(f"the checkpoint has no {missing[0]}: another version wrote it; begin in a new directory")
        for name, parameter in self.named_parameters():
            for key in keys:
                if (value := tensors.get(f"{key}.{name}")) is not None:
                    # What follows the weights is laid out as they are: fused kernels go through memory, not indices.
                    like = value.to(parameter.device) if key == "step" else torch.empty_like(parameter).copy_(value)
                    self.optimizer.state[parameter][key] = like.detach()
        with torch.no_grad():
            self.temperature.copy_(tensors["temperature"])
            if self.log_temperature is not None:
                self.log_temperature.copy_(tensors["log_temperature"])
        judged = tensors.get("judged", torch.tensor([step, 0, 0]))  # versions before this one did not keep it
        self.step, self.since, self.right, self.limit = step, int(judged[0]), int(judged[1]), float(judged[2])

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Everything that is trained, by name."""
        yield from ((name, one) for name, one in self.net.named_parameters() if one.requires_grad)
        if self.log_temperature is not None:
            yield "log_temperature", self.log_temperature


def require_reachable(train: spec.Train, classes: int) -> None:
    """Raise where the softmax over so many classes cannot have the entropy that is to be held."""
    if train.temperature_schedule == "hold-entropy" and not (train.temperature_target or 0) < math.log(classes):
        most = math.log(classes)
        raise spec.InputError(
            f"temperature_target={train.temperature_target:g} nats cannot be held: {classes} classes have at most {most:.4g}"
        )
