"""Settings as text, for the extension module, and refused settings."""

from __future__ import annotations

import difflib
import json
import numbers
import os
from typing import Any, Dict, Iterable, Mapping, Optional

import numpy as np

from ._sordino import setting_headings

# What other libraries call a setting.
_OTHER_NAMES = {
    "clip_norm": "max_grad_norm",
    "lr": "learning_rate",
    "l2_norm_clip": "max_grad_norm",
    "max_epochs": "epochs",
    "max_iter": "epochs",
    "n_epochs": "epochs",
    "num_epochs": "epochs",
    "random_state": "seed",
    "sigma": "noise_multiplier",
    "target_delta": "delta",
    "target_epsilon": "epsilon",
}


def check(names: Iterable[str], arguments: Mapping[str, str]) -> None:
    """Refuses settings that do not exist, and those that describe files. ``arguments`` has what replaces them for arrays."""
    headings = setting_headings()
    for name in names:
        known = name.replace("-", "_")
        if known == "clip":
            continue
        if known not in headings:
            other = [_OTHER_NAMES[known]] if known in _OTHER_NAMES else difflib.get_close_matches(known, headings, 1)
            permitted = [key for key in headings if headings[key] != "Data" or key == "records_per_unit"]
            other = [found for found in other if found in permitted]
            hint = f"did you mean {other[0]}?" if other else f"the settings are {', '.join(permitted)}"
            raise ValueError(f"there is no setting {name}\nhint: {hint}")
        if headings[known] == "Data":
            instead = arguments.get(known, "arrays that are prepared in this way")
            raise ValueError(f"{name} cannot be given as a setting: it describes data in files\nhint: use {instead}")


def check_resumed(folder: Optional[str], settings: Mapping[str, str]) -> None:
    """Refuses settings, given as texts, that differ from those of the run in this folder. Options of names and paths are not compared."""
    own = {} if folder is None else _stored(os.path.join(folder, "config.toml"))
    for name, given in settings.items():
        name = {"clip": "max_grad_norm"}.get(name.replace("-", "_"), name.replace("-", "_"))
        if os.sep in given or given.endswith(".toml") or name in ("encoder", "initial_weights"):
            continue  # The run may store another path of the same file.
        if name in own and _value(given) != _value(text(own[name])):
            raise ValueError(
                f"{name} is {given}, but the run in run_folder has {name} {text(own[name])}\n"
                f"hint: a resumed run keeps its own settings: leave out {name}, or start a new run in another run_folder"
            )


def _stored(path: str) -> Dict[str, Any]:
    """The settings of a run. Each is one line, and its value is also JSON."""
    stored: Dict[str, Any] = {}
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:  # The extension module names the problem.
        return stored
    for line in lines:
        name, _, value = line.partition(" = ")
        try:
            stored[name] = json.loads(value)
        except ValueError:
            continue
    return stored


def _value(setting: str) -> Any:
    try:
        return [float(part) for part in setting.split(",")]
    except ValueError:
        return setting.partition(",")[0]


def text(value: Any) -> str:
    """A setting as text."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return ",".join(text(part) for part in value)
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        return repr(float(value))
    return str(value)
