"""Detectors on features and logits that you already have, from any model: fit, compare, keep the best one.

The features here are pixels of handwritten digits, and the logits a linear classifier's; yours may come from any net or file.

    python examples/features.py
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

import thermocline as tc
from thermocline import detect

features, labels = load_digits(return_X_y=True)
known = labels < 7  # digits 7, 8 and 9 are never seen in training
x, x_test, y, _ = train_test_split(features[known], labels[known], random_state=0)
chosen_on, reported_on = np.array_split(features[~known], 2)  # a detector is not chosen on the data it is reported on
held_out, x_test = np.array_split(x_test, 2)

classifier = LogisticRegression(max_iter=2000).fit(x, y)
logits = classifier.decision_function

detectors = {
    "msp": detect.MSP(),
    "energy": detect.Energy(),
    "neco": detect.NECO(dim=0.9),
    "mahalanobis": detect.Mahalanobis(),
    "knn": detect.KNN(k=10),
}
found = {}
for name, detector in detectors.items():
    detector.fit(x, logits(x), y)
    found[name] = float(detect.auroc(*(detector.score(some, logits(some)) for some in (held_out, chosen_on))))
    print(f"{name:12} AUROC {found[name]:.3f}")

best = max(found, key=found.__getitem__)
tc.save_detector(detectors[best], "detector.safetensors")  # loads without executing code, on any device
detector = tc.load_detector("detector.safetensors")
inside, outside = (detector.score(some, logits(some)) for some in (x_test, reported_on))
area = detect.auroc_interval(inside, outside, level=0.95)
passed = float(detect.fpr_at_tpr(inside, outside, tpr=0.95, positive="id"))
print(f"{best} on data that did not choose it: AUROC {area.value:.3f} [{area.low:.3f} to {area.high:.3f}]")
print(f"where it keeps 95 % of known digits, it lets {100 * passed:.0f} % of new ones by")
