"""The catalogues find methods and problems in any folder, and need none."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import fedbo


def test_the_catalogues_work_without_a_folder_and_find_a_new_one(tmp_path: Path) -> None:
    here = tmp_path / "fedbo"
    shutil.copytree(Path(fedbo.__file__).parent, here, ignore=shutil.ignore_patterns("__pycache__", "data"))
    shutil.rmtree(here / "algorithms" / "bandits")
    shutil.rmtree(here / "algorithms" / "learned_prior")  # without which `algorithms/private` counts as deleted too
    shutil.rmtree(here / "objectives" / "classifiers")
    (here / "algorithms" / "anew").mkdir()
    (here / "algorithms" / "anew" / "__init__.py").write_text("")
    text = (here / "algorithms" / "random.py").read_text()
    (here / "algorithms" / "anew" / "chance.py").write_text(text.replace('"random"', '"chance"'))
    code = "from fedbo.algorithms.catalog import algorithms as a; print('fts' in a(), 'chance' in a(), 'fed_pne' in a())\n"
    code += "print(any(name in ('dp_fed_prior', 'dp_share_best') for name in a()), a().broken())\n"
    code += "from fedbo.objectives.catalog import federations as f; print('quadratic' in f(), 'digits' in f())"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert ran.stdout == "True True False\nFalse []\nTrue False\n"
