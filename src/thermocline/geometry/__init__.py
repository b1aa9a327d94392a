"""The shape of a cloud of vectors.

Wherever `x` appears it is a matrix with samples in rows, the `Moments` or `ClassMoments` of one, or its singular
values already computed (a vector): the count of a tolerance sweep then costs one decomposition. What is NaN, infinite
or empty has no shape, and is an error.
"""

from thermocline.geometry.collapse import NeuralCollapse as NeuralCollapse
from thermocline.geometry.collapse import collapse_from_moments as collapse_from_moments
from thermocline.geometry.collapse import nearest_class_mean as nearest_class_mean
from thermocline.geometry.collapse import neural_collapse as neural_collapse
from thermocline.geometry.collapse import orthodev as orthodev
from thermocline.geometry.layers import Alignment as Alignment
from thermocline.geometry.layers import alignment as alignment
from thermocline.geometry.layers import gradient_rank as gradient_rank
from thermocline.geometry.layers import random_alignment as random_alignment
from thermocline.geometry.layers import unfold_patches as unfold_patches
from thermocline.geometry.logits import HeadSubspace as HeadSubspace
from thermocline.geometry.logits import SoftmaxRank as SoftmaxRank
from thermocline.geometry.logits import circle_code as circle_code
from thermocline.geometry.logits import circle_scale as circle_scale
from thermocline.geometry.logits import circle_scale_bound as circle_scale_bound
from thermocline.geometry.logits import functional_rank as functional_rank
from thermocline.geometry.logits import head_subspace as head_subspace
from thermocline.geometry.logits import softmax_gap_bound as softmax_gap_bound
from thermocline.geometry.logits import softmax_rank as softmax_rank
from thermocline.geometry.spectra import Cloud as Cloud
from thermocline.geometry.spectra import entropy_rank as entropy_rank
from thermocline.geometry.spectra import numerical_rank as numerical_rank
from thermocline.geometry.spectra import singular_values as singular_values
from thermocline.geometry.spectra import stable_rank as stable_rank
