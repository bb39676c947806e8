"""Fits the likelihood judge to features and prints config/likelihood.toml: python fit.py FOLDER MODEL

Answers of others: fitted on the training set, calibrated on the examination's odd questions, measured on its even ones.
Features are chosen by cross-validation on the training set, whose AUC is printed as well. Besides the features, the model's
states enter (the mean of the residual stream over the answer, after two thirds of the layers).
Answers of the model itself: right and wrong ones, labelled by hand; features and states, too; measured by 10-fold cross-validation.
From which probabilities on the judge says that an answer is likely wrong, or likely right, is decided on the same held-out answers.
"""

import json
import math
import pathlib
import sys

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold, StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

FOREIGN = [
    "mean_logprob", "lowest_of_short", "likeliest_share", "information", "hindered_share", "log_length", "repetition",
    "overlap", "absolutes", "breaks_off", "wrong_arithmetic", "ignores_form", "addresses_judge",
]
OWN = ["mean_logprob", "log_length"]
# The regularisation, as scikit-learn's C: small, since there are few answers; smaller for the many numbers of a state.
STRENGTH = 0.05
STRENGTH_OF_STATES = 0.005
# How much less features are held back than the numbers of a state, of which there are many more.
SCALE_OF_FEATURES = 3.0
# At least this share of its marks must be true, and at most this share of the other answers may be marked. It promises 80 and 5 %:
# a threshold that is chosen on some answers does a little worse on others.
LEAST_PRECISION = 0.85
MOST_FALSE = 0.04
# Of fewer answers nothing can be said about a threshold.
LEAST_MARKED = 10
# Divisions into folds whose predictions are averaged.
SHUFFLES = 5
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


def threshold(scores, applies):
    """The lowest score from which on what is said is true, as (score, marked, correct); None if there is none."""
    order = np.argsort(-scores, kind="stable")
    found = None
    for marked in range(LEAST_MARKED, len(order) + 1):
        correct = int(applies[order[:marked]].sum())
        is_precise = correct >= LEAST_PRECISION * marked
        is_rare = marked - correct <= MOST_FALSE * (~applies).sum()
        if is_precise and is_rare and (marked == len(order) or scores[order[marked]] < scores[order[marked - 1]]):
            found = float(scores[order[marked - 1]]), marked, correct
    return found


def thresholds(log_odds, right):
    """The lines that say from which probabilities on an answer is likely wrong, and likely right."""
    lines = []
    for name, sign, applies in [("likely_wrong", -1, ~right), ("likely_right", 1, right)]:
        found = threshold(sign * log_odds, applies)
        if found:
            score, marked, correct = found
            probability = 1 / (1 + math.exp(-sign * score))
            lines.append(f"{name} = {{ probability = {probability:.4f}, marked = {marked}, correct = {correct} }}")
    return lines


def states(rows):
    return np.array([row["state"] for row in rows])


class Scaler(StandardScaler):
    """Standardises, and stretches the first columns, so that regularisation holds them back less."""

    def __init__(self, n_stretched=0):
        super().__init__()
        self.n_stretched = n_stretched

    def transform(self, values, copy=None):
        standard = super().transform(values, copy)
        standard[:, :self.n_stretched] *= SCALE_OF_FEATURES
        return standard

    def fit_transform(self, values, y=None, **parameters):
        return self.fit(values).transform(values)


def standard_model(n_features, n_columns):
    """A logistic model over features and, behind them, the numbers of a state, if there are such."""
    if n_columns == n_features:
        return make_pipeline(Scaler(), LogisticRegression(C=STRENGTH, max_iter=5000))
    return make_pipeline(Scaler(n_features), LogisticRegression(C=STRENGTH_OF_STATES, max_iter=5000))


def section(kind, names, model, auc, limits, comment):
    scaler, regression = model[0], model[1]
    weights = regression.coef_[0].copy()
    weights[:scaler.n_stretched] *= SCALE_OF_FEATURES
    print(f"\n# {comment}\n[model.{kind}]")
    print(f"intercept = {regression.intercept_[0]:.4f}")
    value, low, high = auc
    print(f"auc = {{ value = {value:.3f}, low = {low:.3f}, high = {high:.3f} }}")
    print("\n".join(limits))
    print(f"\n[model.{kind}.features]")
    for name, mean, deviation, weight in zip(names, scaler.mean_, scaler.scale_, weights):
        if deviation > 0 and abs(weight) > 0.005:
            print(f"{name} = {{ mean = {mean:.4f}, deviation = {deviation:.4f}, weight = {weight:.4f} }}")
    of_state = weights[len(names):] / scaler.scale_[len(names):]
    if of_state.size:
        print(f"\n[model.{kind}.reading]")
        print(f"offset = {-of_state @ scaler.mean_[len(names):]:.6f}")
        numbers = [f"{weight:.6f}" for weight in of_state]
        lines = [", ".join(numbers[start:start + 12]) for start in range(0, len(numbers), 12)]
        print("weights = [\n    " + ",\n    ".join(lines) + ",\n]")


