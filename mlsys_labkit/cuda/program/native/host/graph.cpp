// graph.cpp: see graph.h.
#include "graph.h"

#include <algorithm>
#include <set>

#include "context.h"

namespace lk::host {

namespace {

std::map<cudaGraph_t, std::shared_ptr<CUgraph_st>>& graphs() {
    static std::map<cudaGraph_t, std::shared_ptr<CUgraph_st>> live;
    return live;
}

bool holds(const CUgraph_st& graph, cudaGraphNode_t node) {
    for (const auto& one : graph.nodes) {
        if (one.get() == node) return true;
        if (one->work.child && holds(*one->work.child, node)) return true;
    }
    return false;
}

bool holds_graph(const CUgraph_st& graph, cudaGraph_t wanted) {
    for (const auto& one : graph.nodes) {
        const CUgraph_st* child = one->work.child.get();
        if (child && (child == wanted || holds_graph(*child, wanted))) return true;
    }
    return false;
}

}  // namespace

cudaGraphNode_t add_node(CUgraph_st& graph, Work work, const std::vector<cudaGraphNode_t>& before) {
    auto node = std::make_unique<CUgraphNode_st>();
    node->graph = &graph;
    node->work = std::move(work);
    node->before = before;
    graph.nodes.push_back(std::move(node));
    return graph.nodes.back().get();
}

std::shared_ptr<CUgraph_st> clone(const CUgraph_st& graph) {
    auto made = std::make_shared<CUgraph_st>();
    for (const auto& node : graph.nodes) {
        Work work = node->work.child ? running(clone(*node->work.child)) : node->work;
        made->copies[node.get()] = add_node(*made, std::move(work), {});
        made->copies[node.get()]->enabled = node->enabled;
    }
    for (const auto& node : graph.nodes) {
        for (const cudaGraphNode_t one : node->before) made->copies[node.get()]->before.push_back(made->copies[one]);
    }
    return made;
}

std::vector<cudaGraphNode_t> in_order(const CUgraph_st& graph) {
    std::vector<cudaGraphNode_t> order;
    std::set<cudaGraphNode_t> done;
    for (bool more = true; more;) {
        more = false;
        for (const auto& node : graph.nodes) {
            const auto is_done = [&](cudaGraphNode_t one) { return done.count(one) != 0; };
            if (is_done(node.get()) || !std::all_of(node->before.begin(), node->before.end(), is_done)) continue;
            done.insert(node.get());
            order.push_back(node.get());
            more = true;
        }
    }
    return order;
}

cudaError_t run_graph(const CUgraph_st& graph, CUstream_st& stream) {
    ordering().add_stream(stream);
    const StreamClock start = ordering().before(stream);
    for (const cudaGraphNode_t node : in_order(graph)) {
        node->lane.clock = start;
        for (const cudaGraphNode_t before : node->before) join(node->lane.clock, before->lane.clock);
        if (!node->enabled) continue;
        const cudaError_t error = run_work(node->lane, node->work);
        if (error != cudaSuccess) return error;
    }
    for (const auto& node : graph.nodes) join(stream.clock, node->lane.clock);
    return cudaSuccess;
}

bool comes_before(const CUgraphNode_st* a, const CUgraphNode_st* b) {
    if (a == b) return true;
    return std::any_of(b->before.begin(), b->before.end(), [a](const CUgraphNode_st* one) { return comes_before(a, one); });
}

std::string name_of(const CUgraphNode_st& node) {
    switch (node.work.type) {
        case cudaGraphNodeTypeKernel: return node.work.kernel ? node.work.kernel->label : "kernel";
        case cudaGraphNodeTypeMemcpy: return "copy";
        case cudaGraphNodeTypeMemset: return "fill";
        case cudaGraphNodeTypeHost: return "host function";
        case cudaGraphNodeTypeGraph: return "graph";
        case cudaGraphNodeTypeEmpty: return "empty";
        case cudaGraphNodeTypeWaitEvent: return "wait for event";
        case cudaGraphNodeTypeEventRecord: return "record event";
        case cudaGraphNodeTypeMemAlloc: return "allocation";
        case cudaGraphNodeTypeMemFree: return "free";
    }
    return "node";
}

Work running(std::shared_ptr<CUgraph_st> child) {
    Work work;
    work.type = cudaGraphNodeTypeGraph;
    work.child = child;
    return work;
}

bool is_graph(cudaGraph_t graph) {
    const auto holds_it = [graph](const auto& one) { return holds_graph(*one.second, graph); };
    return graphs().count(graph) || std::any_of(graphs().begin(), graphs().end(), holds_it);
}

void own_graph(const std::shared_ptr<CUgraph_st>& graph) { graphs()[graph.get()] = graph; }

bool disown_graph(cudaGraph_t graph) { return graphs().erase(graph) != 0; }

bool is_node(cudaGraphNode_t node) {
    return std::any_of(graphs().begin(), graphs().end(), [node](const auto& one) { return holds(*one.second, node); });
}

}  // namespace lk::host
