"""CUDA graphs in whole programs: captured and made by hand, launched again, updated, and what a capture forbids."""

from __future__ import annotations

import pytest

from mlsys_labkit.cuda import CudaCompileError
from tests.cuda.program_helpers import run

PROGRAM = """#include <cstdio>
#include <vector>
#define CHECK(call) do { if (cudaError_t e = (call)) std::printf("%s ", cudaGetErrorName(e)); } while (0)
__global__ void add(int* p, int n, int by) { int i = threadIdx.x; if (i < n) p[i] += by; }
template <class T> __global__ void scale(T* p, int n, T by) { int i = threadIdx.x; if (i < n) p[i] *= by; }
struct Pair { int a, b; Pair(int a, int b) : a(a), b(b) {} Pair(const Pair& o) : a(o.a), b(o.b) {} };
__global__ void store(int* p, Pair pair) { p[0] = pair.a; p[1] = pair.b; }
void CUDART_CB show(void* data) { std::printf("%d ", *static_cast<int*>(data)); }
int main() {
  const int n = 40;
  int *d, *e, h[n] = {};
  cudaMalloc(&d, sizeof h); cudaMalloc(&e, sizeof h);
  cudaMemset(d, 0, sizeof h); cudaMemset(e, 0, sizeof h);
  cudaStream_t s, t;
  cudaStreamCreate(&s); cudaStreamCreate(&t);
  cudaEvent_t event, other;
  cudaEventCreate(&event); cudaEventCreate(&other);
  cudaGraph_t graph; cudaGraphExec_t exec;
  BODY
  cudaFree(d); cudaFree(e);
}
"""
_BEGIN = "CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal)); "
_STOP = "CHECK(cudaStreamEndCapture(s, &graph)); "
_END = f"{_STOP}CHECK(cudaGraphInstantiate(&exec, graph)); "
_AGAIN = "CHECK(cudaGraphLaunch(exec, s)); CHECK(cudaStreamSynchronize(s)); "
_NODE = (
    "std::vector<cudaGraphNode_t> nodes(9); size_t count = 9; CHECK(cudaGraphGetNodes(graph, nodes.data(), &count)); "
)
_ADD = """cudaGraphNode_t node, after; int by = 2; int size = n; void* arguments[] = {&d, &size, &by};
  cudaKernelNodeParams kernel = {(void*)add, dim3(1), dim3(64), 0, arguments, nullptr};
  CHECK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &kernel)); by = 77; """


def _said(body: str) -> str:
    result = run(PROGRAM.replace("BODY", body), check=True)
    assert not result.findings
    return result.stdout.strip()


def test_captured_work_runs_when_the_graph_is_launched_and_keeps_its_arguments() -> None:
    body = "int by = 3; add<<<1, 64, 0, s>>>(d, n, by); by = 1000; scale<<<1, 64, 0, s>>>(d, n, 2); "
    copy = (
        "CHECK(cudaMemcpyAsync(h, d, sizeof h, cudaMemcpyDeviceToHost, s)); CHECK(cudaLaunchHostFunc(s, show, h + 9)); "
    )
    source = f'{_BEGIN}{body}{copy}{_END} std::printf("before %d: ", h[9]); {_AGAIN * 3}'
    assert _said(source) == "before 0: 6 18 42"


def test_an_argument_with_a_constructor_is_kept_as_bytes() -> None:
    body = "{ Pair pair(4, 5); store<<<1, 1, 0, s>>>(d, pair); pair.a = 9; } "
    assert (
        _said(
            _BEGIN + body + _END + _AGAIN + 'cudaMemcpy(h, d, 8, cudaMemcpyDefault); std::printf("%d %d", h[0], h[1]);'
        )
        == "4 5"
    )


def test_a_capture_spans_the_streams_that_events_tie_to_it() -> None:
    body = """add<<<1, 64, 0, s>>>(d, n, 1); cudaEventRecord(event, s); CHECK(cudaStreamWaitEvent(t, event));
      add<<<1, 64, 0, t>>>(d, n, 2); CHECK(cudaEventRecord(other, t)); CHECK(cudaStreamWaitEvent(s, other));
      scale<<<1, 64, 0, s>>>(d, n, 5); """
    shown = """size_t edges = 0; cudaGraphGetEdges(graph, nullptr, nullptr, &edges);
      cudaMemcpy(h, d, 4, cudaMemcpyDefault); std::printf("%zu nodes, %zu edges: %d", count, edges, h[0]);"""
    assert _said(_BEGIN + body + _END + _NODE + _AGAIN + shown) == "3 nodes, 3 edges: 15"