def fit_own():
    rows, labels, _ = load("own")
    known = labels != "unclear"
    features, right = np.hstack([matrix(rows, OWN), states(rows)])[known], labels[known] == "right"
    model = standard_model(len(OWN), features.shape[1])
    folds = [StratifiedKFold(10, shuffle=True, random_state=seed) for seed in range(SHUFFLES)]
    scores = np.mean([cross_val_predict(model, features, right, cv=each, method="decision_function") for each in folds], axis=0)
    auc = interval(scores[right], scores[~right], paired=False)
    counts = f"{right.sum()} right and {(~right).sum()} wrong answers of the model itself, 10-fold cross-validation."
    model = model.fit(features, right)
    section("own", OWN, model, auc, thresholds(scores, right), counts)


def fit_graded(features, labels):
    """A mediocre answer counts as half good and half bad, at half of the weight."""
    halves = [("good", 1, 1.0), ("bad", 0, 1.0), ("mediocre", 1, 0.25), ("mediocre", 0, 0.25)]
    masks = [labels == label for label, _, _ in halves]
    y = np.concatenate([np.full(mask.sum(), is_good) for mask, (_, is_good, _) in zip(masks, halves)])
    weights = np.concatenate([np.full(mask.sum(), weight) for mask, (_, _, weight) in zip(masks, halves)])
    x = np.vstack([features[mask] for mask in masks])
    return standard_model(len(FOREIGN), x.shape[1]).fit(x, y, logisticregression__sample_weight=weights)


def good_from_bad(scores, labels, mask):
    of_them = mask & (labels != "mediocre")
    return roc_auc_score(labels[of_them] == "good", scores[of_them])


def cross_validated(rows, features, labels):
    """The AUC of good and bad training answers by 10-fold cross-validation, all answers to a question in one fold."""
    ids = np.array([row["id"] for row in rows])
    scores = np.zeros(len(rows))
    for fitted, held_out in GroupKFold(10, shuffle=True, random_state=0).split(features, groups=ids):
        scores[held_out] = fit_graded(features[fitted], labels[fitted]).decision_function(features[held_out])
    is_plain = np.char.startswith(ids, "train-plain-")
    return good_from_bad(scores, labels, ~is_plain), good_from_bad(scores, labels, is_plain)


def fit_foreign():
    rows, labels, _ = load("training")
    features = np.hstack([matrix(rows, FOREIGN), states(rows)])
    others, plain = cross_validated(rows, features, labels)
    model = fit_graded(features, labels)

    rows, labels, numbers = load("examination")
    scores = model.decision_function(np.hstack([matrix(rows, FOREIGN), states(rows)]))
    odd = (numbers % 2 == 1) & (labels != "mediocre")
    calibration = LogisticRegression(C=1.0).fit(scores[odd, None], labels[odd] == "good")
    slope, offset = calibration.coef_[0, 0], calibration.intercept_[0]
    model[1].coef_ *= slope
    model[1].intercept_ = model[1].intercept_ * slope + offset
    even = numbers % 2 == 0
    auc = interval(scores[even & (labels == "good")], scores[even & (labels == "bad")], paired=True)
    everything = good_from_bad(scores, labels, labels != "mediocre")
    comment = f"The examination's {even.sum() // 3} even questions, none of which it was fitted on; all: {everything:.3f}."
    comment += f"\n# 10-fold cross-validation on the training set: {others:.3f}; on its plain questions: {plain:.3f}."
    held_out = even & (labels != "mediocre")
    calibrated = scores * slope + offset
    limits = thresholds(calibrated[held_out], labels[held_out] == "good")
    section("foreign", FOREIGN, model, auc, limits, comment)


print("# The likelihood judge's coefficients. Written by scripts/record.sh likelihood.")
print(f'\n[[model]]\nname = "{sys.argv[2]}"')
fit_own()
fit_foreign()
