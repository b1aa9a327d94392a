"""A classifier and a training loop of your own: watched while it trains, then scanned at every layer.

A small net learns the handwritten digits 0 to 4; digits 5 to 9 are the data it was not trained on.

    python examples/classifier.py            # a table, and the page classifier.html
    thermocline report runs/classifier       # the same numbers over training
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

import thermocline as tc
from thermocline import softmax

TEMPERATURE = 2.0

pixels, digits = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
images = pixels.float().unflatten(1, (1, 8, 8)) / 16
train, test, other_train, other_test = (
    (images[half::2][mine], digits[half::2][mine])
    for kept in (digits < 5, digits >= 5)
    for half in (0, 1)
    for mine in [kept[half::2]]
)

torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)
)  # plain logits: the temperature is the loss's
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

with tc.Watch(net, train, every=50, temperature=TEMPERATURE, directory="runs/classifier") as watch:
    for _ in range(40):
        for batch in torch.randperm(len(train[0])).split(64):
            logits, labels = net(train[0][batch]), train[1][batch]
            loss = softmax.tempered_cross_entropy(logits, labels, temperature=TEMPERATURE)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

other = {"digits 5 to 9": (other_train, other_test)}
result = tc.scan(net, train, test, ood=other, temperature=TEMPERATURE, name="digits 0 to 4")
print(result.table())
print(result.report("classifier.html"))