def test_nodes_made_by_hand_run_behind_those_they_depend_on() -> None:
    body = f"""CHECK(cudaGraphCreate(&graph, 0)); {_ADD}
      cudaMemsetParams fill = {{d, 0, 7, sizeof(int), n, 1}}; cudaGraphNode_t first, copy, host, empty;
      CHECK(cudaGraphAddMemsetNode(&first, graph, nullptr, 0, &fill));
      CHECK(cudaGraphAddDependencies(graph, &first, &node, 1));
      cudaMemcpy3DParms back = {{}}; back.srcPtr = make_cudaPitchedPtr(d, 8, 8, 1);
      back.dstPtr = make_cudaPitchedPtr(h, 8, 8, 1);
      back.extent = make_cudaExtent(8, 1, 1); back.kind = cudaMemcpyDeviceToHost;
      CHECK(cudaGraphAddMemcpyNode(&copy, graph, &node, 1, &back));
      CHECK(cudaGraphAddEmptyNode(&empty, graph, &copy, 1));
      cudaHostNodeParams call = {{show, h + 1}}; CHECK(cudaGraphAddHostNode(&host, graph, &empty, 1, &call));
      CHECK(cudaGraphInstantiate(&exec, graph, nullptr, nullptr, 0)); {_AGAIN * 2}"""
    assert _said(body) == "9 9"


def test_a_child_graph_is_a_copy_of_the_graph() -> None:
    body = f"""cudaGraph_t child; CHECK(cudaGraphCreate(&graph, 0)); {_ADD} child = graph;
      CHECK(cudaGraphCreate(&graph, 0)); CHECK(cudaGraphAddChildGraphNode(&node, graph, nullptr, 0, child));
      CHECK(cudaGraphAddChildGraphNode(&after, graph, &node, 1, child)); CHECK(cudaGraphDestroy(child));
      CHECK(cudaGraphInstantiate(&exec, graph)); CHECK(cudaGraphDestroy(graph)); {_AGAIN}
      cudaMemcpy(h, d, 4, cudaMemcpyDefault); std::printf("%d", h[0]);"""
    assert _said(body) == "4"


def test_a_kernel_node_of_an_instantiated_graph_gets_other_arguments() -> None:
    body = f"""CHECK(cudaGraphCreate(&graph, 0)); {_ADD} CHECK(cudaGraphInstantiate(&exec, graph)); {_AGAIN}
      by = 40; CHECK(cudaGraphExecKernelNodeSetParams(exec, node, &kernel)); {_AGAIN}
      cudaKernelNodeParams read; CHECK(cudaGraphKernelNodeGetParams(node, &read));
      cudaMemcpy(h, d, 4, cudaMemcpyDefault);
      std::printf("%d, the graph's own %d", h[0], *(int*)read.kernelParams[2]);"""
    assert _said(body) == "42, the graph's own 2"


def test_an_update_takes_a_graph_of_the_same_shape_alone() -> None:
    first = f"{_BEGIN} add<<<1, 64, 0, s>>>(d, n, 1); {_END} {_AGAIN}"
    second = f"{_BEGIN} add<<<1, 64, 0, s>>>(d, n, 10); {_STOP}"
    update = "cudaGraphExecUpdateResultInfo info; CHECK(cudaGraphExecUpdate(exec, graph, &info)); "
    third = f"{_BEGIN} scale<<<1, 64, 0, s>>>(d, n, 2); add<<<1, 64, 0, s>>>(d, n, 9); {_STOP}"
    shown = f'{_AGAIN} cudaMemcpy(h, d, 4, cudaMemcpyDefault); std::printf("%d %d", h[0], info.result);'
    assert _said(
        first + second + update + third + update.replace("cudaGraphExecUpdateResultInfo info; ", "") + shown
    ) == ("cudaErrorGraphExecUpdateFailure 11 2")


def test_a_graph_is_written_as_a_picture(tmp_path) -> None:
    path = tmp_path / "graph.dot"
    assert (
        _said(f'{_BEGIN} add<<<1, 64, 0, s>>>(d, n, 1); {_END} CHECK(cudaGraphDebugDotPrint(graph, "{path}", 0));')
        == ""
    )
    assert '"0\\nadd"' in path.read_text()


