from mlsys_labkit.lm.cache import KVCache as KVCache
from mlsys_labkit.lm.checkpoint import held_out as held_out, load as load, save as save
from mlsys_labkit.lm.config import Config as Config, RopeScaling as RopeScaling
from mlsys_labkit.lm.errors import (
    CheckpointError as CheckpointError,
    ContextError as ContextError,
    TokenError as TokenError,
)
from mlsys_labkit.lm.model import LanguageModel as LanguageModel
from mlsys_labkit.lm.text import generate as generate, nats_per_token as nats_per_token, perplexity as perplexity
from mlsys_labkit.lm.tokenizer import Tokenizer as Tokenizer
