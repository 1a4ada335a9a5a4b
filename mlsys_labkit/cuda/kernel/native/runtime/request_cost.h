// request_cost.h: what one warp-wide access costs: 32-byte sectors in global memory, passes over the banks in shared memory.
//
// The rules are those of NVIDIA's profilers since Volta: a request is one memory instruction of one warp; its sectors are
// the distinct aligned 32-byte pieces that its lanes touch. Shared memory has 32 banks of 4 bytes; lanes that want different
// words of one bank take turns, lanes that want the same word share. Accesses of 8 bytes go by half-warps, of 16 bytes by
// quarter-warps. Loads by a warp in which each active lane n has the address of lane n^1, or each that of lane n^2, take
// twice as many lanes together (a lane beside an inactive one counts as a pair): they return each word to two lanes at once.
// Atomics on one address take turns, too.
// Local memory is laid out so that the same word of 32 threads fills 128 bytes. The constant cache serves one address at a
// time, to all lanes that want it.
// Reference: NVIDIA developer forums, "Unexpected shared memory bank conflict" (77228), answer by NVIDIA on LDS.128.
#pragma once

#include <cstdint>

namespace lk {

constexpr uint32_t kLanes = 32;
constexpr uint32_t kSectorBytes = 32;
constexpr uint32_t kBanks = 32;
constexpr uint32_t kBankBytes = 4;

struct WarpAccess {
    uint32_t mask;    // active lanes, never 0
    uint32_t bytes;   // a lane, 1 to 16
    bool serialises;  // atomic
    bool loads;       // and nothing else
    const uint64_t* addresses;  // [32]; those of inactive lanes are not read
};

struct GlobalCost {
    uint32_t sectors;
    uint32_t ideal_sectors;  // that the distinct bytes would need if they lay side by side
    uint32_t same_address;   // most lanes on one address
};

struct SharedCost {
    uint32_t wavefronts;
    uint32_t ideal_wavefronts;  // one for each group of lanes that is served together and has an active lane
    uint32_t worst;             // most wavefronts of one group
};

GlobalCost global_cost(const WarpAccess& access);
SharedCost shared_cost(const WarpAccess& access);
// Addresses are from the beginning of each lane's own stack.
GlobalCost local_cost(const WarpAccess& access);
uint32_t distinct_addresses(const WarpAccess& access);

}  // namespace lk
