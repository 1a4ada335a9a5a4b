// graphs_api.cpp: graphs, their nodes and what is known of them.
#include <algorithm>
#include <cstdio>

#include "context.h"
#include "graph.h"
#include "heap.h"

using namespace lk::host;

namespace {

// Makes a node of the work that made(work) fills in.
template <class Made>
cudaError_t add(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* before, size_t count, Made made) {
    return api([=]() -> cudaError_t {
        if (!node || !is_graph(graph) || (count && !before)) return cudaErrorInvalidValue;
        for (size_t i = 0; i < count; ++i) {
            if (!is_node(before[i]) || before[i]->graph != graph) return cudaErrorInvalidValue;
        }
        Work work;
        const cudaError_t error = made(work);
        if (error != cudaSuccess) return error;
        *node = add_node(*graph, std::move(work), std::vector<cudaGraphNode_t>(before, before + count));
        return cudaSuccess;
    });
}

template <class Parameters>
cudaError_t get(cudaGraphNode_t node, cudaGraphNodeType type, Parameters* parameters, Parameters Work::*member) {
    return api([=] {
        if (!parameters || !is_node(node) || node->work.type != type) return cudaErrorInvalidValue;
        *parameters = node->work.*member;
        return cudaSuccess;
    });
}

template <class Made>
cudaError_t set(cudaGraphNode_t node, cudaGraphNodeType type, Made made) {
    return api([=]() -> cudaError_t {
        if (!is_node(node) || node->work.type != type) return cudaErrorInvalidValue;
        return made(node->work);
    });
}

// Fills a list of the caller's that has room for *count, or only counts.
template <class Item>
cudaError_t list(const std::vector<Item>& items, Item* room, size_t* count) {
    if (!count) return cudaErrorInvalidValue;
    if (room) std::copy_n(items.begin(), std::min(*count, items.size()), room);
    *count = items.size();
    return cudaSuccess;
}

template <class Wanted>
cudaError_t list_nodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count, Wanted wanted) {
    return api([=] {
        if (!is_graph(graph)) return cudaErrorInvalidValue;
        std::vector<cudaGraphNode_t> found;
        for (const auto& one : graph->nodes) {
            if (wanted(*one)) found.push_back(one.get());
        }
        return list(found, nodes, count);
    });
}

std::vector<std::pair<cudaGraphNode_t, cudaGraphNode_t>> edges_of(const CUgraph_st& graph) {
    std::vector<std::pair<cudaGraphNode_t, cudaGraphNode_t>> edges;
    for (const auto& node : graph.nodes) {
        for (const cudaGraphNode_t before : node->before) edges.emplace_back(before, node.get());
    }
    return edges;
}

}  // namespace

