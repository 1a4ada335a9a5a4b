"""A tiny, real language model that needs no network, and the loader for larger ones.

    from mlsys_labkit import lm

    model, tokenizer = lm.load()                        # 3.5 million parameters, trained by this repository
    for token in lm.generate(model, tokenizer.encode("def read"), 50):
        print(tokenizer.decode([token]), end="")
    lm.perplexity(model, tokens)                        # quality of the predictions on a text
    lm.load("path/to/a/llama/folder")                   # any Llama checkpoint in Hugging Face's format

Needs torch and safetensors (the extra ``torch``); they are imported on first use.
"""

from mlsys_labkit._base.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__, extra="torch")
