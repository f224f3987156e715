"""Checkpoints: what goes in comes out to the type and to the bit, what cannot is refused, and no file runs code."""

from __future__ import annotations

import collections
import dataclasses
import os
import struct
import subprocess
import sys
import tracemalloc
import types
import zlib
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedbo.actors.storage import checkpoint, encoding
from fedbo.actors.storage.checkpoint import CheckpointError, EncodedRecords, pack, read_checkpoint, unpack, write_checkpoint
from fedbo.algorithms.base import Algorithm, Inbound, Private, Problem, Starting
from fedbo.algorithms.catalog import algorithms, entry
from fedbo.algorithms.streams import COORDINATOR, Streams


class Point(NamedTuple):
    x: Any
    y: Any = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    a: Any
    b: Any = None

    def __post_init__(self) -> None:
        if isinstance(self.a, str) and self.a == "checked":
            raise RuntimeError("made by its class")


@dataclasses.dataclass
class Plain:
    a: Any
    b: Any

    @cached_property
    def double(self) -> Any:
        return self.a * 2


@dataclasses.dataclass(eq=False)
class ByIdentity:
    a: Any


@dataclasses.dataclass
class Closing:
    a: Any

    def __del__(self) -> None:
        pass


@dataclasses.dataclass
class Grown(list[int]):
    a: int = 0


class Slotted:
    __slots__ = ("hidden",)


@dataclasses.dataclass(slots=True)
class OnSlots(Slotted):
    a: int = 0


