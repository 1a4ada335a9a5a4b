from mlsys_labkit.cuda.errors import (
    CudaArgumentError as CudaArgumentError,
    CudaCompileError as CudaCompileError,
    CudaError as CudaError,
    CudaKernelError as CudaKernelError,
    CudaLaunchError as CudaLaunchError,
    CudaWorkerError as CudaWorkerError,
    Diagnostic as Diagnostic,
)
from mlsys_labkit.cuda.finding import KernelFinding as KernelFinding
from mlsys_labkit.cuda.kernel.arguments.device_array import (
    DeviceArray as DeviceArray,
    empty as empty,
    to_device as to_device,
    zeros as zeros,
)
from mlsys_labkit.cuda.kernel.compilation import Kernels as Kernels, compile as compile, compile_all as compile_all
from mlsys_labkit.cuda.kernel.kernel import Kernel as Kernel
from mlsys_labkit.cuda.nvidia.occupancy import occupancy as occupancy
from mlsys_labkit.cuda.profile import Profile as Profile
from mlsys_labkit.cuda.program.run import run_program as run_program
from mlsys_labkit.cuda.time_model.time_estimate import TimeEstimate as TimeEstimate

# Earlier names of these classes.
ArgumentError = CudaArgumentError
CompileError = CudaCompileError
Finding = KernelFinding
KernelError = CudaKernelError
LaunchError = CudaLaunchError
WorkerError = CudaWorkerError
