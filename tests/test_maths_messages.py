"""Types and shapes are checked at run time in tests only: what the maths says to a user, who has no such checks."""

import asking

CLOUD = "ValueError: a cloud is a matrix with samples in rows, or a vector of singular values, got shape "
INDICES = "ValueError: labels must be a vector of class indices, got "
LABELS = "ValueError: every sample needs a label: there are 3 samples and "
NUMBERS = "must be real numbers, got "
KEEP = "ValueError: keep is the share of the accuracy to keep, in (0, 1], got "
CHANCE = "ValueError: the probability must be above chance, 1/10, and below 1, got "
DEPTH = "ValueError: threshold is a share of the last layer's accuracy, in (0, 1], got "
ASKED = {
    "geometry.numerical_rank(torch.ones(2, 3, 4), of='features', rtol=.1)": CLOUD + "(2, 3, 4)",
    "geometry.stable_rank(torch.tensor(3.0))": CLOUD + "()",
    "geometry.entropy_rank(torch.ones(3, 2, dtype=torch.complex64))": f"TypeError: a cloud {NUMBERS}torch.complex64",
    "geometry.entropy_rank('spectrum')": f"TypeError: a cloud {NUMBERS}str of <U8",
    "geometry.singular_values(None)": f"TypeError: a cloud {NUMBERS}NoneType of object",
    "geometry.numerical_rank([[3, 0], [0, 1], [0, 0]], of='features', rtol=.1)": "2",
    "geometry.neural_collapse(torch.eye(3), torch.eye(3).long(), torch.eye(3))": INDICES + "torch.int64 of shape (3, 3)",
    "geometry.neural_collapse(torch.eye(3), torch.eye(3)[0], torch.eye(3))": INDICES + "torch.float32 of shape (3,)",
    "geometry.neural_collapse(torch.eye(3), torch.arange(2), torch.eye(3))": LABELS + "2 labels",
    "geometry.neural_collapse(torch.eye(3), torch.arange(3), torch.eye(3), torch.zeros(1))": (
        "ValueError: the head has 3 rows but the bias has shape (1,)"
    ),
    "geometry.functional_rank(torch.eye(3), torch.eye(3).long())": INDICES + "torch.int64 of shape (3, 3)",
    "geometry.functional_rank(torch.eye(3), torch.arange(1))": LABELS + "1 labels",
    "geometry.functional_rank(torch.ones(0, 3), torch.arange(0))": "ValueError: an accuracy needs samples, got none",
    "geometry.functional_rank(torch.eye(3), torch.arange(3) + 100)": "ValueError: labels must lie in 0..2, got 100..102",
    "geometry.functional_rank(torch.eye(3), torch.arange(3) - 1)": "ValueError: labels must lie in 0..2, got -1..1",
    "geometry.head_subspace(torch.ones(0, 3), torch.arange(0), torch.eye(3), None, keep=.9)": (
        "ValueError: an accuracy needs samples, got none"
    ),
    "geometry.head_subspace(torch.eye(3), torch.arange(3), torch.eye(3)[:2], None, keep=.9)": (
        "ValueError: labels must lie in 0..1, got 0..2"
    ),
    "geometry.head_subspace(torch.eye(3), torch.arange(3), torch.eye(3), torch.zeros(1), keep=.9)": (
        "ValueError: the head has 3 rows but the bias has shape (1,)"
    ),
    "geometry.head_subspace(torch.eye(3), torch.arange(3), torch.ones(3, 2), None, keep=.9)": (
        "ValueError: the head reads 2 features, and there are 3"
    ),
    "geometry.neural_collapse(torch.ones(3, 2, 1, 1), torch.arange(3), torch.eye(3))": (
        "ValueError: features must be a matrix with samples in rows, got torch.float32 of shape (3, 2, 1, 1)"
    ),
    "geometry.neural_collapse(torch.ones(3), torch.arange(3), torch.eye(3))": (
        "ValueError: features must be a matrix with samples in rows, got torch.float32 of shape (3,)"
    ),
    "geometry.gradient_rank(torch.ones(3), of='features', rtol=.1)": (
        "ValueError: the gradient must be a matrix, or that of a convolution, got shape (3,)"
    ),
    "geometry.alignment(torch.ones(3), torch.eye(3)).max": (
        "ValueError: the weight must be a matrix, or that of a convolution, got shape (3,)"
    ),
    "geometry.alignment(torch.eye(3), torch.ones(0, 3)).max": "ValueError: alignment needs activations, got none",
    "geometry.alignment(torch.ones(2, 4), torch.ones(5, 3))": (
        "ValueError: the weight reads 4 inputs but the activations have 3 features"
    ),
    "geometry.alignment(torch.eye(3), torch.eye(3), top=0)": "ValueError: top is a number of directions, at least 1, got 0",
    "geometry.functional_rank(torch.eye(3), torch.arange(3), keep=99.0)": KEEP + "99.0",
    "geometry.head_subspace(torch.eye(3), torch.arange(3), torch.eye(3), None, keep=0)": KEEP + "0",
    "geometry.circle_scale(10, 0.1)": CHANCE + "0.1",
    "geometry.circle_scale(10, 1.0)": CHANCE + "1.0",
    "geometry.circle_scale(1, 0.5)": "ValueError: a circle code needs two classes or more, got 1",
    "probes.effective_depth([0.2, 0.9], threshold=99.0)": DEPTH + "99.0",
    "probes.effective_depth([0.2, 0.9], threshold=0.0)": DEPTH + "0.0",
    "probes.effective_depth([0.2, 0.9], threshold=nan)": DEPTH + "nan",
    "geometry.orthodev(torch.eye(3), torch.ones(2), centered=False)": (
        "ValueError: the mean of other data is of shape (2,), the class means (3, 3)"
    ),
    "geometry.orthodev(torch.eye(3), torch.ones(3), centered=True, global_mean=torch.ones(1))": (
        "ValueError: global_mean is of shape (1,), the class means (3, 3)"
    ),
    "geometry.nearest_class_mean(torch.ones(5, 1), torch.eye(3))": (
        "ValueError: features are (5, 1) but the class means are (3, 3)"
    ),
    "geometry.head_subspace(torch.eye(3), torch.arange(3), torch.eye(3), None, keep=.9).project(torch.ones(5, 1))": (
        "ValueError: the subspace is of 3 features, and these are (5, 1)"
    ),
    "geometry.softmax_gap_bound(torch.ones(3, 0), sharp=True)": "ValueError: a gap needs classes and columns, got shape (3, 0)",
    "Moments.of(torch.ones(3))": "ValueError: x must be a matrix with samples in rows, got torch.float32 of shape (3,)",
    "Moments(3).update(torch.ones(3))": "ValueError: these are moments of width 3, which cannot take in vectors of shape ()",
    "ClassMoments.of(torch.eye(3), torch.eye(3).long(), classes=3)": INDICES + "torch.int64 of shape (3, 3)",
    "detect.auroc(torch.ones(3, 1), torch.ones(3))": (
        "ValueError: id_scores must be a vector of at least one score, got shape (3, 1)"
    ),
    "detect.auroc([3.0, 2.0], [1, 2])": "0.875",
    "detect.fpr_at_tpr([3.0, 2.0], 'abc', tpr=1.0, positive='id')": f"TypeError: ood_scores {NUMBERS}str of <U3",
    "detect.fpr_at_tpr([3.0, 2.0], [1.0], tpr=.9, positive='in')": "ValueError: positive must be 'id' or 'ood', got 'in'",
    "probes.effective_depth(torch.ones(2, 2))": (
        "ValueError: accuracy must be a vector with one value a layer, got shape (2, 2)"
    ),
    "nets.build('resnet18', classes=2, size=8)": (
        "InputError: the net to build must be thermocline.spec.Net('resnet18'), got a str"
    ),
    "probes.ood_drop(['a', 'b'])": f"TypeError: accuracy {NUMBERS}list of <U1",
    "softmax.fit_temperature(torch.eye(3), torch.eye(3))": (
        "ValueError: labels must be 3 class indices, got torch.float32 of shape (3, 3)"
    ),
    "softmax.fit_temperature(torch.eye(3), torch.arange(2))": (
        "ValueError: labels must be 3 class indices, got torch.int64 of shape (2,)"
    ),
    "softmax.fit_temperature(torch.ones(3), torch.arange(3))": (
        "ValueError: logits must be floats, samples by classes, got torch.float32 of shape (3,)"
    ),
    "softmax.fit_temperature(torch.ones(0, 3), torch.arange(0))": (
        "ValueError: logits must be floats, samples by classes, got torch.float32 of shape (0, 3)"
    ),
    "softmax.brier_score(torch.arange(3), probabilities=torch.eye(3).long())": (
        "ValueError: probabilities must be floats, samples by classes, got torch.int64 of shape (3, 3)"
    ),
    "softmax.expected_calibration_error(torch.arange(3), probabilities=torch.eye(3), scheme='equal')": (
        "ValueError: scheme must be 'equal-width' or 'adaptive', got 'equal'"
    ),
    "softmax.brier_score(torch.arange(3).int(), probabilities=torch.eye(3))": "0",
    "softmax.fit_temperature(torch.eye(3).to_sparse(), torch.arange(3))": (
        "TypeError: rows and labels must be dense, got torch.sparse_coo: call to_dense() first"
    ),
    "softmax.tempered_mse(torch.eye(3), torch.arange(1), temperature=1.0)": (
        "ValueError: there must be a label for each row of logits, got (1,) for (3, 3)"
    ),
    "softmax.tempered_mse(torch.eye(3), torch.arange(3)[:, None], temperature=1.0)": (
        "ValueError: there must be a label for each row of logits, got (3, 1) for (3, 3)"
    ),
    "attention.best_beta(torch.eye(3), torch.arange(1), bounds=(1.0, 2.0))": (
        "ValueError: every row has one true item, got (1,) of them for logits (3, 3)"
    ),
    "detect.aupr([3, 1], [2.0, 0.5], positive='id')": "0.833333",
    "detect.aupr([3, 1], [2.0, 0.5], positive='in')": "ValueError: positive must be 'id' or 'ood', got 'in'",
    "detect.roc([3, 1], [2.0, 0.5], points=9, positive='in')": "ValueError: positive must be 'id' or 'ood', got 'in'",
    "detect.ScoreStream.of([3.0, 1.0]).auroc(detect.ScoreStream.of([2, 0])).value": "0.75",
    "detect.ScoreStream().update(torch.ones(2, 1))": "ValueError: scores must be a vector, got shape (2, 1)",
    "detect.ScoreStream.of([1.0]).aupr(detect.ScoreStream.of([1.0]), positive=1)": (
        "ValueError: positive must be 'id' or 'ood', got 1"
    ),
}

test_a_question_has_a_clear_answer = asking.clear_answers(ASKED)
