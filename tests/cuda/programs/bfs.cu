// Breadth-first search by frontiers, with a managed flag and atomicCAS.
#include <cstdio>
#include <queue>
#include <vector>

#define NODES 600

__managed__ unsigned int numCurr;
__device__ unsigned int visitedNodes;

__global__ void bfs(const unsigned int *srcPtrs, const unsigned int *dst, unsigned int *level,
                    const unsigned int *prev, unsigned int *curr, unsigned int numPrev, unsigned int currLevel)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < numPrev) {
        unsigned int vertex = prev[i];
        for (unsigned int edge = srcPtrs[vertex]; edge < srcPtrs[vertex + 1]; ++edge) {
            unsigned int neighbor = dst[edge];
            if (atomicCAS(&level[neighbor], 0xFFFFFFFFu, currLevel) == 0xFFFFFFFFu) {
                unsigned int at = atomicAdd(&numCurr, 1);
                curr[at] = neighbor;
                atomicInc(&visitedNodes, 0xFFFFFFFFu);
            }
        }
    }
}

int main()
{
    std::vector<std::vector<unsigned int>> adjacency(NODES);
    for (unsigned int v = 0; v < NODES; v++)
        for (unsigned int k = 1; k <= v % 4; k++) {
            unsigned int w = (v * 7 + k * 131) % NODES;
            adjacency[v].push_back(w);
            adjacency[w].push_back(v);
        }
    std::vector<unsigned int> ptrs{0}, dst, expected(NODES, 0xFFFFFFFF), level(NODES);
    for (auto &neighbors : adjacency) {
        dst.insert(dst.end(), neighbors.begin(), neighbors.end());
        ptrs.push_back(dst.size());
    }
    std::queue<unsigned int> queue;
    queue.push(1);
    expected[1] = 0;
    unsigned int reached = 1;
    while (!queue.empty()) {
        unsigned int v = queue.front();
        queue.pop();
        for (unsigned int w : adjacency[v])
            if (expected[w] == 0xFFFFFFFF) {
                expected[w] = expected[v] + 1;
                queue.push(w);
                reached++;
            }
    }

    unsigned int *d_ptrs, *d_dst, *d_level, *d_prev, *d_curr;
    cudaMalloc(&d_ptrs, ptrs.size() * sizeof(unsigned int));
    cudaMalloc(&d_dst, dst.size() * sizeof(unsigned int));
    cudaMalloc(&d_level, NODES * sizeof(unsigned int));
    cudaMalloc(&d_prev, NODES * sizeof(unsigned int));
    cudaMalloc(&d_curr, NODES * sizeof(unsigned int));
    cudaMemcpy(d_ptrs, ptrs.data(), ptrs.size() * sizeof(unsigned int), cudaMemcpyHostToDevice);
    cudaMemcpy(d_dst, dst.data(), dst.size() * sizeof(unsigned int), cudaMemcpyHostToDevice);
    cudaMemset(d_level, 0xFF, NODES * sizeof(unsigned int));
    unsigned int zero = 0, one = 1, counted;
    cudaMemcpy(&d_level[1], &zero, sizeof(zero), cudaMemcpyHostToDevice);
    cudaMemcpy(d_prev, &one, sizeof(one), cudaMemcpyHostToDevice);
    cudaMemcpyToSymbol(visitedNodes, &one, sizeof(one));

    unsigned int numPrev = 1, currLevel = 0;
    while (numPrev > 0) {
        numCurr = 0;
        bfs<<<(numPrev + 63) / 64, 64>>>(d_ptrs, d_dst, d_level, d_prev, d_curr, numPrev, ++currLevel);
        cudaDeviceSynchronize();
        numPrev = numCurr;
        std::swap(d_prev, d_curr);
    }
    cudaMemcpy(level.data(), d_level, NODES * sizeof(unsigned int), cudaMemcpyDeviceToHost);
    cudaMemcpyFromSymbol(&counted, visitedNodes, sizeof(counted));
    printf("%u of %d nodes in %u levels\n", counted, NODES, currLevel);
    printf("%s\n", level == expected && counted == reached ? "PASS" : "FAIL");
    return 0;
}
