"""Tests of the versions and files that binder/hub/values.yaml names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hub.chart_keys import version
from tests.hub.cluster import HUB, VALUES

pytest.importorskip("kubespawner")
pytest.importorskip("jupyterhub")


def test_image_tags_are_this_version():
    text = (HUB / "values.yaml").read_text(encoding="utf-8") + (HUB / "course.yaml").read_text(encoding="utf-8")
    assert VALUES["singleuser"]["image"]["tag"] == version()
    tags = [
        line.split("#")[0].strip().rpartition(":")[2]
        for line in text.splitlines()
        if "image: " in line and "/mlsys-" in line
    ]
    assert tags
    assert set(tags) == {version()}
    assert ":latest" not in text


def test_settings_of_the_servers_are_the_files_of_singleuser():
    sys.path.insert(0, str(HUB))
    try:
        from embed import FILES, embedded
    finally:
        sys.path.remove(str(HUB))
    text = (HUB / "values.yaml").read_text(encoding="utf-8")
    assert embedded(text, HUB / "singleuser") == text, "say: python binder/hub/embed.py"
    files = {f["mountPath"]: f.get("stringData") for f in VALUES["singleuser"]["extraFiles"].values()}
    for name in FILES:
        assert files[f"/etc/jupyter/{name}"] == (HUB / "singleuser" / name).read_text(encoding="utf-8")
    lying = {str(p.relative_to(HUB / "singleuser")) for p in (HUB / "singleuser").rglob("*.*") if p.is_file()}
    assert {name for name in lying if not name.startswith("course/")} == set(FILES)


def test_chart_accepts_the_extra_files():
    # They go into a Secret: its keys are plain, and all of it is below 1 MiB.
    files = VALUES["singleuser"]["extraFiles"]
    assert all(all(ch.isalnum() or ch in "-._" for ch in key) for key in files)
    assert len({f["mountPath"] for f in files.values()}) == len(files)
    assert sum(len(str(f)) for f in files.values()) < 500_000
    assert all(("data" in f) != ("stringData" in f) for f in files.values())


def test_servers_end_only_when_idle_and_save_figures_with_html_without_png(tmp_path):
    # The Hub's culler is off, so the files must do it: idle kernels end, busy ones never, then the server. The kit's
    # installation switches on the extension that drops the PNG beside a figure's HTML. It must stay on here.
    from jupyter_server.serverapp import ServerApp

    plotly = {"application/vnd.plotly.v1+json": {}, "image/png": "iVBORw0KGgo="}
    ours, other = {"data": plotly | {"text/html": "<figure>"}}, {"data": plotly}
    assert VALUES["cull"]["enabled"] is False
    (tmp_path / "jupyter_server_config.d").mkdir()
    for file in VALUES["singleuser"]["extraFiles"].values():
        path = tmp_path / Path(file["mountPath"]).relative_to("/etc/jupyter")
        path.parent.mkdir(exist_ok=True)
        path.write_text(file.get("stringData") or json.dumps(file["data"]), encoding="utf-8")
    script = (
        "import json, sys\n"
        "from jupyter_server.serverapp import ServerApp\n"
        "app = ServerApp(); app.initialize(['--allow-root'], new_httpserver=False)\n"
        "k = app.kernel_manager\n"
        "model = json.loads(sys.argv[1]); app.contents_manager.run_pre_save_hooks(model, 'a.ipynb')\n"
        "timeouts = [k.cull_idle_timeout, k.cull_busy, k.cull_connected, app.shutdown_no_activity_timeout]\n"
        "kept = [sorted(o['data']) for c in model['content']['cells'] for o in c['outputs']]\n"
        "print(json.dumps([timeouts, kept]))\n"
    )
    model = json.dumps({"type": "notebook", "content": {"cells": [{"outputs": [ours, other]}]}})
    assert "shutdown_no_activity_timeout" in ServerApp.class_traits(config=True)
    environment = {**os.environ, "JUPYTER_CONFIG_PATH": str(tmp_path), "HOME": str(tmp_path), "JUPYTER_NO_CONFIG": ""}
    environment |= {"MLSYS_HUB_IDLE_SECONDS": str(VALUES["singleuser"]["extraEnv"]["MLSYS_HUB_IDLE_SECONDS"])}
    command = [sys.executable, "-c", script, model]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    timeouts, kept = json.loads(done.stdout.splitlines()[-1])
    assert timeouts == [3600, False, True, 600]
    assert kept == [["application/vnd.plotly.v1+json", "text/html"], ["application/vnd.plotly.v1+json", "image/png"]]
