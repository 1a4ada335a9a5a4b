"""Tests of OPERATORS.md: its commands are executed unchanged, its figures and links are checked."""

from __future__ import annotations

import re
import subprocess
import tomllib

from tests.hub.guide import GUIDE, ROOT, TESTED, run


def test_guide_sizes_equal_the_measured_ones():
    peaks = tomllib.loads((ROOT / "binder/lab_memory.toml").read_text(encoding="utf-8"))
    said = dict(re.findall(r"(\d+) MiB \((lab\d\d)\)", GUIDE))
    least, most = min(peaks, key=peaks.__getitem__), max(peaks, key=peaks.__getitem__)
    assert said == {str(peaks[least]): least[:5], str(peaks[most]): most[:5]}
    table = {line.split()[0][:5]: int(line.split()[3]) for line in run("size", MEMORY_GIB=64).splitlines()}
    assert table == {lab[:5]: 60 * 1024 // peak for lab, peak in peaks.items()}
    [sentence] = re.findall(r"With 64 GiB that is (\d+) people in (lab\d\d) and (\d+) in (lab\d\d)", GUIDE)
    assert {sentence[1]: int(sentence[0]), sentence[3]: int(sentence[2])}.items() <= table.items()


def test_guide_has_only_known_commands():
    assert set(TESTED) == {"size", "copy-database", "upgrade-db"}
    assert GUIDE.count("```sh") == len(TESTED)
    for block in TESTED.values():
        subprocess.run(["sh", "-n", "-c", block], check=True, timeout=600)


def test_links_and_files_of_the_guide_exist():
    anchors = {
        re.sub(r"[^\w\- ]", "", line.lower()).strip().replace(" ", "-") for line in re.findall(r"(?m)^#+ (.*)", GUIDE)
    }
    assert set(re.findall(r"\]\(#([\w-]+)\)", GUIDE)) <= anchors
    for name in set(re.findall(r"`((?:binder|tests|benchmarks|grading)/[\w./-]+\.\w+)`", GUIDE)):
        assert (ROOT / name).is_file(), name
    for name in set(re.findall(r"`([\w-]+\.(?:yaml|toml))`", GUIDE)):
        assert (ROOT / "binder/hub" / name).is_file(), name


def test_settings_that_the_guide_names_exist():
    from dataclasses import fields

    from mlsys_grading.hub.settings import HubSettings, ServerProfile

    tables = {
        f.name: {key.name for key in fields(f.default)}
        for f in fields(HubSettings)
        if hasattr(f.default, "__dataclass_fields__")
    }
    for table, key in set(
        re.findall(r"`(hub|login|course|exchange|idle|backup)\.([a-z_]+)\b(?<!toml)(?<!yaml)", GUIDE)
    ):
        assert key in tables[table], f"{table}.{key}"
    keys = {field.name for field in fields(ServerProfile)}
    assert {"cpus", "memory_gib", "gpus", "device", "partition", "account", "hours", "options"} <= keys


def test_nginx_and_python_of_the_guide_are_well_formed():
    assert GUIDE.count("{") == GUIDE.count("}")
    for code in re.findall(r"python -c \"([^\"]+)\"", GUIDE):
        compile(code, "OPERATORS.md", "exec")