def same(one: Any, other: Any) -> bool:
    """Say whether two values agree in every type and every bit; the order of sets does not count."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        alike = one.dtype.char == other.dtype.char and one.dtype.str == other.dtype.str and one.shape == other.shape
        alike = alike and one.flags.writeable == other.flags.writeable and other.flags.c_contiguous
        return bool(alike and one.tobytes() == other.tobytes())
    if isinstance(one, np.generic):
        return one.tobytes() == other.tobytes()
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", other)
    if dataclasses.is_dataclass(one):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, set | frozenset):
        return same(sorted(one, key=pack), sorted(other, key=pack))
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


NUMBERS = st.one_of(hnp.boolean_dtypes(), hnp.integer_dtypes(endianness="?"), hnp.unsigned_integer_dtypes(endianness="?"))
NUMBERS |= st.one_of(hnp.floating_dtypes(endianness="?"), hnp.complex_number_dtypes(endianness="?"))
NUMBERS |= st.sampled_from("lLqQgG").map(np.dtype)
ARRAYS = hnp.arrays(NUMBERS, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
SCALARS = ARRAYS.filter(lambda array: array.size > 0).map(lambda array: array.reshape(-1)[0])
TEXT = st.text(st.characters(exclude_categories=()))
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXT, st.binary(), SCALARS)
LEAVES |= st.integers(-(2**200), 2**200) | st.builds(range, st.integers(), st.integers(), st.integers(1))
KEYS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3) | st.builds(Frozen, inner, inner),
    max_leaves=5,
)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, max_size=4)
    records = [st.builds(kind, inner, inner) for kind in (Point, Plain)] + [st.builds(Frozen, inner)]
    return st.one_of(several, several.map(tuple), st.dictionaries(KEYS, inner, max_size=3), st.sets(KEYS, max_size=3), *records)


@given(st.recursive(KEYS | ARRAYS, _nested, max_leaves=20))
@settings(max_examples=60)
def test_what_goes_in_comes_out_to_the_type_and_to_the_bit(value: Any) -> None:
    data = pack(value)
    assert same(value, unpack(data))
    assert pack(unpack(data)) == data == pack(value)
    encoded = EncodedRecords(Point)
    assert pack(value, encoded=encoded) == data == pack(value, encoded=encoded)


def test_the_comparison_of_these_tests_sees_what_equality_does_not() -> None:
    assert (
        not same(0.0, -0.0) and not same(1, True) and not same((1,), Point(1)) and not same({"a": 1, "b": 2}, {"b": 2, "a": 1})
    )
    assert same(float("nan"), float("nan")) and not same(np.zeros(1, "<i4"), np.zeros(1, ">i4"))


def test_a_class_is_made_again_without_a_call() -> None:
    value = object.__new__(Frozen)
    object.__setattr__(value, "a", "checked")
    object.__setattr__(value, "b", [1])
    assert unpack(pack(value)).b == [1]
    with pytest.raises(RuntimeError, match="made by its class"):
        Frozen("checked")


def test_one_array_in_many_places_is_one_again_and_equal_ones_stay_two() -> None:
    shared = np.arange(50_000.0).reshape(250, 200)
    shared.flags.writeable = False
    data = pack([Point(shared, {"omega": shared}), Plain(shared, shared.copy())])
    first, second = unpack(data)
    assert first.x is first.y["omega"] is second.a and second.b is not first.x
    assert not first.x.flags.writeable and second.b.flags.writeable
    assert first.x.tobytes() == second.b.tobytes() == shared.tobytes()
    assert not np.shares_memory(first.x, second.b) and first.x.flags.owndata
    assert len(data) < 1.1 * shared.nbytes
    empty = np.empty((0, 3))
    one, other, third = unpack(pack((empty, empty, empty.copy())))
    assert one is other and one is not third


@pytest.mark.parametrize(
    "dtype", ["<f8", *(pytest.param(one, marks=pytest.mark.long) for one in (">f8", "<i8", "<c16", "<f4"))]
)
def test_arrays_that_differ_in_a_few_rows_share_the_others(dtype: str) -> None:
    rng = np.random.default_rng(1)
    base = (rng.random((1000, 100)) * 1000).astype(dtype)
    base[7], base[8] = 0, -base[7]
    arrays = [base.copy() for _ in range(30)]
    for array in arrays:
        array[rng.choice(1000, 5, replace=False)] = rng.random((5, 100)) * 1000
    arrays[3].flags.writeable = False
    data = pack(arrays)
    assert len(data) < base.nbytes * (1 + 30 * 5 / 1000) + 30 * 1000 * 4 + 5000
    read = unpack(data)
    assert same(arrays, read) and len({id(array) for array in read}) == 30
    assert all(array.flags.aligned for array in read)
    read[0][:] = 0
    assert same(arrays[1:], read[1:])


@pytest.mark.parametrize("piece", [1, 2**20])
def test_what_is_compressed_in_pieces_is_the_same(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what stands apart until it is whole: members of sets, with dictionaries in them, and records written before."""
    monkeypatch.setattr(encoding, "PIECE", piece)
    value = {n: Point(n, {"a": {ByIdentity({1: {2: 3.0}}), "b"}, "c": np.arange(n)}) for n in range(40)}
    value |= {n: Point(n, {"d": {"e": n}}) for n in range(40, 80)}
    encoded = EncodedRecords(Point)
    pack(value, encoded=encoded)
    again = unpack(pack(value, encoded=encoded))
    assert list(again) == list(value) and same(again[79], value[79])
    for n in range(40):
        (inside,) = [member for member in again[n].y["a"] if member != "b"]
        assert inside.a == {1: {2: 3.0}} and same(again[n].y["c"], np.arange(n))


@pytest.mark.long
def test_a_checkpoint_of_many_agents_is_written_without_a_copy_of_what_they_hold(tmp_path: Path) -> None:
    pooled = np.arange(800_000.0).reshape(1000, 800)
    agents = {number: Point(np.full(1000, number), [number] * 20) for number in range(2000)}
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    write_checkpoint((agents, pooled), tmp_path / "agents")
    most = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert (tmp_path / "agents").stat().st_size > 22e6 and most < 4e6
    assert same(read_checkpoint(tmp_path / "agents"), (agents, pooled))


def test_arrays_of_other_strides_come_back_in_rows() -> None:
    square = np.arange(90_000.0).reshape(300, 300)
    views = [square.T, square[::2, ::-1], square[:, 5], np.broadcast_to(square[0], (200, 300)), np.asfortranarray(square)]
    for view, read in zip(views, unpack(pack(views)), strict=True):
        assert read.flags.c_contiguous and read.tobytes() == view.tobytes() and read.flags.writeable == view.flags.writeable