extern "C" cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned int flags) {
    return api([=] {
        if (!graph || flags != 0) return cudaErrorInvalidValue;
        const auto made = std::make_shared<CUgraph_st>();
        own_graph(made);
        *graph = made.get();
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    return api([=] { return disown_graph(graph) ? cudaSuccess : cudaErrorInvalidValue; });
}

extern "C" cudaError_t cudaGraphClone(cudaGraph_t* made, cudaGraph_t graph) {
    return api([=] {
        if (!made || !is_graph(graph)) return cudaErrorInvalidValue;
        const std::shared_ptr<CUgraph_st> copy = clone(*graph);
        own_graph(copy);
        *made = copy.get();
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t* node, cudaGraphNode_t original, cudaGraph_t copy) {
    return api([=] {
        if (!node || !is_graph(copy) || !copy->copies.count(original)) return cudaErrorInvalidValue;
        *node = copy->copies.at(original);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
    return list_nodes(graph, nodes, count, [](const CUgraphNode_st&) { return true; });
}

extern "C" cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
    return list_nodes(graph, nodes, count, [](const CUgraphNode_st& node) { return node.before.empty(); });
}

cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, size_t* count) {
    return api([=] {
        if (!is_graph(graph) || !count) return cudaErrorInvalidValue;
        const auto edges = edges_of(*graph);
        for (size_t i = 0; from && to && i < std::min(*count, edges.size()); ++i) std::tie(from[i], to[i]) = edges[i];
        *count = edges.size();
        return cudaSuccess;
    });
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* nodes, size_t* count) {
    return api([=] { return is_node(node) ? list(node->before, nodes, count) : cudaErrorInvalidValue; });
}

cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t* nodes, size_t* count) {
    if (!is_node(node)) return api([] { return cudaErrorInvalidValue; });
    return list_nodes(node->graph, nodes, count, [node](const CUgraphNode_st& one) {
        return std::find(one.before.begin(), one.before.end(), node) != one.before.end();
    });
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to, size_t count) {
    return api([=] {
        for (size_t i = 0; i < count; ++i) {
            if (!is_node(from[i]) || !is_node(to[i]) || from[i]->graph != graph || to[i]->graph != graph || from[i] == to[i]) {
                return cudaErrorInvalidValue;
            }
        }
        for (size_t i = 0; i < count; ++i) to[i]->before.push_back(from[i]);
        return cudaSuccess;
    });
}

cudaError_t cudaGraphRemoveDependencies(cudaGraph_t, const cudaGraphNode_t* from, const cudaGraphNode_t* to, size_t count) {
    return api([=] {
        for (size_t i = 0; i < count; ++i) {
            if (!is_node(to[i])) return cudaErrorInvalidValue;
            auto& before = to[i]->before;
            const auto at = std::find(before.begin(), before.end(), from[i]);
            if (at == before.end()) return cudaErrorInvalidValue;
            before.erase(at);
        }
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
    return api([=] {
        if (!is_node(node)) return cudaErrorInvalidValue;
        auto& nodes = node->graph->nodes;
        for (const auto& one : nodes) {
            one->before.erase(std::remove(one->before.begin(), one->before.end(), node), one->before.end());
        }
        nodes.erase(std::find_if(nodes.begin(), nodes.end(), [node](const auto& one) { return one.get() == node; }));
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
    return api([=] {
        if (!type || !is_node(node)) return cudaErrorInvalidValue;
        *type = node->work.type;
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned int) {
    return api([=] {
        if (!path || !is_graph(graph)) return cudaErrorInvalidValue;
        FILE* file = fopen(path, "w");
        if (!file) return cudaErrorOperatingSystem;
        fprintf(file, "digraph graph_1 {\n");
        std::map<const CUgraphNode_st*, size_t> numbers;
        for (const auto& node : graph->nodes) {
            const size_t number = numbers.size();
            numbers[node.get()] = number;
            fprintf(file, "  node_%zu [label=\"%zu\\n%s\"];\n", number, number, name_of(*node).c_str());
        }
        for (const auto& [from, to] : edges_of(*graph)) fprintf(file, "  node_%zu -> node_%zu;\n", numbers[from], numbers[to]);
        fprintf(file, "}\n");
        fclose(file);
        return cudaSuccess;
    });
}

extern "C" cudaError_t lk_graph_add_kernel(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* before,
                                           size_t count, const cudaKernelNodeParams* parameters, lk::GraphKernel how) {
    return add(node, graph, before, count, [=](Work& work) {
        return parameters ? launching(*parameters, how, work) : cudaErrorInvalidValue;
    });
}

extern "C" cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* before,
                                              size_t count, const cudaMemcpy3DParms* parameters) {
    return add(node, graph, before, count,
               [=](Work& work) { return parameters ? copying(*parameters, work) : cudaErrorInvalidValue; });
}

extern "C" cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* before,
                                                size_t count, void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return add(node, graph, before, count, [=](Work& work) {
        const Transfer transfer = plain_transfer(to, from, bytes, kind);
        work = copying(transfer);
        return check(transfer);
    });
}

extern "C" cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* before,
                                              size_t count, const cudaMemsetParams* parameters) {
    return add(node, graph, before, count,
               [=](Work& work) { return parameters ? filling(*parameters, work) : cudaErrorInvalidValue; });
}

extern "C" cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* before,
                                            size_t count, const cudaHostNodeParams* parameters) {
    return add(node, graph, before, count, [=](Work& work) {
        if (!parameters || !parameters->fn) return cudaErrorInvalidValue;
        work = calling(parameters->fn, parameters->userData);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* before,
                                             size_t count) {
    return add(node, graph, before, count, [](Work&) { return cudaSuccess; });
}

extern "C" cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* before,
                                                  size_t count, cudaGraph_t child) {
    return add(node, graph, before, count, [=](Work& work) {
        if (!is_graph(child)) return cudaErrorInvalidValue;
        work = running(clone(*child));
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* before,
                                                   size_t count, cudaEvent_t event) {
    return add(node, graph, before, count, [=](Work& work) {
        work = recording(event);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* before,
                                                 size_t count, cudaEvent_t event) {
    return add(node, graph, before, count, [=](Work& work) {
        work = waiting(event);
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* before,
                                                size_t count, cudaMemAllocNodeParams* parameters) {
    return add(node, graph, before, count, [=](Work& work) {
        if (!parameters) return cudaErrorInvalidValue;
        work.type = cudaGraphNodeTypeMemAlloc;
        parameters->dptr = heap().allocate_for_graph(parameters->bytesize);
        return parameters->dptr ? cudaSuccess : cudaErrorMemoryAllocation;
    });
}

extern "C" cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* before,
                                               size_t count, void* pointer) {
    return add(node, graph, before, count, [=](Work& work) {
        work.type = cudaGraphNodeTypeMemFree;
        return heap().find(pointer, nullptr) ? cudaSuccess : cudaErrorInvalidValue;
    });
}

extern "C" cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams* parameters) {
    return api([=] {
        if (!parameters || !is_node(node) || !node->work.kernel) return cudaErrorInvalidValue;
        KernelCall& call = *node->work.kernel;
        const lk::Configuration& configuration = call.configuration;
        *parameters = {const_cast<void*>(call.kernel), configuration.grid, configuration.block,
                       static_cast<unsigned int>(configuration.shared_bytes), call.frame + 1, nullptr};
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, cudaMemcpy3DParms* parameters) {
    return get(node, cudaGraphNodeTypeMemcpy, parameters, &Work::copy);
}

extern "C" cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, cudaMemsetParams* parameters) {
    return get(node, cudaGraphNodeTypeMemset, parameters, &Work::fill);
}

extern "C" cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t node, cudaHostNodeParams* parameters) {
    return get(node, cudaGraphNodeTypeHost, parameters, &Work::host);
}

extern "C" cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t node, cudaGraph_t* graph) {
    return api([=] {
        if (!graph || !is_node(node) || !node->work.child) return cudaErrorInvalidValue;
        *graph = node->work.child.get();
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node, const cudaMemcpy3DParms* parameters) {
    return set(node, cudaGraphNodeTypeMemcpy, [=](Work& work) { return copying(*parameters, work); });
}

extern "C" cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node, const cudaMemsetParams* parameters) {
    return set(node, cudaGraphNodeTypeMemset, [=](Work& work) { return filling(*parameters, work); });
}

extern "C" cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t node, const cudaHostNodeParams* parameters) {
    return set(node, cudaGraphNodeTypeHost, [=](Work& work) {
        work = calling(parameters->fn, parameters->userData);
        return cudaSuccess;
    });
}
