// graph_exec_api.cpp: graphs made ready to run: launches, and the changes that they take.
#include <set>

#include "capture.h"
#include "context.h"
#include "graph.h"

using namespace lk::host;

namespace {

std::set<cudaGraphExec_t>& execs() {
    static std::set<cudaGraphExec_t> live;
    return live;
}

// The node of the exec that was made from a graph's node; nullptr where there is none of this type.
CUgraphNode_st* node_of(cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraphNodeType type) {
    if (!execs().count(exec)) return nullptr;
    const auto found = exec->graph->copies.find(node);
    return found != exec->graph->copies.end() && found->second->work.type == type ? found->second : nullptr;
}

template <class Made>
cudaError_t change(cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraphNodeType type, Made made) {
    return api([=]() -> cudaError_t {
        CUgraphNode_st* own = node_of(exec, node, type);
        return own ? made(own->work) : cudaErrorInvalidValue;
    });
}

// Where the graphs have the same nodes in the same order, with the same edges between them.
cudaGraphExecUpdateResult compare(const CUgraph_st& old, const CUgraph_st& fresh, cudaGraphExecUpdateResultInfo& info) {
    if (old.nodes.size() != fresh.nodes.size()) return cudaGraphExecUpdateErrorTopologyChanged;
    std::map<const CUgraphNode_st*, const CUgraphNode_st*> match;
    for (size_t i = 0; i < old.nodes.size(); ++i) match[fresh.nodes[i].get()] = old.nodes[i].get();
    for (size_t i = 0; i < old.nodes.size(); ++i) {
        const CUgraphNode_st& was = *old.nodes[i];
        const CUgraphNode_st& is = *fresh.nodes[i];
        info.errorNode = fresh.nodes[i].get();
        if (was.work.type != is.work.type) return cudaGraphExecUpdateErrorNodeTypeChanged;
        std::set<const CUgraphNode_st*> before;
        for (const cudaGraphNode_t one : is.before) before.insert(match[one]);
        if (before != std::set<const CUgraphNode_st*>(was.before.begin(), was.before.end())) {
            return cudaGraphExecUpdateErrorTopologyChanged;
        }
        if (!is.work.child) continue;
        const cudaGraphExecUpdateResult inside = compare(*was.work.child, *is.work.child, info);
        if (inside != cudaGraphExecUpdateSuccess) return inside;
    }
    info.errorNode = nullptr;
    return cudaGraphExecUpdateSuccess;
}

}  // namespace

extern "C" cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
    return api([=] {
        if (!exec || !is_graph(graph) || in_order(*graph).size() != graph->nodes.size()) return cudaErrorInvalidValue;
        *exec = new CUgraphExec_st{clone(*graph)};
        execs().insert(*exec);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    return api([=] {
        if (execs().erase(exec) == 0) return cudaErrorInvalidValue;
        delete exec;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
    return api([=] { return execs().count(exec) && state_of(stream) ? cudaSuccess : cudaErrorInvalidValue; });
}

extern "C" cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
    return api([=] {
        const CUstream_st* stream = state_of(handle);
        if (!execs().count(exec) || !stream) return cudaErrorInvalidValue;
        return issue(handle, running(stream->capture ? clone(*exec->graph) : exec->graph));
    });
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* info) {
    return api([=] {
        cudaGraphExecUpdateResultInfo local{};
        cudaGraphExecUpdateResultInfo& told = info ? *info : local;
        told = {};
        if (!execs().count(exec) || !is_graph(graph)) return cudaErrorInvalidValue;
        told.result = compare(*exec->graph, *graph, told);
        if (told.result != cudaGraphExecUpdateSuccess) return cudaErrorGraphExecUpdateFailure;
        // Nodes that the exec was made from still name its own.
        const auto names = exec->graph->copies;
        std::map<const CUgraphNode_st*, size_t> places;
        for (size_t i = 0; i < exec->graph->nodes.size(); ++i) places[exec->graph->nodes[i].get()] = i;
        const std::shared_ptr<CUgraph_st> fresh = clone(*graph);
        for (const auto& [original, own] : names) fresh->copies.emplace(original, fresh->nodes[places[own]].get());
        exec->graph = fresh;
        return cudaSuccess;
    });
}

extern "C" cudaError_t lk_graph_set_kernel(cudaGraphExec_t exec, cudaGraphNode_t node, const cudaKernelNodeParams* parameters,
                                           lk::GraphKernel how) {
    const auto made = [=](Work& work) { return parameters ? launching(*parameters, how, work) : cudaErrorInvalidValue; };
    if (exec) return change(exec, node, cudaGraphNodeTypeKernel, made);
    return api([=] { return is_node(node) && node->work.kernel ? made(node->work) : cudaErrorInvalidValue; });
}

extern "C" cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                        const cudaMemcpy3DParms* parameters) {
    return change(exec, node, cudaGraphNodeTypeMemcpy, [=](Work& work) { return copying(*parameters, work); });
}

extern "C" cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, cudaGraphNode_t node, void* to,
                                                          const void* from, size_t bytes, cudaMemcpyKind kind) {
    return change(exec, node, cudaGraphNodeTypeMemcpy, [=](Work& work) {
        const Transfer transfer = plain_transfer(to, from, bytes, kind);
        const cudaError_t error = check(transfer);
        if (error == cudaSuccess) work = copying(transfer);
        return error;
    });
}

extern "C" cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                        const cudaMemsetParams* parameters) {
    return change(exec, node, cudaGraphNodeTypeMemset, [=](Work& work) { return filling(*parameters, work); });
}

extern "C" cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                      const cudaHostNodeParams* parameters) {
    return change(exec, node, cudaGraphNodeTypeHost, [=](Work& work) {
        work = calling(parameters->fn, parameters->userData);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraph_t child) {
    return change(exec, node, cudaGraphNodeTypeGraph, [=](Work& work) {
        cudaGraphExecUpdateResultInfo info{};
        if (!is_graph(child) || compare(*work.child, *child, info) != cudaGraphExecUpdateSuccess) return cudaErrorInvalidValue;
        work = running(clone(*child));
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node, unsigned int enabled) {
    return api([=] {
        if (!execs().count(exec) || !exec->graph->copies.count(node)) return cudaErrorInvalidValue;
        exec->graph->copies[node]->enabled = enabled != 0;
        return cudaSuccess;
    });
}
