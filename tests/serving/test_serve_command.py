"""Tests of ``labkit serve`` as a user starts it: its output, its answers, its end, and the options it refuses."""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mlsys_labkit import lm, serving, widgets
from mlsys_labkit._frontends import cli
from mlsys_labkit.serving import Recording
from mlsys_labkit.serving.server.command import _size
from mlsys_labkit.serving.server.run import is_loopback

if TYPE_CHECKING:
    import openai

pytestmark = pytest.mark.xdist_group("endpoint")


@contextmanager
def started(*options: str) -> Iterator[tuple[subprocess.Popen[str], list[str], openai.OpenAI]]:
    """Start the command in its own process; return it, the lines it printed until it was ready, and a client."""
    import openai

    command = [str(Path(sys.executable).parent / "labkit"), "serve", "--port", "0", *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    assert process.stdout
    try:
        lines = []
        while not lines or "ready at" not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], f"it ended before it was ready: {lines}"
        url = re.search(r"http://\S+/v1", lines[-1])
        assert url
        with openai.OpenAI(base_url=url[0], api_key="none", max_retries=0, timeout=600) as client:
            yield process, lines, client
    finally:
        process.kill()
        process.communicate()


def alone(prompt: str, count: int) -> str:
    model, codec = lm.load()
    return codec.decode(lm.generate(model, codec.encode(prompt), count))


def test_serve_runs_until_interrupt_and_saves_its_recording(tmp_path: Path) -> None:
    record = tmp_path / "run.jsonl"
    with started("--blocks", "100", "--threads", "2", "--record", str(record)) as (process, lines, client):
        assert "mlsys-tiny, 3.48 Mparameters, float32 on cpu; cache of 1,600 tokens (100 blocks of 16" in lines[0]
        assert lines[0].endswith("batches of up to 16, CPU threads: 2\n")
        for _ in range(2):
            answer = client.completions.create(model="mlsys-tiny", prompt="def read", max_tokens=20, temperature=0)
            assert answer.choices[0].text == alone("def read", 20)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert said.splitlines()[-1] == "labkit: ended; no blocks are left in use"
    assert [path.name for path in tmp_path.iterdir()] == ["run.jsonl"]
    run = serving.measure(Recording.load(record))
    assert [row.output_tokens for row in run.latencies] == [20, 20]
    assert run.clock == "real"
    assert all(0 < row.ttft_seconds < row.e2e_seconds for row in run.latencies)
    assert widgets.block_table(Recording.load(record)).total == 100


def test_sigterm_lets_an_open_stream_end(tmp_path: Path) -> None:
    model, codec = lm.load()
    lm.save(model, codec, tmp_path / "my-model")
    options = ("--max-batch", "2", "--memory", "8MiB", "--block-size", "8", "--speculate", "ngram")
    with started(str(tmp_path / "my-model"), *options) as (process, lines, client):
        assert "cache of 2,048 tokens (256 blocks of 8" in lines[0]  # 4096 bytes a token in float32
        stream = client.completions.create(
            model="my-model",
            prompt="import os\n",
            max_tokens=200,
            temperature=0,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        text = next(stream).choices[0].text
        process.send_signal(signal.SIGTERM)
        text += "".join(chunk.choices[0].text for chunk in stream)
        said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert text == alone("import os\n", 200)


def test_serve_chats_by_the_folders_template_for_clients_with_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import openai

    model, codec = lm.load()
    lm.save(model, codec, tmp_path / "chatty")
    (tmp_path / "chatty" / "chat_template.jinja").write_text("{{ messages[0].content }}:")
    (tmp_path / "json.py").write_text("raise SystemExit('a module of the folder where the server was started')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LABKIT_API_KEY", "sesame")
    with started(str(tmp_path / "chatty"), "--blocks", "100") as (process, lines, client):
        assert lines[0].endswith("; with the folder's chat template\n")
        with pytest.raises(openai.AuthenticationError):
            client.models.list()
        answer = client.with_options(api_key="sesame").chat.completions.create(
            model="chatty", messages=[{"role": "user", "content": "def read(path)"}], max_tokens=9, temperature=0
        )
        assert answer.choices[0].message.content == alone("def read(path):", 9)
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does
        said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert [line for line in said.splitlines() if not line.startswith("labkit: ")] == []


@pytest.fixture
def half(tmp_path: Path) -> Path:
    model, codec = lm.load()
    lm.save(model, codec, tmp_path / "half")
    (tmp_path / "half" / "model.safetensors").unlink()
    return tmp_path / "half"


def refused(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert cli.main(["serve", "--port", "0", *options]) == 2
    line = capsys.readouterr().err
    assert line.startswith("labkit: ")
    assert line.count("\n") == 1
    return line


def test_serve_reports_missing_model_in_one_line(half: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no model.safetensors in" in refused(capsys, str(half))
    (half / "config.json").unlink()
    assert "there is no config.json in" in refused(capsys, str(half))
    assert "there is no folder /nowhere/at/all" in refused(capsys, "/nowhere/at/all")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--port", "70000"], "--port takes 0 to 65535, got 70000"),
        (["--host", "203.0.113.7"], "--host 203.0.113.7 is no address of this machine"),
        (["--device", "toaster"], "--device toaster cannot be used here"),
        (["--memory", "100B"], "hold no block of 65536 bytes"),
        (["--blocks", "99999999"], "are free; give fewer --blocks"),
        (["--api-key", ""], "an API key is one line of ASCII letters"),
        (["--api-key", "clé"], "an API key is one line of ASCII letters"),
        (["--record", "/nowhere/at/all/run.jsonl"], "there is no folder /nowhere/at/all"),
    ],
)
def test_serve_refuses_wrong_options_in_one_line(
    options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in refused(capsys, *options)


def test_serve_reports_taken_port_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        line = refused(capsys, "--port", str(port))
    assert f"port {port} is taken; name another by --port, or --port 0" in line


@pytest.mark.parametrize("options", [["--memory", "lots"], ["--threads", "0"], ["--blocks", "4", "--memory", "1GiB"]])
def test_serve_exits_with_2_for_invalid_options(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["serve", *options])
    assert caught.value.code == 2
    assert "labkit serve: error: argument" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "size"),
    [("1GiB", 2**30), ("500MB", 500_000_000), ("1.5 kB", 1500), ("2TiB", 2**41), ("77", 77), ("8MiB", 8 << 20)],
)
def test_memory_option_reads_sizes(text: str, size: int) -> None:
    assert _size(text) == size
    for wrong in ("", "GiB", "1GB/s", "-1GiB", "1 parsec", "1i"):
        with pytest.raises(argparse.ArgumentTypeError):
            _size(wrong)


def test_is_loopback() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.1.5", "example.org", "")))
