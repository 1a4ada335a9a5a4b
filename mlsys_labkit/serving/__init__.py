"""A serving engine you can watch: paged KV cache, continuous batching, and a trace of every step.

Needs torch and safetensors (the extra ``torch``); they are imported on first use.
"""

from mlsys_labkit._base.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__, extra="torch")