def test_equal_sets_give_equal_bytes_in_whatever_order_they_were_filled() -> None:
    assert list({0, 8}) != list({8, 0})
    assert pack({0, 8}) == pack({8, 0}) and pack(frozenset({0, 8})) == pack(frozenset({8, 0})) != pack({0, 8})
    pairs = [(agent, step) for agent in range(40) for step in range(20)]
    assert pack(set(pairs)) == pack(set(reversed(pairs)))
    code = "import hashlib; from fedbo.actors.storage.checkpoint import pack; "
    code += "print(hashlib.sha256(pack({'delta', 'ab', b'cd', (1, 'x'), frozenset('hash')})).hexdigest())"
    told = {_python(code, {"PYTHONHASHSEED": seed}) for seed in ("1", "2", "3")}
    assert len(told) == 1


def test_a_dictionary_keeps_its_order() -> None:
    assert list(unpack(pack({(2, 1): "b", (1, 2): "a"}))) == [(2, 1), (1, 2)]


CYCLE: list[Any] = []
CYCLE.append([CYCLE])
LOCAL = dataclasses.make_dataclass("Local", ["a"])
LOCAL.__module__ = __name__
CACHED = Plain(1, 2)
assert CACHED.double == 2


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            Point({"gp": [1, Slotted()]}),
            r"^study\.x\['gp'\]\[1\] is a test_checkpoint.Slotted, which a checkpoint cannot store",
        ),
        ([np.random.default_rng(1)], r"^study\[0\] is a numpy.random.*Generator, which a checkpoint cannot store; use"),
        (Frozen(1, object()), r"^study\.b is a object, which"),
        ({"a": {test: 1 for test in (len,)}}, r"^study\['a'\]\.keys\(\) is a builtin_function_or_method"),
        ({frozenset([1j])}, r"^study\{…\}\{…\} is a complex"),
        (Path("/tmp"), r"^study is a pathlib"),
        (collections.OrderedDict(a=1), r"^study is a collections.OrderedDict"),
        ([np.array(["a"])], r"^study\[0\] has dtype <U1"),
        ((np.datetime64("2024-01-01"),), r"^study\[0\] has dtype datetime64"),
        (np.zeros(3, "i4,f4"), r"^study has dtype"),
        (np.array([None]), r"^study has dtype object"),
        (np.ma.masked_array([1.0]), r"^study is a numpy.ma.*MaskedArray"),
        (CYCLE, r"^study\[0\]\[0\].*… is nested more than 64 deep, or contains itself"),
        ({ByIdentity(np.zeros(2))}, r"^study is a set of values with arrays"),
        ([CACHED], r"^study\[0\] is a test_checkpoint.Plain, .*: it has 'double' besides its fields"),
        (object.__new__(Frozen), r"^study is a .*Frozen, .*: it has no value in its field 'a'"),
        (LOCAL(1), r"^study is a test_checkpoint.Local, .* cannot be imported by its name"),
        (Closing(1), r"^study is a .*Closing, .* __del__"),
        (Grown(1), r"^study is a .*Grown, .* from its fields alone"),
        (OnSlots(1), r"^study is a .*OnSlots, .* slots beside"),
    ],
    ids=lambda word: "" if isinstance(word, str) else type(word).__name__,
)
def test_what_a_checkpoint_cannot_hold_is_named_with_the_path_to_it(value: Any, said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        pack(value, "study")


SMALL = [Point(1, {"a": 2.5, (1, 2): {3, 4}}), np.arange(4.0), None, "word", b"bytes", np.float32(1), range(3)]


def test_a_checkpoint_cut_off_anywhere_is_refused() -> None:
    data = pack(SMALL)
    for length in range(len(data)):
        with pytest.raises(CheckpointError, match="incomplete|does not begin"):
            unpack(data[:length])
    with pytest.raises(CheckpointError, match="incomplete"):
        unpack(data + b"\0")


def test_a_checkpoint_with_any_byte_changed_is_refused() -> None:
    data = pack(SMALL)
    for place in range(len(data)):
        for change in (1, 2, 4, 8, 16, 32, 64, 128, 255):
            damaged = bytearray(data)
            damaged[place] ^= change
            with pytest.raises(CheckpointError, match="damaged|does not begin|is of format"):
                unpack(bytes(damaged))


def forged(nodes: bytes, rest: bytes = b"") -> bytes:
    """Make a file of given nodes whose lengths and sum are right."""
    packed = zlib.compress(nodes)
    body = checkpoint.LENGTHS.pack(len(nodes), len(packed), 0) + packed + rest
    return checkpoint.MAGIC + checkpoint.FRAME.pack(len(body), zlib.crc32(body)) + body


def naming(*words: str) -> bytes:
    """Make a file that holds an instance of a class with empty fields."""
    head = "\0".join(words).encode()
    return forged(b"c" + struct.pack("<Q", len(head)) + head + b"N" * (len(words) - 2))


@given(
    st.one_of(st.binary(), st.lists(st.sampled_from(sorted(checkpoint.READERS)) | st.sampled_from([0, 1, 60, 100])).map(bytes))
)
@settings(max_examples=100)
def test_nodes_of_any_bytes_are_a_value_or_refused(nodes: bytes) -> None:
    try:
        unpack(forged(nodes))
    except CheckpointError:
        pass


@given(st.data())
@settings(max_examples=100)
def test_nodes_with_some_bytes_changed_are_a_value_or_refused(data: st.DataObject) -> None:
    original = pack([*SMALL, np.ones((64, 512))])
    length, packed, _ = checkpoint.LENGTHS.unpack_from(original, start := len(checkpoint.MAGIC) + checkpoint.FRAME.size)
    start += checkpoint.LENGTHS.size
    nodes = bytearray(zlib.decompress(original[start : start + packed]))
    for _ in range(data.draw(st.integers(1, 3))):
        nodes[data.draw(st.integers(0, length - 1))] = data.draw(st.integers(0, 255))
    again = zlib.compress(nodes)
    body = checkpoint.LENGTHS.pack(length, len(again), 1) + again + original[start + packed :]
    try:
        unpack(checkpoint.MAGIC + checkpoint.FRAME.pack(len(body), zlib.crc32(body)) + body)
    except CheckpointError:
        pass


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("os", "system"), "a os.system, which does not exist here"),
        (("subprocess", "Popen", "args"), "subprocess.Popen, which is neither a named tuple nor a dataclass"),
        (("builtins", "eval"), "which does not exist here"),
        (("builtins", "list"), "neither"),
        (("fedbo.algorithms.ts", "TS.__init__"), "which does not exist here"),
        (("fedbo.algorithms.ts", "np.dtype"), "neither"),
        (("fedbo.algorithms.ts", "math.inf"), "which does not exist here"),
        (("fedbo.algorithms.components.surrogate", "LocalState", "u"), "with the fields u, but here it has u, y, hyper"),
        (("fedbo.__main__", "X"), "which does not exist here"),
        (("fedbo..x", "X"), "which does not exist here"),
        (("fedbo.nowhere.at_all", "X"), "another version, so run the study again"),
        (("test_checkpoint", "Closing", "a"), "Closing, which defines __del__"),
        (("test_checkpoint",), "the checkpoint is not valid"),
    ],
)
def test_a_class_that_is_no_record_of_ours_is_refused(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        unpack(naming(*words))


def test_a_module_that_is_not_ours_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trap_module.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(CheckpointError, match="a trap_module.Bait, which does not exist here; .* run the study again"):
        unpack(naming("trap_module", "Bait"))
    assert not (tmp_path / "sprung").exists() and "trap_module" not in sys.modules


def test_a_class_whose_fields_have_changed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pack([Point(1, 2)])
    assert unpack(data) == [Point(1, 2)]
    changed = collections.namedtuple("Point", ["x", "z"], module=__name__)  # noqa: PYI024
    monkeypatch.setattr(sys.modules[__name__], "Point", changed)
    with pytest.raises(
        CheckpointError, match="a test_checkpoint.Point, with the fields x, y, but here it has x, z; .*run the st"
    ):
        unpack(data)


@pytest.mark.parametrize("later", ["a b c", "a", "b a", "a c"])
def test_a_class_of_fedbo_with_other_fields_is_refused(monkeypatch: pytest.MonkeyPatch, later: str) -> None:
    module = types.ModuleType("fedbo.passing")
    monkeypatch.setitem(sys.modules, "fedbo.passing", module)

    def of(fields: str) -> Any:
        kind: Any = collections.namedtuple("Kind", fields, defaults=[7])  # noqa: PYI024
        kind.__module__ = "fedbo.passing"
        monkeypatch.setattr(module, "Kind", kind, raising=False)
        return kind

    data = pack([of("a b")(3, 4)])
    of(later)
    with pytest.raises(CheckpointError, match="fedbo.passing.Kind, with the fields a, b, but here it has"):
        unpack(data)


def test_a_class_that_is_gone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("passing_module")
    monkeypatch.setitem(sys.modules, "passing_module", module)
    kind = dataclasses.make_dataclass("Kind", ["a"])
    kind.__module__ = "passing_module"
    monkeypatch.setattr(module, "Kind", kind, raising=False)
    data = pack(kind(3))
    assert unpack(data).a == 3
    monkeypatch.delitem(sys.modules, "passing_module")
    with pytest.raises(CheckpointError, match="a passing_module.Kind, which does not exist here"):
        unpack(data)


def test_a_fresh_process_finds_the_classes_of_this_package_by_itself(tmp_path: Path) -> None:
    state = entry("ts").make().agent_init(Problem(2, 1, (0,), 3, 4), Streams(1).of(0))
    write_checkpoint(state, tmp_path / "state")
    code = "import sys; from pathlib import Path; from fedbo.actors.storage.checkpoint import read_checkpoint; "
    code += "assert 'fedbo.algorithms.ts' not in sys.modules; "
    code += f"print(type(read_checkpoint(Path({str(tmp_path / 'state')!r}))).__name__)"
    assert _python(code) == "LocalState"


def _python(code: str, environment: dict[str, str] | None = None) -> str:
    surroundings = {**os.environ, **(environment or {})}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=surroundings)
    return done.stdout.strip()


