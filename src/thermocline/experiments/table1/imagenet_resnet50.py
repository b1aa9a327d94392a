"""Table 1, ImageNet-1k / ResNet-50 [masarczyk2025softmax]: heat lowers rank, effective depth and OOD accuracy.

Which other data the paper uses here is not known; ours are CIFAR-10 at the net's own size. The images take 200 GB of
main memory, and stay there if the card has no room for them.
"""

from thermocline.experiments import _claims, _recipes
from thermocline.spec import Net

RUNS = _recipes.cold_and_hot("imagenet", Net("resnet50"), _recipes.IMAGENET)
CLAIMS = _claims.table_row(effective_depth=(1.00, 0.78), ood_drop=(0.05, 0.22), solution_rank=(947, 128), ood="cifar10")
COST = _claims.Cost("90 epochs a run at 224 pixels, 200 GB of images; not timed", gpu=True)
