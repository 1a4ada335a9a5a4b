"""Images built by buildah from the Dockerfiles, on a folder of Debian instead of the base images that they name."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.hub.cluster import ROOT

IMAGES = ROOT / "binder" / "images"
NEEDED = ("buildah", "debootstrap")
LEAST_GB = 30  # free disk: the GPU image is written three times, as pip's cache, as a container and as a layer
_PIP = ("index-url", "extra-index-url", "find-links", "cert", "trusted-host", "timeout", "default-timeout")


def why_no_engine(folder: Path) -> str:
    """Return the reason why no image can be built in `folder`; "" if one can."""
    missing = [name for name in NEEDED if not shutil.which(name)]
    if missing:
        return f"needs {' and '.join(missing)} (packages of these names)"
    if os.geteuid() != 0:
        return "needs root, to make the base folder and to enter it"
    if shutil.disk_usage(folder).free < LEAST_GB * 10**9:
        return f"needs {LEAST_GB} GB of free disk in {folder}"
    return ""


class Builder:
    """buildah with a storage of its own below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.chmod(0o755)
        (folder / "tmp").mkdir()
        self.environment = {**os.environ, "TMPDIR": str(folder / "tmp"), "BUILDAH_ISOLATION": "chroot"}
        self.base = ["buildah", "--root", str(folder / "storage"), "--runroot", str(folder / "run")]

    def __call__(self, *words: str, seconds: float = 600, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run one command of buildah."""
        done = subprocess.run(
            [*self.base, *words], env=self.environment, cwd=ROOT, capture_output=True, text=True, timeout=seconds
        )
        assert not check or done.returncode == 0, f"buildah {words[0]}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done

    def make_base(self, *names: str) -> str:
        """Make a folder of Debian and import it under these names; return "" or why that failed."""
        base = self.folder / "base"
        command = ["debootstrap", "--variant=minbase", "bookworm", str(base)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=3000)
        if done.returncode != 0:
            return f"debootstrap could not make a base folder: {done.stdout.strip().splitlines()[-1:]}"
        # Certificates that this machine's administrator added: the image's ca-certificates picks them up.
        own = Path("/usr/local/share/ca-certificates")
        if own.is_dir():
            shutil.copytree(own, base / own.relative_to("/"), dirs_exist_ok=True)
        container = self("from", "scratch").stdout.strip()
        self("copy", "-q", container, str(base), "/", seconds=1200)
        for name in names:
            self("commit", "-q", container, name, seconds=1200)
        self("rm", container)
        shutil.rmtree(base)
        return ""

    def build(self, kind: str, version: str, context: Path, *more: str, without: tuple[str, ...] = ()) -> str:
        """Build one Dockerfile as OPERATORS.md says, with this machine's settings of pip; return the image's name."""
        name = f"mlsys-labkit-{kind}:{version}"
        settings, volumes = self._pip(without)
        self(
            "build", "--format", "docker", "-t", name, "-f", str(IMAGES / f"{kind}.Dockerfile"),
            "--build-context", f"images={IMAGES}", "--secret", f"id=pip,src={settings}",
            *(word for volume in volumes for word in ("--volume", f"{volume}:{volume}:ro")), *more, str(context),
            seconds=5400,
        )  # fmt: skip
        return name

    def _pip(self, without: tuple[str, ...]) -> tuple[Path, list[str]]:
        """Write pip's settings into one file; return it and the folders of this machine that they name."""
        command = [sys.executable, "-m", "pip", "config", "list"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found: dict[str, str] = {}
        for line in listed.splitlines():
            key, _, value = line.partition("=")
            name = key.rpartition(".")[2]
            if name in _PIP and name not in without:
                found[name] = str(ast.literal_eval(value))
        path = self.folder / "pip.conf"
        path.write_text("[global]\n" + "".join(f"{k} = {' '.join(v.split())}\n" for k, v in found.items()))
        words = [word for name, value in found.items() if name != "cert" for word in value.split()]
        # The pages of an index name files in a folder beside them.
        folders = [os.path.dirname(w.removeprefix("file://")) if w.startswith("file://") else w for w in words]
        return path, [folder for folder in folders if folder.startswith("/") and Path(folder).exists()]

    def inspect(self, image: str) -> dict[str, Any]:
        """Return the image's settings: Entrypoint, Cmd, User, Healthcheck."""
        return dict(json.loads(self("inspect", "--type", "image", image).stdout)["Docker"]["config"])

    def megabytes(self, image: str) -> float:
        """Return the size of all layers of the image, uncompressed."""
        listed = json.loads(self("images", "--json", image).stdout)
        number, unit = listed[0]["size"].split()
        return float(number) * {"KB": 1e-3, "MB": 1.0, "GB": 1e3}[unit]

    def remove(self) -> None:
        """Delete all containers, images and caches."""
        self("rm", "--all", check=False)
        self("rmi", "--all", "--force", check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