def test_a_file_is_written_whole_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "checkpoint"
    for value in (SMALL, [*SMALL, 1]):
        write_checkpoint(value, path)
        assert same(value, read_checkpoint(path))
    assert [found.name for found in path.parent.iterdir()] == ["checkpoint"]


def test_a_file_that_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        read_checkpoint(tmp_path / "absent")
    (tmp_path / "torn").write_bytes(pack(SMALL)[:-1])
    with pytest.raises(CheckpointError, match=r"torn: the checkpoint is damaged or incomplete"):
        read_checkpoint(tmp_path / "torn")
    (tmp_path / "older").write_bytes(b"fedbo checkpoint 0\n")
    with pytest.raises(CheckpointError, match=r"older: it is of format 0, but this fedbo reads format 1; use the version"):
        read_checkpoint(tmp_path / "older")


def test_a_value_that_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    write_checkpoint([1], tmp_path / "checkpoint")
    with pytest.raises(CheckpointError, match=r"state\[1\] is a object"):
        write_checkpoint([np.ones(1000), object()], tmp_path / "checkpoint")
    assert read_checkpoint(tmp_path / "checkpoint") == [1]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_disk_that_is_full_leaves_the_old_file_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    write_checkpoint([1], path)
    code = (
        "import resource, numpy as np; from pathlib import Path; from fedbo.actors.storage.checkpoint import write_checkpoint\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        f"try: write_checkpoint(np.random.default_rng(1).random(100_000), Path({str(path)!r}))\n"
        "except OSError as error: print(type(error).__name__, error.errno)\n"
    )
    assert _python(code, {"PYTHONDONTWRITEBYTECODE": "1"}) == "OSError 27"
    assert read_checkpoint(path) == [1]
    assert len(list(tmp_path.iterdir())) == 1


