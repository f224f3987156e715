"""Data sets: looked for, fetched, unpacked, and refused when they are not the published ones."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from fedbo.cli import main
from fedbo.objectives.base import LibraryMissingError
from fedbo.objectives.catalog import federations
from fedbo.objectives.datasets import data
from fedbo.objectives.datasets.data import DataDamagedError, DataMissingError, inventory, locate
from fedbo.objectives.datasets.inventory import DataFile, DataSet, MadeFrom

CONTENT = b"two fields, one mine\n" * 50
SHA256 = hashlib.sha256(CONTENT).hexdigest()
CLOSED = "http://127.0.0.1:9/tiny.zip"  # nobody listens there


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def published(tmp_path: Path) -> Iterator[str]:
    """Serve a folder with the file, a zip of it, a zip without it, and another file; give its address."""
    folder = tmp_path / "published"
    folder.mkdir()
    (folder / "tiny.txt").write_bytes(CONTENT)
    (folder / "other.txt").write_bytes(b"something else")
    with zipfile.ZipFile(folder / "tiny.zip", "w") as archive:
        archive.writestr("inner/tiny.txt", CONTENT)
    with zipfile.ZipFile(folder / "empty.zip", "w") as archive:
        archive.writestr("readme.txt", b"moved")
    with tarfile.open(folder / "tiny.tar.gz", "w:gz") as packed:
        packed.add(folder / "tiny.txt", "inner/tiny.txt")
        packed.add(folder, "folder", recursive=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test its own cache and its own FEDBO_DATA."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FEDBO_DATA", str(tmp_path / "own"))


def register(monkeypatch: pytest.MonkeyPatch, address: str, member: str | None = None) -> None:
    tiny = DataFile("tiny.txt", len(CONTENT), SHA256, address, member)
    monkeypatch.setitem(data.DATA_SETS, "tiny", DataSet("tiny", (tiny,), "none", "Nobody 2020"))


def register_gzipped(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = DataFile("tiny.txt", len(CONTENT), SHA256, CLOSED, gzipped=True)
    monkeypatch.setitem(data.DATA_SETS, "tiny", DataSet("tiny", (tiny,), "none", "Nobody 2020"))


def put(folder: Path, content: bytes = CONTENT) -> Path:
    (folder / "tiny").mkdir(parents=True)
    (folder / "tiny" / "tiny.txt").write_bytes(content)
    return folder / "tiny"


def test_the_folder_named_by_the_environment_comes_before_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, CLOSED)
    in_cache = put(tmp_path / "cache" / "fedbo")
    assert locate("tiny") == in_cache
    own = put(tmp_path / "own")
    assert locate("tiny") == own
    monkeypatch.delenv("FEDBO_DATA")
    assert locate("tiny") == in_cache


def test_a_file_is_fetched_into_the_cache_once(published: str, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, f"{published}/tiny.txt")
    folder = locate("tiny")
    assert [path.name for path in folder.iterdir()] == ["tiny.txt"]
    assert (folder / "tiny.txt").read_bytes() == CONTENT
    register(monkeypatch, CLOSED)
    assert locate("tiny") == folder


def test_the_member_of_a_zip_is_unpacked_and_checked(published: str, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, f"{published}/tiny.zip", "inner/tiny.txt")
    folder = locate("tiny")
    assert [path.name for path in folder.iterdir()] == ["tiny.txt"]
    assert (folder / "tiny.txt").read_bytes() == CONTENT


def test_the_member_of_a_tar_is_unpacked_and_checked(published: str, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, f"{published}/tiny.tar.gz", "inner/tiny.txt")
    assert (locate("tiny") / "tiny.txt").read_bytes() == CONTENT
    for absent in ("inner/other.txt", "folder"):
        register(monkeypatch, f"{published}/tiny.tar.gz", absent)
        (data.cache() / "tiny" / "tiny.txt").unlink(missing_ok=True)
        with pytest.raises(DataDamagedError, match=f"contains no {absent}"):
            locate("tiny")


def test_a_file_that_nobody_publishes_is_made_from_what_is_fetched(published: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def shout(archive: Path, target: Path) -> None:
        content = archive.read_bytes()
        if content != CONTENT:
            raise ValueError("it says something else")
        target.write_bytes(content.upper())

    def loud(path: Path) -> str:
        return "loud" if path.read_bytes().isupper() else "quiet"

    def register_made(address: str, digest: str) -> None:
        made = DataFile("tiny.txt", len(CONTENT), digest, address, made_from=MadeFrom("given.txt", shout, loud))
        monkeypatch.setitem(data.DATA_SETS, "tiny", DataSet("tiny", (made,), "none", "Nobody 2020"))

    register_made(f"{published}/other.txt", "loud")
    with pytest.raises(DataDamagedError, match="tiny.txt cannot be built from .*other.txt: it says something else"):
        locate("tiny")
    register_made(f"{published}/tiny.txt", "quiet")
    with pytest.raises(DataDamagedError, match="not the published tiny.txt: expected sha256 quiet, found loud"):
        locate("tiny")
    register_made(f"{published}/tiny.txt", "loud")
    folder = locate("tiny")
    assert [path.name for path in folder.iterdir()] == ["tiny.txt"]
    assert (folder / "tiny.txt").read_bytes() == CONTENT.upper()


@pytest.mark.parametrize(("file", "complaint"), [("empty.zip", "no item named"), ("tiny.txt", "not a zip file")])
def test_an_archive_without_the_file_is_refused(
    published: str, monkeypatch: pytest.MonkeyPatch, file: str, complaint: str
) -> None:
    register(monkeypatch, f"{published}/{file}", "inner/tiny.txt")
    with pytest.raises(DataDamagedError, match=f"(?i)contains no inner/tiny.txt: .*{complaint}"):
        locate("tiny")


def test_a_fetched_file_with_other_bytes_is_refused_and_not_kept(
    published: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, f"{published}/other.txt")
    found = hashlib.sha256(b"something else").hexdigest()
    with pytest.raises(DataDamagedError, match=f"not the published tiny.txt: expected sha256 {SHA256}, found {found}"):
        locate("tiny")
    assert list((tmp_path / "cache" / "fedbo" / "tiny").iterdir()) == []


@pytest.mark.parametrize("place", ["own", "cache/fedbo"])
def test_a_damaged_file_is_refused_wherever_it_lies(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, CLOSED)
    folder = put(tmp_path / place, CONTENT[:-1] + b"?")
    with pytest.raises(DataDamagedError, match=f"{folder / 'tiny.txt'} is not .* expected sha256 {SHA256}, found "):
        locate("tiny")


def test_a_file_damaged_after_its_first_check_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, CLOSED)
    folder = put(tmp_path / "own")
    assert locate("tiny") == folder
    (folder / "tiny.txt").write_bytes(CONTENT + b"more")
    with pytest.raises(DataDamagedError, match="not the published tiny.txt"):
        locate("tiny")


def test_without_a_network_one_error_says_what_to_put_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, CLOSED, "inner/tiny.txt")
    with pytest.raises(DataMissingError, match="could not be fetched") as raised:
        locate("tiny")
    said = str(raised.value)
    for fact in (
        CLOSED,
        "inner/tiny.txt",
        SHA256,
        str(tmp_path / "cache" / "fedbo" / "tiny" / "tiny.txt"),
        "FEDBO_DATA",
    ):
        assert fact in said


@pytest.mark.parametrize("level", [1, 9])
def test_a_gzipped_file_is_known_by_what_it_unpacks_to(level: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register_gzipped(monkeypatch)
    folder = put(tmp_path / "own", gzip.compress(CONTENT, level, mtime=level))
    assert locate("tiny") == folder


@pytest.mark.parametrize(
    "content",
    [gzip.compress(CONTENT, mtime=0)[:-9], gzip.compress(CONTENT[1:], mtime=0), CONTENT, b""],
    ids=["cut short", "something else", "not packed", "empty"],
)
def test_a_gzipped_file_that_is_cut_short_or_unpacks_to_something_else_is_refused(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_gzipped(monkeypatch)
    put(tmp_path / "own", content)
    with pytest.raises(DataDamagedError, match=f"not the published tiny.txt: expected sha256 {SHA256}, found "):
        locate("tiny")


def test_without_a_network_a_gzipped_file_is_asked_for_by_what_it_unpacks_to(monkeypatch: pytest.MonkeyPatch) -> None:
    register_gzipped(monkeypatch)
    with pytest.raises(DataMissingError, match=f"sha256 of its content {SHA256}"):
        locate("tiny")


def test_an_address_that_answers_no_such_page_is_a_missing_data_set(published: str, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, f"{published}/nothing.txt")
    with pytest.raises(DataMissingError, match="could not be fetched"):
        locate("tiny")


def test_an_unknown_name_is_refused_with_a_suggestion() -> None:
    with pytest.raises(KeyError, match="no data set 'landmin'; did you mean 'landmine'"):
        locate("landmin")


def test_the_inventory_says_of_each_set_whether_it_is_found_missing_or_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, CLOSED)

    def state() -> tuple[str, Path | None]:
        (row,) = (row for row in inventory() if row.name == "tiny")
        assert (row.files, row.size, row.licence, row.citation) == (("tiny.txt",), 1050, "none", "Nobody 2020")
        return row.state, row.where

    assert state() == ("missing", None)
    folder = put(tmp_path / "own")
    assert state() == ("found", folder)
    (folder / "tiny.txt").write_bytes(b"")
    assert state() == ("damaged", None)


def test_the_landmine_fields_are_registered_with_their_source() -> None:
    (row,) = (row for row in inventory() if row.name == "landmine")
    assert (row.files, row.size) == (("LandmineData.mat",), 1_085_456)
    assert "JMLR 8, 2007" in row.citation


@pytest.mark.parametrize(
    "what", ["file", "archive", "folder", "folder of an archive", "file address", "address", "address of a folder"]
)
def test_a_set_is_fetched_from_wherever_a_user_has_it(
    what: str, published: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    register(monkeypatch, CLOSED, "inner/tiny.txt")
    folder, alone = tmp_path / "published", tmp_path / "alone"
    alone.mkdir()
    (alone / "tiny.zip").write_bytes((folder / "tiny.zip").read_bytes())
    source = {
        "file": str(folder / "tiny.txt"),
        "archive": str(folder / "tiny.zip"),
        "folder": str(folder),
        "folder of an archive": str(alone),
        "file address": (folder / "tiny.tar.gz").as_uri(),
        "address": f"{published}/tiny.zip",
        "address of a folder": f"{published}/",
    }[what]
    assert main(["data", "fetch", "tiny", "--from", source]) == 0
    (said,) = capsys.readouterr().out.splitlines()
    assert said == f"tiny: {locate('tiny')}" and (locate("tiny") / "tiny.txt").read_bytes() == CONTENT
    assert (folder / "tiny.txt").read_bytes() == CONTENT, "what a user has stays where it is"


@pytest.mark.parametrize(
    ("source", "code", "said"),
    [
        ("other.txt", 1, "contains no inner/tiny.txt"),
        ("", 1, "contains no tiny.txt and no tiny.zip"),
        ("gone.zip", 1, "is not a file; pass a file, a folder, or an address"),
        ("empty.zip", 1, "contains no inner/tiny.txt"),
    ],
)
def test_a_place_that_has_no_such_set_is_one_line(
    source: str, code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    register(monkeypatch, CLOSED, "inner/tiny.txt")
    (folder := tmp_path / "published").mkdir()
    (folder / "other.txt").write_bytes(b"something else")
    with zipfile.ZipFile(folder / "empty.zip", "w") as archive:
        archive.writestr("readme.txt", b"moved")
    place = folder if source else tmp_path / "published" / ".."
    assert main(["data", "fetch", "tiny", "--from", str(place / source)]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert main(["data", "fetch", "tinny"]) == 2
    assert "no data set 'tinny'; did you mean 'tiny'?" in capsys.readouterr().err


def test_a_damaged_copy_in_the_cache_is_replaced_and_says_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, CLOSED)
    whole, held = tmp_path / "tiny.txt", data.cache() / "tiny" / "tiny.txt"
    whole.write_bytes(CONTENT)
    held.parent.mkdir(parents=True)
    held.write_bytes(CONTENT[:-1])
    with pytest.raises(DataDamagedError, match=rf"\({len(CONTENT) - 1:,} bytes instead of {len(CONTENT):,}\)"):
        locate("tiny")
    assert data.fetch("tiny", str(whole)) == held.parent and held.read_bytes() == CONTENT


def test_validate_warns_of_a_missing_set_and_fetches_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    examples = Path(__file__).parents[3] / "examples"
    assert main(["validate", str(examples / "fts_landmine.toml"), "--set", "study.replicates=1"]) == 0
    assert "warning: the data set 'landmine' is not on this machine; fetch it with: fedbo data fetch" in capsys.readouterr().err
    assert not data.cache().exists()


@pytest.mark.parametrize("name", list(federations()))
def test_federations_that_may_lack_something_declare_that_they_read_data(name: str) -> None:
    kind = federations()[name]
    try:
        federation = kind()
        federation.objective(0, np.random.default_rng(0), np.random.default_rng(0))
    except (DataMissingError, LibraryMissingError):
        assert kind.reads_data
    except TypeError:
        pytest.skip("has no defaults")
