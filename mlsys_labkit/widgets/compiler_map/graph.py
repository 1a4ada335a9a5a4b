"""The graph of translators that a model passes through on its way to a machine."""

from __future__ import annotations

COLUMNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("framework", ("PyTorch", "JAX", "ONNX file")),
    ("capture", ("eager", "Dynamo", "jit trace")),
    ("graph compiler", ("Inductor", "XLA", "TensorRT", "TVM", "IREE", "OpenVINO")),
    ("kernels", ("cuBLAS, cuDNN", "CUDA C++", "Triton", "HIP", "rocBLAS, MIOpen", "oneDNN", "C++ loops")),
    ("machine code", ("PTX", "AMD code", "CPU code", "TPU code", "FPGA overlay")),
    ("machine", ("NVIDIA GPU", "AMD GPU", "CPU", "TPU", "FPGA")),
)
"""Columns from left to right, and what stands in each."""

_HANDS_TO: dict[str, tuple[str, ...]] = {
    "PyTorch": ("eager", "Dynamo", "ONNX file"),
    "JAX": ("jit trace",),
    "ONNX file": ("TensorRT", "TVM", "OpenVINO"),
    "eager": ("cuBLAS, cuDNN", "CUDA C++", "HIP", "rocBLAS, MIOpen", "oneDNN"),
    "Dynamo": ("Inductor", "XLA", "TensorRT"),
    "jit trace": ("XLA", "IREE"),
    "Inductor": ("cuBLAS, cuDNN", "Triton", "rocBLAS, MIOpen", "oneDNN", "C++ loops"),
    "XLA": ("cuBLAS, cuDNN", "Triton", "rocBLAS, MIOpen", "CPU code", "TPU code"),
    "TensorRT": ("cuBLAS, cuDNN", "CUDA C++"),
    "TVM": ("CUDA C++", "HIP", "CPU code"),
    "IREE": ("PTX", "AMD code", "CPU code"),
    "OpenVINO": ("oneDNN", "FPGA overlay"),
    "cuBLAS, cuDNN": ("PTX",),
    "CUDA C++": ("PTX",),
    "Triton": ("PTX", "AMD code"),
    "HIP": ("AMD code",),
    "rocBLAS, MIOpen": ("AMD code",),
    "oneDNN": ("CPU code",),
    "C++ loops": ("CPU code",),
    "PTX": ("NVIDIA GPU",),
    "AMD code": ("AMD GPU",),
    "CPU code": ("CPU",),
    "TPU code": ("TPU",),
    "FPGA overlay": ("FPGA",),
}
EDGES: tuple[tuple[str, str], ...] = tuple((source, target) for source, to in _HANDS_TO.items() for target in to)
"""Hand-overs in common use in 2026. Most of the machine code comes from LLVM, whoever asked for it."""