@pytest.mark.parametrize(
    ("during", "said"),
    [
        ("CHECK(cudaDeviceSynchronize());", "Unsupported Invalidated"),
        ("CHECK(cudaStreamSynchronize(s));", "Unsupported Invalidated"),
        ("CHECK(cudaStreamQuery(s));", "Unsupported Invalidated"),
        ("int* f; CHECK(cudaMalloc(&f, 4));", "Unsupported Invalidated"),
        ("CHECK(cudaMemcpy(h, d, 4, cudaMemcpyDefault));", "Implicit Invalidated"),
        ("add<<<1, 64>>>(d, n, 1); CHECK(cudaGetLastError());", "Implicit Invalidated"),
        ("cudaEventRecord(event, s); CHECK(cudaEventSynchronize(event));", "cudaErrorCapturedEvent Invalidated"),
        ("CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));", "cudaErrorIllegalState"),
        ("cudaEventRecord(event, s); cudaStreamWaitEvent(t, event); add<<<1, 64, 0, t>>>(d, n, 1);", "Unjoined"),
        ("cudaEventRecord(event, t); CHECK(cudaStreamWaitEvent(s, event));", "Isolation Invalidated"),
        ("cudaEventRecord(event, s); cudaStreamWaitEvent(t, event); CHECK(cudaStreamEndCapture(t, 0));", "Unmatched"),
        ("CHECK(cudaMemcpyAsync(h, d, 999, cudaMemcpyDefault, s));", "cudaErrorInvalidValue"),
        ("add<<<1, 2048, 0, s>>>(d, n, 1); CHECK(cudaGetLastError());", "cudaErrorInvalidConfiguration"),
        ("add<<<1, 64, 0, t>>>(d, n, 1); CHECK(cudaStreamSynchronize(t));", ""),
    ],
)  # fmt: skip
def test_what_a_capture_forbids_is_cudas_error(during: str, said: str) -> None:
    assert (
        _said(f"{_BEGIN}{during} CHECK(cudaStreamEndCapture(s, &graph));").replace("cudaErrorStreamCapture", "") == said
    )


def test_a_relaxed_capture_lets_memory_be_allocated() -> None:
    begin = _BEGIN.replace("ModeGlobal", "ModeRelaxed")
    assert (
        _said(f"{begin} int* f; CHECK(cudaMalloc(&f, 4)); CHECK(cudaStreamEndCapture(s, &graph)); cudaFree(f);") == ""
    )


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("cudaStreamEndCapture(s, &graph)", "cudaErrorIllegalState"),
        ("cudaStreamBeginCapture(0, cudaStreamCaptureModeGlobal)", "cudaErrorStreamCaptureUnsupported"),
        ("cudaGraphLaunch((cudaGraphExec_t)d, s)", "cudaErrorInvalidValue"),
        ("cudaGraphDestroy((cudaGraph_t)d)", "cudaErrorInvalidValue"),
    ],
)
def test_a_wrong_call_is_refused(call: str, said: str) -> None:
    assert _said(f"CHECK({call});") == said


def test_a_loop_of_nodes_cannot_be_instantiated() -> None:
    body = f"""CHECK(cudaGraphCreate(&graph, 0)); {_ADD}
      CHECK(cudaGraphAddKernelNode(&after, graph, &node, 1, &kernel));
      CHECK(cudaGraphAddDependencies(graph, &after, &node, 1)); CHECK(cudaGraphInstantiate(&exec, graph));"""
    assert _said(body) == "cudaErrorInvalidValue"


def test_a_race_in_a_graph_is_found_at_its_launch() -> None:
    source = "__global__ void race(int* p) {\n  p[0] = threadIdx.x;\n}\n" + PROGRAM.replace(
        "BODY", f"{_BEGIN} race<<<1, 64, 0, s>>>(d); {_END} {_AGAIN * 2}"
    )
    result = run(source, check=True)
    assert [(one.kind, one.line) for one in result.findings] == [("global_race", 2)]
    assert [one.kernel for one in result.launches] == ["race", "race"]


def test_conditional_nodes_are_left_out_by_name() -> None:
    with pytest.raises(CudaCompileError, match="conditional nodes of CUDA graphs: left out"):
        run("int main() { cudaGraphConditionalHandle handle; }")


@pytest.mark.parametrize("mode", ["Global", "Relaxed"])
def test_a_call_of_a_library_is_no_part_of_a_graph_and_says_so(mode: str) -> None:
    result = run(f"""#include <cstdio>
#include <cublas_v2.h>
int main() {{
  float* d; cudaMalloc(&d, 64); cudaMemset(d, 0, 64);
  cudaStream_t s; cudaStreamCreate(&s);
  cublasHandle_t blas; cublasCreate(&blas); cublasSetStream(blas, s);
  cudaGraph_t graph; float two = 2;
  cudaStreamBeginCapture(s, cudaStreamCaptureMode{mode});
  std::printf("%d ", cublasSscal(blas, 16, &two, d, 1) == CUBLAS_STATUS_SUCCESS);
  std::printf("%s", cudaGetErrorName(cudaStreamEndCapture(s, &graph)));
}}""")
    assert result.stdout == "0 cudaErrorStreamCaptureInvalidated"
    assert any("cannot be captured" in note for note in result.notes)
