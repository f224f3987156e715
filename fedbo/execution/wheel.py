"""The installed package as a wheel, for the hosts of a cluster."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from functools import cache
from importlib import import_module
from pathlib import Path

from fedbo.settings.version import fedbo_version

_MOMENT = (2020, 1, 1, 0, 0, 0)  # equal packages give equal wheels


@cache
def sources() -> dict[str, bytes]:
    """Return the contents of all files of the package, sorted by their names in a wheel, wherever they are installed.

    They are read once, because they may change while a study starts.
    """
    found: dict[str, bytes] = {}
    top = Path(str(import_module("fedbo").__file__)).parent
    for path in sorted(top.rglob("*")):
        is_example = "examples" in path.relative_to(top).parts  # which hosts do not need
        if path.suffix in (".py", ".typed", ".jinja", ".json") and not is_example:
            found[f"fedbo/{path.relative_to(top).as_posix()}"] = path.read_bytes()
    return dict(sorted(found.items()))


def fingerprint() -> str:
    """Return a short hash of all files of the package. Processes with equal fingerprints run the same code."""
    total = hashlib.sha256()
    for name, content in sources().items():
        total.update(f"{name}\0{len(content)}\0".encode() + content)
    return total.hexdigest()[:16]


def build_wheel(folder: Path) -> Path:
    """Write the wheel into a folder and return its path.

    Its build number holds the package's fingerprint, because Ray caches wheels by name. It declares no dependencies: Ray would
    install them again beside it, and the hosts' own packages are compared with those here.
    """
    release = fedbo_version()
    info = f"fedbo-{release}.dist-info"
    # A build number must start with a digit.
    build = f"0{fingerprint()}"
    files = dict(sources())
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: fedbo\nVersion: {release}\n".encode()
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: fedbo\nRoot-Is-Purelib: true\nBuild: {build}\nTag: py3-none-any\n".encode()
    )
    sums = {
        name: base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        for name, content in files.items()
    }
    record = "".join(f"{name},sha256={sums[name]},{len(content)}\n" for name, content in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    path = folder / f"fedbo-{release}-{build}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in files.items():
            wheel.writestr(zipfile.ZipInfo(name, _MOMENT), content, zipfile.ZIP_DEFLATED)
    return path
