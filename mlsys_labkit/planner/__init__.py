"""Plans of training runs: parameters, FLOPs, memory per rank, bytes sent and step time, for up to 100,000 GPUs.

    model, cluster = Transformer.named("llama-3-70b"), Cluster.named("dgx-h100", gpus=1024)
    print(plan(model, cluster, Layout(data=64, tensor=8, pipeline=2, zero=1, global_batch=1024, sequence=8192)))
    print(search(model, cluster, global_batch=1024)[0])

Everything here is arithmetic on published formulas and datasheets: nothing is measured, nothing needs torch.
"""

from mlsys_labkit._base.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
