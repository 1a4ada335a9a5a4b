from mlsys_labkit.triton_trace.compile.compiled import Compiled as Compiled, compile_for as compile_for
from mlsys_labkit.triton_trace.count.counts import Access as Access, ArrayTraffic as ArrayTraffic
from mlsys_labkit.triton_trace.count.finding import Finding as Finding
from mlsys_labkit.triton_trace.errors import (
    ArgumentError as ArgumentError,
    KernelError as KernelError,
    LaunchError as LaunchError,
    RefusedSourceError as RefusedSourceError,
    TritonTraceError as TritonTraceError,
    WorkerError as WorkerError,
)
from mlsys_labkit.triton_trace.launch.launcher import reachable as reachable
from mlsys_labkit.triton_trace.tracer import Trace as Trace, trace as trace, tracing as tracing
