"""Once more through JPEG, to see what a pass of it costs; and the trials by which T = 10 was chosen.

python second_pass.py DIR/cifar100.npz TWICE/cifar100.npz
S="--set train.batch=128 --set train.lr=0.1 --set train.weight_decay=5e-4 --set train.augment=crop+flip"
S="$S --set train.precision=bfloat16 --set train.snapshots=1 --set measures=accuracy --net resnet18 --data cifar100"
thermocline train $S --data-dir TWICE --set train.epochs=200 --set train.schedule=cosine --set train.compile=true
S="$S --data-dir DIR --seed 99 --set train.epochs=12 --set train.schedule=constant --set train.patience=12"
thermocline train $S --temperature 100   # and at 10; at 100 with --set train.weight_decay=1e-4; at 100 with
                                         # --set train.head_weight_decay=0, and --set train.norm_weight_decay=0 too
"""

import io
import sys

import numpy as np
from PIL import Image

STEP = [14] * 64  # the copies' quantiser, for brightness and colour
source, target = sys.argv[1:]  # arrays as --data-dir has them, and where they go
arrays = dict(np.load(source))
for name in ("x_train", "x_test"):
    parts = []
    for images in np.split(arrays[name], len(arrays[name]) // 10_000):
        wide = np.pad(images, ((0, 0), (4, 4), (4, 4), (0, 0)), mode="reflect")  # 40 x 40: blocks of eight lie elsewhere
        mosaic = wide.reshape(100, 100, 40, 40, 3).swapaxes(1, 2).reshape(4000, 4000, 3)
        Image.fromarray(mosaic).save(store := io.BytesIO(), "JPEG", qtables=[STEP, STEP], subsampling=0)
        tiles = np.asarray(Image.open(store).convert("RGB")).reshape(100, 40, 100, 40, 3).swapaxes(1, 2)
        parts.append(tiles.reshape(-1, 40, 40, 3)[:, 4:36, 4:36])
    arrays[name] = np.concatenate(parts)
np.savez(target, **arrays)
