#!/usr/bin/env python3
"""Recomputes with scipy, krippendorff and scikit-learn the figures by which hone tells how good a judge is.

    scripts/check.sh agreement      # checks the recorded figures
    scripts/record.sh agreement     # records them anew

They are recorded in crates/judging/tests/it/data/agreement.json, next to the made-up verdicts that they are about, and
crates/judging/tests/it/agreement.rs compares hone's own figures with them.
"""

import json
import sys
import warnings
from pathlib import Path

import krippendorff
import numpy
import scipy.stats
from sklearn.isotonic import IsotonicRegression

RECORDED = Path(__file__).resolve().parents[3] / "crates/judging/tests/it/data/agreement.json"
SEED = 20240917
RESAMPLES = 5000


def interval(statistic, *columns):
    """The percentile bootstrap; hone's own draws differ, so the ends agree only roughly."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn = scipy.stats.bootstrap(
            columns, statistic, paired=True, vectorized=False, method="percentile",
            n_resamples=RESAMPLES, rng=SEED)
    return [drawn.confidence_interval.low, drawn.confidence_interval.high]


def pearson(a, b):
    return scipy.stats.pearsonr(a, b).statistic


def spearman(a, b):
    return scipy.stats.spearmanr(a, b).statistic


def kendall(a, b):
    return scipy.stats.kendalltau(a, b, variant="b").statistic


def figure(statistic, *columns):
    return [statistic(*columns), *interval(statistic, *columns)]


def graded(random, n, noise, kind):
    references = random.integers(1, 6, n).astype(float)
    if kind == "means":
        references = numpy.clip(references + random.integers(-2, 3, n) / 3, 1, 5).round(3)
    expected = numpy.clip(references + random.normal(0.4, noise, n), 1, 5).round(3)
    scores = expected.round()
    characters = (100 + 80 * scores + random.integers(0, 400, n)).astype(int)
    deviations = scores - references
    absolute = numpy.abs(deviations)
    return {
        "references": references.tolist(),
        "scores": scores.astype(int).tolist(),
        "expected": expected.tolist(),
        "characters": characters.tolist(),
        "figures": {
            "pearson": figure(pearson, scores, references),
            "spearman": figure(spearman, scores, references),
            "kendall": figure(kendall, scores, references),
            "spearman_expected": figure(spearman, expected, references),
            "exact": figure(numpy.mean, (absolute <= 0.5).astype(float)),
            "within_one": figure(numpy.mean, (absolute <= 1).astype(float)),
            "mean_bias": figure(numpy.mean, deviations),
            "length_bias": figure(spearman, deviations, characters),
        },
    }


def rated_units(random, n, n_judges, level):
    """Values of several judges for the same things; None where a judge has none."""
    truth = random.integers(0, 5 if level == "ordinal" else 3, n)
    values = numpy.clip(truth + random.integers(-1, 2, (n_judges, n)), 0, truth.max()).astype(float)
    values[random.random(values.shape) < 0.1] = numpy.nan
    alpha = krippendorff.alpha(reliability_data=values, level_of_measurement=level)
    units = [[int(value) for value in column if not numpy.isnan(value)] for column in values.T]
    return {"level": level, "units": units, "alpha": alpha}


def calibrated(random, n):
    scores = random.uniform(1, 5, n).round(2)
    good = random.random(n) < 1 / (1 + numpy.exp(-2 * (scores - 3.5)))
    points = numpy.concatenate([scores, [1.0, 5.0]])
    said = numpy.concatenate([good.astype(float), [1.0, 0.0]])
    map_ = IsotonicRegression(out_of_bounds="clip").fit(points, said)
    asked = numpy.linspace(1, 5, 33)
    return {
        "scores": scores.tolist(), "good": good.tolist(),
        "asked": asked.tolist(), "probabilities": map_.predict(asked).tolist(),
    }


def computed():
    random = numpy.random.default_rng(SEED)
    return {
        "graded": [
            graded(random, 40, 0.5, "whole"), graded(random, 60, 1.0, "means"), graded(random, 200, 2.0, "whole"),
        ],
        "alpha": [
            rated_units(random, 30, 2, "ordinal"), rated_units(random, 50, 4, "ordinal"),
            rated_units(random, 40, 3, "nominal"),
        ],
        "calibration": [calibrated(random, 40), calibrated(random, 150)],
    }


def differences(a, b, place=""):
    if isinstance(a, dict):
        return [text for key in sorted(a.keys() | b.keys()) for text in differences(a.get(key), b.get(key), f"{place}.{key}")]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [text for index, pair in enumerate(zip(a, b)) for text in differences(*pair, f"{place}[{index}]")]
    is_same = abs(a - b) < 1e-9 if isinstance(a, float) and isinstance(b, float) else a == b
    return [] if is_same else [f"{place}: {a} is recorded, {b} is computed"]


def main():
    figures = json.loads(json.dumps(computed()))
    if "--write" in sys.argv[1:]:
        RECORDED.write_text(json.dumps(figures) + "\n")
        return f"wrote {RECORDED.name}"
    found = differences(json.loads(RECORDED.read_text()), figures)
    if found:
        sys.exit("\n".join(found[:20]))
    return "the recorded figures are those of scipy, krippendorff and scikit-learn"


if __name__ == "__main__":
    print(main())
