from mlsys_labkit.triton_trace.compile.compiled import Compiled as Compiled, compile_for as compile_for
from mlsys_labkit.triton_trace.count.counts import Access as Access, ArrayTraffic as ArrayTraffic
from mlsys_labkit.triton_trace.count.finding import AccessFinding as AccessFinding
from mlsys_labkit.triton_trace.errors import (
    RefusedSourceError as RefusedSourceError,
    TritonArgumentError as TritonArgumentError,
    TritonKernelError as TritonKernelError,
    TritonLaunchError as TritonLaunchError,
    TritonTraceError as TritonTraceError,
    TritonWorkerError as TritonWorkerError,
)
from mlsys_labkit.triton_trace.launch.launcher import reachable as reachable
from mlsys_labkit.triton_trace.report import LaunchTrace as LaunchTrace
from mlsys_labkit.triton_trace.tracer import trace as trace, tracing as tracing

# Earlier names of these classes.
ArgumentError = TritonArgumentError
Finding = AccessFinding
KernelError = TritonKernelError
LaunchError = TritonLaunchError
Trace = LaunchTrace
WorkerError = TritonWorkerError
