"""Fits the likelihood judge to features and prints config/likelihood.toml: python fit.py FOLDER MODEL

Answers of others: fitted on the training set, calibrated on the examination's odd questions, measured on its even ones.
Answers of the model itself: right and wrong ones, labelled by hand; measured by 10-fold cross-validation.
"""

import json
import math
import pathlib
import sys

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

FOREIGN = [
    "mean_logprob", "likeliest_share", "information", "log_length", "repetition", "overlap", "breaks_off",
    "wrong_arithmetic", "ignores_form", "addresses_judge",
]
OWN = ["mean_logprob", "log_length"]
# The regularisation, as scikit-learn's C: small, since there are few answers.
STRENGTH = 0.05
# Standard errors on either side of an estimate: 95 %.
STANDARD_ERRORS = 1.96


def load(name):
    rows = [json.loads(line) for line in open(pathlib.Path(sys.argv[1]) / f"{name}.features.jsonl")]
    labels = np.array([row["label"] for row in rows])
    numbers = np.array([int(row["id"].rsplit("-", 1)[1]) for row in rows])
    return rows, labels, numbers


def matrix(rows, names):
    return np.array([[row["features"][name] for name in names] for row in rows])


def interval(goods, bads, paired):
    """DeLong's standard error, or Obuchowski's (1997) where answers at the same index belong together; logit scale."""
    wins = (goods[:, None] > bads[None, :]) + 0.5 * (goods[:, None] == bads[None, :])
    value, above, below = wins.mean(), wins.mean(axis=1), wins.mean(axis=0)
    if paired:
        variance = np.sum((above + below - 2 * value) ** 2) / (len(goods) * (len(goods) - 1))
    else:
        variance = above.var(ddof=1) / len(goods) + below.var(ddof=1) / len(bads)
    half = STANDARD_ERRORS * math.sqrt(variance) / (value * (1 - value))
    logit = math.log(value / (1 - value))
    low, high = (1 / (1 + math.exp(-bound)) for bound in (logit - half, logit + half))
    return value, low, high


def standard_model():
    return make_pipeline(StandardScaler(), LogisticRegression(C=STRENGTH, max_iter=5000))


def section(kind, names, model, auc, comment):
    scaler, regression = model[0], model[1]
    print(f"\n# {comment}\n[model.{kind}]")
    print(f"intercept = {regression.intercept_[0]:.4f}")
    value, low, high = auc
    print(f"auc = {{ value = {value:.3f}, low = {low:.3f}, high = {high:.3f} }}")
    print(f"\n[model.{kind}.features]")
    for name, mean, deviation, weight in zip(names, scaler.mean_, scaler.scale_, regression.coef_[0]):
        if deviation > 0 and abs(weight) > 0.005:
            print(f"{name} = {{ mean = {mean:.4f}, deviation = {deviation:.4f}, weight = {weight:.4f} }}")


def fit_own():
    rows, labels, _ = load("own")
    known = labels != "unclear"
    features, right = matrix(rows, OWN)[known], labels[known] == "right"
    folds = StratifiedKFold(10, shuffle=True, random_state=0)
    scores = cross_val_predict(standard_model(), features, right, cv=folds, method="decision_function")
    auc = interval(scores[right], scores[~right], paired=False)
    counts = f"{right.sum()} right and {(~right).sum()} wrong answers of the model itself, 10-fold cross-validation."
    section("own", OWN, standard_model().fit(features, right), auc, counts)


def fit_foreign():
    rows, labels, _ = load("training")
    features = matrix(rows, FOREIGN)
    # A mediocre answer counts as half good and half bad, at half of the weight.
    halves = [(labels == "good", 1, 1.0), (labels == "bad", 0, 1.0), (labels == "mediocre", 1, 0.25), (labels == "mediocre", 0, 0.25)]
    x = np.vstack([features[mask] for mask, _, _ in halves])
    y = np.concatenate([np.full(mask.sum(), label) for mask, label, _ in halves])
    weights = np.concatenate([np.full(mask.sum(), weight) for mask, _, weight in halves])
    model = standard_model().fit(x, y, logisticregression__sample_weight=weights)

    rows, labels, numbers = load("examination")
    scores = model.decision_function(matrix(rows, FOREIGN))
    odd = (numbers % 2 == 1) & (labels != "mediocre")
    calibration = LogisticRegression(C=1.0).fit(scores[odd, None], labels[odd] == "good")
    slope, offset = calibration.coef_[0, 0], calibration.intercept_[0]
    model[1].coef_ *= slope
    model[1].intercept_ = model[1].intercept_ * slope + offset
    even = numbers % 2 == 0
    auc = interval(scores[even & (labels == "good")], scores[even & (labels == "bad")], paired=True)
    everything = roc_auc_score(labels[labels != "mediocre"] == "good", scores[labels != "mediocre"])
    comment = f"The examination's {even.sum() // 3} even questions, none of which it was fitted on; all 60: {everything:.3f}."
    section("foreign", FOREIGN, model, auc, comment)


print("# The likelihood judge's coefficients. Written by scripts/fit-likelihood.sh.")
print(f'\n[[model]]\nname = "{sys.argv[2]}"')
fit_own()
fit_foreign()
