"""Ten random trials and ten by the model, of an objective with branches."""

from __future__ import annotations

from typing import Any

import optuna
import optunahub


def objective(trial: Any) -> float:
    """Suggest a tree or a net, each with parameters of its own."""
    if trial.suggest_categorical("model", ["tree", "net"]) == "tree":
        return abs(float(trial.suggest_int("depth", 1, 9)) - 4.0)
    rate: float = trial.suggest_float("rate", 1e-5, 1e-1, log=True)
    layers = trial.suggest_int("layers", 1, 3)
    return rate + sum(trial.suggest_float(f"width {place}", 0.0, 1.0) for place in range(layers))


study = optuna.create_study(sampler=optunahub.load_module("samplers/fedbo").Sampler(seed=1))
study.optimize(objective, n_trials=20)
print(study.best_params)
