// graph.h: the nodes of CUDA graphs. They run one after the other, each behind those it depends on.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "stream_state.h"
#include "work.h"

struct CUgraphNode_st {
    CUgraphNode_st() { lane.blocking = false; }
    ~CUgraphNode_st() { lk::host::forget_stream(lane); }

    CUgraph_st* graph = nullptr;
    lk::host::Work work;
    std::vector<CUgraphNode_st*> before;  // in the same graph
    bool enabled = true;
    CUstream_st lane;  // it runs in a stream of its own, as far as the order is concerned
};

struct CUgraph_st {
    std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
    std::map<const CUgraphNode_st*, CUgraphNode_st*> copies;  // of a clone: its nodes, by those they were made from
};

struct CUgraphExec_st {
    std::shared_ptr<CUgraph_st> graph;
};

namespace lk::host {

cudaGraphNode_t add_node(CUgraph_st& graph, Work work, const std::vector<cudaGraphNode_t>& before);
// With copies of the child graphs, too.
std::shared_ptr<CUgraph_st> clone(const CUgraph_st& graph);
// Behind those that each depends on; fewer than there are nodes where some wait for each other.
std::vector<cudaGraphNode_t> in_order(const CUgraph_st& graph);
cudaError_t run_graph(const CUgraph_st& graph, CUstream_st& stream);
// Whether a comes before b, or is b.
bool comes_before(const CUgraphNode_st* a, const CUgraphNode_st* b);
std::string name_of(const CUgraphNode_st& node);
Work running(std::shared_ptr<CUgraph_st> child);

// The program's graphs.
bool is_graph(cudaGraph_t graph);
void own_graph(const std::shared_ptr<CUgraph_st>& graph);
bool disown_graph(cudaGraph_t graph);
bool is_node(cudaGraphNode_t node);

}  // namespace lk::host
