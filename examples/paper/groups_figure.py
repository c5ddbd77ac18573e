"""The figure of the experiment with groups: curves of hits against false alarms."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score, roc_curve


def draw_curves(
    is_patient: NDArray[np.bool_], probabilities: Mapping[str, NDArray[np.float64]]
) -> Figure:
    """Return a figure with a ROC curve for each set of probabilities (N,) that people are patients.

    A red dot shows where the probability is one half.
    """
    figure = Figure((5.2, 5.2), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="tab:grey", linestyle=":", linewidth=1)
    for name, values in probabilities.items():
        false_alarms, hits, _ = roc_curve(is_patient, values)
        area = roc_auc_score(is_patient, values)
        axes.plot(false_alarms, hits, label=f"{name}: area {area:.2f}")
    for values in probabilities.values():
        said = values > 0.5
        axes.plot(np.mean(said[~is_patient]), np.mean(said[is_patient]), "o", color="tab:red")
    axes.set_xlabel("false positive rate")
    axes.set_ylabel("true positive rate")
    axes.set_aspect("equal")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", frameon=False)
    return figure
