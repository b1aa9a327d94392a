"""Types and shapes are checked at run time in tests only: what calibration and streams say to a user without such checks."""

import asking

ASKED = {
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