N, DIM, INITIAL, STEPS, PULLS = 3, 2, 3, 4, 300
SETTINGS = [(name, preset) for name, found in algorithms().items() for preset in (None, *found.presets)]


class Run(NamedTuple):
    """Three agents in lock-step between two steps."""

    algorithm: Algorithm
    states: list[Any]
    server: Any
    inbox: list[list[Inbound]]


def _begin(algorithm: Algorithm, history: bool) -> Run:
    problem = Problem(DIM, N, tuple(range(N)), INITIAL, STEPS, history=6 if history else 0, pulls=PULLS)
    states = []
    for agent in range(N):
        x = np.random.default_rng(agent).random((6, DIM)) if history else None
        y = None if x is None else _value(x, agent)
        own = dataclasses.replace(problem, agent=agent, history_x=x, history_y=y)
        states.append(algorithm.agent_init(own, Streams(5).of(agent)))
    return Run(algorithm, states, algorithm.server_init(problem), [[] for _ in range(N)])


def _value(x: np.ndarray, agent: int) -> np.ndarray:
    return np.asarray(1.0 - ((x - 0.2 - 0.2 * agent) ** 2).sum(axis=1))


def _advance(run: Run, step: int) -> tuple[Run, bytes]:
    algorithm, states, server, inbox = run
    asked, sent = [], []
    for agent in range(N):
        streams = Streams(5).of(agent).at(step)
        x = streams.rng("initial points").random((INITIAL, DIM))
        if step:
            decision, states[agent] = algorithm.ask(states[agent], tuple(inbox[agent]), streams)
            x = decision.x
        elif isinstance(algorithm, Starting):
            x = algorithm.initial_points(Problem(DIM, N, tuple(range(N)), INITIAL, STEPS, agent=agent, pulls=PULLS), x)
        asked.append(x.tobytes())
        states[agent] = algorithm.tell(states[agent], x, _value(x, agent))
        payload, states[agent] = algorithm.outbox(states[agent], streams) if algorithm.sends(step) else (None, states[agent])
        sent += [Inbound(agent, step, 0.0, payload)] if payload is not None else []
    if isinstance(algorithm, Private):
        weights = algorithm.weights(Problem(DIM, N, tuple(range(N)), INITIAL, STEPS), step)
        total = sum(np.outer(weights[:, message.sender], *message.payload.values()) for message in sent)
        server = algorithm.released(server, total, step) if sent else server
    else:
        for message in sent:
            server = algorithm.receive(server, message, 1.0)
    answers: dict[int, Any] = {}
    if algorithm.sends(step):
        answers, server = algorithm.broadcast(server, range(N), np.ones(N), Streams(5).of(COORDINATOR).at(step))
    inbox = [[Inbound(COORDINATOR, step, 1.0, answers[agent])] if agent in answers else [] for agent in range(N)]
    return Run(algorithm, states, server, inbox), b"".join(asked)


@pytest.mark.long  # the contract of algorithms stores and loads every state too
@pytest.mark.parametrize("history", [True, False], ids=["history", "no history"])
@pytest.mark.parametrize(("name", "preset"), SETTINGS, ids=str)
def test_every_algorithm_goes_on_from_a_checkpoint_as_if_never_stopped(name: str, preset: str | None, history: bool) -> None:
    undisturbed = stopped = _begin(entry(name).make(preset), history)
    stopped = unpack(pack(stopped))
    for step in range(STEPS + 1):
        data = pack(stopped)
        again = unpack(data)
        assert same(stopped, again) and pack(again) == data
        undisturbed, asked = _advance(undisturbed, step)
        stopped, asked_again = _advance(again, step)
        assert asked == asked_again
    assert same(undisturbed.states, stopped.states) and same(undisturbed.server, stopped.server)
