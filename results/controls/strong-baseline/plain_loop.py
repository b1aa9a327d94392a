"""NECO's recipe in plain PyTorch: torchvision's ResNet-18 with a 3 x 3 stem, torch's SGD and cosine, nothing of thermocline.

python plain_loop.py DIR/cifar100.npz 200 0     # arrays as --data-dir has them, epochs, seed

plain_loop.txt is what it printed, before names were tidied and a choice of precision (then bf16) was left out.
"""

import sys
import time

import numpy as np
import torch
import torchvision
from torch.nn import functional

path, epochs, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(seed)
torch.backends.cudnn.benchmark = True
arrays = np.load(path)
x, y, test_x, test_y = (torch.from_numpy(arrays[name]).cuda() for name in ("x_train", "y_train", "x_test", "y_test"))
std, mean = (one.float() for one in torch.std_mean(x.double().div(255), (0, 1, 2)))
wide = functional.pad(x, (0, 0, 4, 4, 4, 4))  # by four black pixels
net = torchvision.models.resnet18(num_classes=int(y.max()) + 1)
net.conv1, net.maxpool = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False), torch.nn.Identity()
net = net.cuda().to(memory_format=torch.channels_last)
optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
side = torch.arange(32, device="cuda")


def forward(images: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cuda", torch.bfloat16):
        return net(((images.float() / 255 - mean) / std).permute(0, 3, 1, 2))


@torch.no_grad()
def accuracy() -> float:
    net.eval()
    right = sum((forward(a).argmax(1) == b).sum() for a, b in zip(test_x.split(1000), test_y.split(1000), strict=True))
    net.train()
    return float(right) / len(test_y)


began = time.time()
for epoch in range(epochs):
    right = torch.zeros((), device="cuda")
    for i in torch.randperm(len(x), device="cuda").split(128):
        down, across = torch.randint(9, (2, len(i), 1), device="cuda") + side
        images = wide[i[:, None, None], down[:, :, None], across[:, None, :]]
        images = torch.where(torch.rand(len(i), 1, 1, 1, device="cuda") < 0.5, images.flip(2), images)
        logits = forward(images)
        loss = functional.cross_entropy(logits.float(), y[i])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        right += (logits.argmax(1) == y[i]).sum()
    schedule.step()
    if epoch % 10 == 9 or epoch in (0, epochs - 1):
        seen = f"train {float(right) / len(x):.4f} test {accuracy():.4f}"
        print(f"bf16 seed {seed} epoch {epoch + 1}: {seen}, {time.time() - began:.0f} s", flush=True)
