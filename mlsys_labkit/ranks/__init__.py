"""Many ranks in one notebook: the same torch.distributed code in one process, in real processes, or on GPUs.

    from mlsys_labkit import ranks

    run = ranks.run(ring_all_reduce, 4, args=(ranks.each(tensors),))    # each rank gets its own tensor
    run.values                                                          # what each rank returned
    print(run.trace)                                                    # every message: who, to whom, how many bytes

Needs torch and cloudpickle (the extra ``torch``); they are imported on first use.
"""

from mlsys_labkit._base.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
