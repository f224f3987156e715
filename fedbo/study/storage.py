"""Folders on remote storage: S3, Google Cloud Storage, HDFS, and any other storage that pyarrow supports."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

from fedbo.study.paths import address_of

_READ = (".json", ".toml", ".parquet")  # of the files of a run, those that are read


def reached(folder: str | Path, filesystem: FileSystem | None = None) -> tuple[FileSystem, str]:
    """Return the filesystem of a folder and its path there; ValueError for an invalid address, OSError from the storage."""
    if filesystem is not None:
        return filesystem, str(folder)
    address = address_of(folder)
    if address is None:
        return LocalFileSystem(), str(Path(folder).absolute())
    try:
        found, path = FileSystem.from_uri(address)
        why = "" if path else "contains no folder"
    except ValueError as error:
        why = " ".join(str(error).split())[:200]
    if why:
        words = "use an address such as s3://bucket/folder, gs://, abfss:// or hdfs://, or a folder of this machine"
        raise ValueError(f"'{address}': {why}; {words}")
    return found, path


def copy_run(address: str, folder: Path) -> None:
    """Copy the manifest, the study and the tables of a run to a folder; raises the errors of `reached`."""
    files, path = reached(address)
    for each in files.get_file_info(FileSelector(path)):
        if each.type == FileType.Directory and each.base_name == "parts":
            (folder / "parts").mkdir()  # which says that the run has not ended
        elif each.is_file and each.base_name.endswith(_READ):
            with files.open_input_stream(each.path) as source, (folder / each.base_name).open("wb") as copy:
                shutil.copyfileobj(source, copy)
