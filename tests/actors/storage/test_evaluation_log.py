"""The evaluation log: it is read on from where it was left, whole lines only."""

from __future__ import annotations

from pathlib import Path

from fedbo.actors.storage.evaluation_log import _line, read_log
from fedbo.actors.storage.evaluations import EvaluationRecord
from fedbo.objectives.outcome import Outcome


def line(number: int) -> bytes:
    return _line(EvaluationRecord(0, number, [0.5], Outcome(1.0), finished=float(number)))


def test_a_log_is_read_on_from_the_end_of_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    first, second, third = map(line, range(3))
    path.write_bytes(first + second + third[:7])
    found, place = read_log(path, 0)
    assert [record.number for record in found] == [0, 1] and place == len(first + second)
    assert read_log(path, place) == ([], place)  # the third is not whole yet
    path.write_bytes(first + second + third)
    found, end = read_log(path, place)
    assert [record.number for record in found] == [2] and end == len(first + second + third)
    assert read_log(path, end) == ([], end)
