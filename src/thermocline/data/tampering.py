"""Training sets made harder on purpose: fewer images of some classes, false labels on some images.

Both are functions of the data alone. A run's seed does not enter: runs that differ in their seed (or temperature) are
then trained on the very same images and labels, and what differs between them is not the draw of the data.
"""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from thermocline.data.hashing import place_in_class, scramble
from thermocline.spec import InputError

_WHICH, _WHAT = 1, 2  # apart from each other, so that who is mislabelled says nothing of as what


def long_tail(counts: Int[Tensor, "c"], *, imbalance: float) -> Int[Tensor, "c"]:
    """How many images each class keeps: an exponential profile from class 0, the largest, to class c - 1.

        n_k = round(n_0 r^(-k / (c - 1))),  r = n_0 / n_(c-1) the imbalance        [cui2019classbalanced, long-tailed CIFAR]

    n_0 is as large as the counts allow: the images of class 0, if all classes have as many.

    >>> long_tail(torch.tensor([500, 500, 500]), imbalance=100.0)
    tensor([500,  50,   5])
    >>> long_tail(torch.tensor([500, 20, 500]), imbalance=100.0)
    tensor([200,  20,   2])
    """
    share = imbalance ** -torch.linspace(0, 1, len(counts), dtype=torch.float64)
    return (share * (counts / share).min()).round().to(torch.int64)


def thinned(name: str, labels: Int[Tensor, "n"], *, imbalance: float) -> Int[Tensor, "m"]:
    """Indices, ascending, of the images that the long tail leaves."""
    counts = labels.bincount()
    kept = long_tail(counts, imbalance=imbalance)
    if not kept.all():
        empty, most = int((kept == 0).nonzero()[0]), int(kept.max())
        raise InputError(
            f"imbalance={imbalance:g} leaves class {empty} of {name} without a training image; "
            f"class 0 has {most}: try {most} or less"
        )
    return (place_in_class(labels) < kept[labels]).nonzero()[:, 0]


def mislabelled(labels: Int[Tensor, "n"], indices: Int[Tensor, "n"], *, share: float, classes: int) -> Int[Tensor, "n"]:
    """The labels, round(share n) of them replaced by another class, each other class equally likely.

    `indices` say which image of the set each one is: which are mislabelled, and as what, is drawn from them.
    A larger share only adds to the false labels. [zhang2017rethinking] draw from all classes, the true one among them,
    and for each image alone: their p is our share times c / (c - 1), on average.

    >>> labels = torch.zeros(10, dtype=torch.int64)
    >>> mislabelled(labels, torch.arange(10), share=0.3, classes=2).sum()
    tensor(3)
    """
    chosen = scramble(_WHICH, indices).argsort()[: round(share * len(labels))]
    shift = 1 + scramble(_WHAT, indices[chosen]).remainder(classes - 1)
    changed = labels.clone()
    changed[chosen] = (labels[chosen] + shift) % classes
    return changed
