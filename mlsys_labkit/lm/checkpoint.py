"""Checkpoints: config.json, model.safetensors and tokenizer.json in a folder, in Hugging Face's layout for Llama."""

from __future__ import annotations

import json
import re
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.overrides import TorchFunctionMode

from mlsys_labkit.errors import require
from mlsys_labkit.lm.config import Config
from mlsys_labkit.lm.errors import CheckpointError
from mlsys_labkit.lm.model import LanguageModel
from mlsys_labkit.lm.tokenizer import END_OF_TEXT, Tokenizer, printed_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

WEIGHTS = files("mlsys_labkit.lm") / "weights"


class TextCodec(Protocol):
    """The methods of every tokenizer. ``end`` is the token that closes a text, or None.

    ``encode`` takes names of special tokens for text where the kit's own tokenizer wrote the file, ``encode_special``
    never does. ``token_bytes`` are those of one token in the middle of a text.
    """

    @property
    def end(self) -> int | None: ...
    def encode(self, text: str) -> list[int]: ...
    def encode_special(self, text: str) -> list[int]: ...
    def decode(self, tokens: Iterable[int]) -> str: ...
    def token_bytes(self, token: int) -> bytes: ...


def load(
    path: str | Path | None = None, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> tuple[LanguageModel, TextCodec]:
    """Return the kit's own tiny model, or a Llama checkpoint from a local folder, ready to run, with its tokenizer.

    Nothing is downloaded. Raises CheckpointError when a file is missing or damaged, or describes a model that this
    kit does not compute.

    Example:
        >>> model, tokenizer = load()
        >>> tokenizer.decode(tokenizer.encode("import this"))
        'import this'
    """
    if path is None:
        with as_file(WEIGHTS) as folder:
            return _load(folder, dtype, device)
    return _load(Path(path).expanduser(), dtype, device)


def held_out() -> str:
    """Return about 100 KB of text like the tiny model's training data that was not trained on.

    Example:
        >>> len(held_out()) > 50_000
        True
    """
    return (WEIGHTS / "held_out.txt").read_text(encoding="utf-8")


def save(model: LanguageModel, tokenizer: Tokenizer, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write the three files, so that ``load(folder)`` and transformers can read them.

    Example:
        >>> import tempfile
        >>> model, tokenizer = load()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(model, tokenizer, Path(folder))
        ...     load(folder)[0].config == model.config
        True

    Reference: the safetensors format, https://huggingface.co/docs/safetensors.
    """
    safetensors = require("safetensors.torch", "torch")
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.to(dtype).contiguous() for name, value in model.state_dict().items()}
    if model.config.tied:
        del tensors["lm_head.weight"]
    settings = {**model.config.to_llama(), "dtype": str(dtype).removeprefix("torch."), "eos_token_id": tokenizer.end}
    (folder / "config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    tokenizer.save(folder / "tokenizer.json")
    safetensors.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # safetensors makes it readable by its owner only


class _NoRandomNumbers(TorchFunctionMode):
    """A mode that leaves weights as they are: on the meta device torch would import its compiler to "draw" them."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if getattr(func, "__module__", "") == "torch.nn.init":
            return given["tensor"] if "tensor" in given else args[0]
        return func(*args, **given)


def _load(folder: Path, dtype: torch.dtype, device: torch.device | str) -> tuple[LanguageModel, TextCodec]:
    config = Config.from_llama(_settings(folder))
    with torch.device("meta"), _NoRandomNumbers():  # no memory either for weights that are read in a moment
        model = LanguageModel(config)
    tensors = {name: value.to(device, dtype) for name, value in _tensors(folder).items()}
    if config.tied:
        tensors["lm_head.weight"] = tensors.get("model.embed_tokens.weight", torch.empty(0))
    _check(model, tensors, folder)
    model.load_state_dict(tensors, assign=True)
    if config.tied:
        model.lm_head.weight = model.model.embed_tokens.weight
    return model.eval().requires_grad_(False), _tokenizer(folder)


def _settings(folder: Path, name: str = "config.json") -> dict[str, Any]:
    try:
        settings = json.loads((folder / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"there is no {name} in {folder}; name a folder that holds config.json, *.safetensors, tokenizer.json"
        ) from None
    except ValueError as error:
        raise CheckpointError(f"{folder / name} is not JSON ({error}); fetch it again") from None
    if not isinstance(settings, dict):
        raise CheckpointError(f"{folder / name} holds no settings; fetch it again")
    return settings


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Read the weights of one file, or of the files that model.safetensors.index.json lists."""
    safetensors = require("safetensors.torch", "torch")
    index = folder / "model.safetensors.index.json"
    names = {"model.safetensors"}
    if index.is_file():
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    tensors: dict[str, torch.Tensor] = {}
    for name in sorted(names):
        try:
            tensors |= safetensors.load_file(folder / name)
        except FileNotFoundError:
            raise CheckpointError(
                f"there is no {name} in {folder}; only safetensors are read, pickled weights are not"
            ) from None
        except Exception as error:  # safetensors raises a type of its own for each damage
            raise CheckpointError(f"{folder / name} cannot be read ({error}); fetch it again") from None
    return {name: value for name, value in tensors.items() if not name.endswith("rotary_emb.inv_freq")}


def _check(model: LanguageModel, tensors: dict[str, torch.Tensor], folder: Path) -> None:
    wanted = {name: list(value.shape) for name, value in model.state_dict().items()}
    if missing := sorted(wanted.keys() - tensors.keys()):
        raise CheckpointError(f"{folder} lacks {missing[0]} and {len(missing) - 1} more tensors of its config.json")
    if extra := sorted(tensors.keys() - wanted.keys()):
        raise CheckpointError(f"{folder} holds {extra[0]}, which the model of its config.json does not have")
    for name, shape in wanted.items():
        if list(tensors[name].shape) != shape:
            raise CheckpointError(f"{name} should be {shape} by config.json and is {list(tensors[name].shape)}")


class _ForeignTokenizer:
    """A tokenizer.json that this kit did not write, read by the library that defines the format."""

    def __init__(self, path: Path, end: int | None) -> None:
        self._tokenizer = require("tokenizers", "torch").Tokenizer.from_file(str(path))
        self.end = end
        data = json.loads(path.read_text(encoding="utf-8"))
        self._added = {each["id"]: str(each["content"]) for each in data.get("added_tokens") or ()}
        self._byte_level = '"ByteLevel"' in json.dumps(data.get("decoder"))

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def encode_special(self, text: str) -> list[int]:
        return self.encode(text)

    def decode(self, tokens: Iterable[int]) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=False))

    def token_bytes(self, token: int) -> bytes:
        name = self._added.get(token)
        if name is not None:
            return name.encode()
        name = str(self._tokenizer.id_to_token(token) or "")
        if self._byte_level:
            found = printed_bytes(name)
            if found is not None:
                return found
        if re.fullmatch("<0x[0-9A-F]{2}>", name):  # the fall-back of tokenizers from SentencePiece
            return bytes([int(name[3:5], 16)])
        return name.replace("\u2581", " ").encode()


def end_tokens(folder: Path, codec: TextCodec) -> tuple[int, ...]:
    """Return the tokens that end a text by config.json, generation_config.json and the tokenizer.

    A model that was trained on chats ends a turn by another token than a document, and its folder names both.
    """
    found = [] if codec.end is None else [codec.end]
    for name in ("config.json", "generation_config.json"):
        if (folder / name).is_file():
            told = _settings(folder, name).get("eos_token_id")
            found += told if isinstance(told, list) else [] if told is None else [told]
    if strangers := [token for token in found if not isinstance(token, int)]:
        raise CheckpointError(f"eos_token_id in {folder} is {strangers[0]!r}, expected token numbers; fetch it again")
    return tuple(dict.fromkeys(found))


def _tokenizer(folder: Path) -> TextCodec:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise CheckpointError(f"there is no tokenizer.json in {folder}; save the tokenizer beside the weights")
    if f'"{END_OF_TEXT}"' in path.read_text(encoding="utf-8"):
        try:
            return Tokenizer.load(path)
        except CheckpointError:
            pass  # another tokenizer that happens to use the same name for its end token
    end = _settings(folder).get("eos_token_id")
    return _ForeignTokenizer(path, end[0] if isinstance(end, list) else end)
