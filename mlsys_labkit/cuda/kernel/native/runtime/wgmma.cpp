// wgmma.cpp: products of a warpgroup (wgmma.mma_async). Each warp makes its 16 rows when its 32 lanes have come: as early as a GPU
// could. Sums are made in double and rounded once; a tensor core, which rounds in between, is no more accurate.
//
// Layouts of operands in shared memory: PTX ISA, "Shared Memory Matrix Layout" of wgmma, and "Matrix Descriptor Format".
#include "wgmma.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cluster.h"
#include "hooks.h"
#include "small_floats.h"

namespace lk {

namespace {

constexpr u32 kRows = 16;           // of a warp
constexpr u32 kMostColumns = 256;
constexpr u32 kMostDepth = 32;
constexpr u64 kCoreLine = 16;          // bytes that lie together whatever the swizzle
constexpr u64 kWindow = 256 << 10;  // what the address of a descriptor can tell apart
constexpr u32 kWarps = 4;

typedef double Four __attribute__((vector_size(32)));

struct Operands {
    double left[kRows][kMostDepth];
    Four right[kMostDepth][kMostColumns / 4];
};

// A matrix in shared memory: `lines` of it are numbered along M or N. turned: those lie together in memory, else those along K.
struct Matrix {
    u64 begin;    // where the block's shared memory has it
    u64 leading;  // bytes
    u64 stride;
    u32 width;    // of the swizzle, as swizzled() takes it
    u64 base;     // of the pattern, in lines of 128 bytes
    bool turned;

    u64 row() const { return u64{16} << width; }
    // The chunk `chunk` of the line `line`, or turned: of the depth `line`.
    u64 address(u32 line, u32 chunk) const {
        u64 offset;
        if (!turned) {
            offset = line / 8 * stride + line % 8 * row() + chunk * (width ? kCoreLine : leading);
        } else {
            const u64 chunks = row() / kCoreLine, other = width ? leading : stride, along = width ? stride : leading;
            offset = chunk / chunks * other + chunk % chunks * kCoreLine + line % 8 * row() + line / 8 * along;
        }
        const u64 plain = begin + offset - (base << 7);
        return swizzled(plain, width) + (base << 7);
    }
};

// A descriptor has 18 bits of an address. A module may have more shared memory than they tell apart, since it has the static arrays
// of all its kernels: dynamic memory of the launch goes first.
u64 address_of(const Block& block, u64 bits) {
    const AddressRange& range = block.launch->description.dynamic_shared;
    const u64 dynamic = block.shared_begin + range.begin;
    const u64 offset = (bits - dynamic) & (kWindow - 1);
    return offset < range.end - range.begin ? dynamic + offset : block.shared_begin + ((bits - block.shared_begin) & (kWindow - 1));
}

Matrix read_descriptor(const Block& block, u64 descriptor, bool turned) {
    constexpr u32 kWidths[] = {0, 3, 2, 1};
    const auto field = [&](u32 shift) { return (descriptor >> shift & 0x3fff) << 4; };
    Matrix matrix;
    matrix.begin = address_of(block, field(0));
    matrix.leading = field(16);
    matrix.stride = field(32);
    matrix.width = kWidths[descriptor >> 62];
    matrix.base = descriptor >> 49 & 7;
    matrix.turned = turned;
    return matrix;
}

template <class Visit>
void take_as(const char* chunk, lk_wgmma_type type, Visit visit) {
    const auto each = [&](auto bits, auto read) {
        for (u32 i = 0; i < kCoreLine / sizeof bits; i++) {
            memcpy(&bits, chunk + i * sizeof bits, sizeof bits);
            visit(i, double(read(bits)));
        }
    };
    switch (type) {
        case lk_wgmma_f16: return each(u16{}, half_to_float);
        case lk_wgmma_bf16: return each(u16{}, bfloat_to_float);
        case lk_wgmma_tf32: return each(u32{}, [](u32 bits) { return float_of_bits(bits & 0xffffe000u); });
        case lk_wgmma_e4m3: return each(u8{}, small_float<4, 3, true>);
        case lk_wgmma_e5m2: return each(u8{}, small_float<5, 2>);
        case lk_wgmma_s8: return each(int8_t{}, [](int8_t number) { return number; });
        case lk_wgmma_u8: return each(u8{}, [](u8 number) { return number; });
    }
}

u32 element_size(lk_wgmma_type type) {
    return type == lk_wgmma_tf32 ? 4 : type == lk_wgmma_f16 || type == lk_wgmma_bf16 ? 2 : 1;
}

// Calls visit(line, depth, number) for the lines from `first` on, and notes where they lie. False where that is no shared memory.
template <class Visit>
bool read_matrix(Block& block, const Matrix& matrix, u32 first, u32 lines, u32 depth, lk_wgmma_type type, std::vector<u64>& chunks,
                 Visit visit) {
    const u32 per = kCoreLine / element_size(type);
    const u32 outer = matrix.turned ? depth : lines, inner = (matrix.turned ? lines : depth) / per;
    for (u32 i = 0; i < outer; i++) {
        for (u32 j = 0; j < inner; j++) {
            const u64 at = matrix.turned ? matrix.address(i, first / per + j) : matrix.address(first + i, j);
            chunks.push_back(at);
            if (at < block.shared_begin || at + kCoreLine > block.shared_end) return false;
            take_as(reinterpret_cast<const char*>(at), type, [&](u32 k, double number) {
                matrix.turned ? visit(j * per + k, i, number) : visit(i, j * per + k, number);
            });
        }
    }
    return true;
}

// Lane l of a warp holds lines l / 4 and l / 4 + 8, and of each 4 bytes in every 16, as for mma.sync.
void read_registers(const lk_wgmma* const* asked, Operands& operands) {
    const u32 per = 4 / element_size(lk_wgmma_type(asked[0]->type));
    for (u32 lane = 0; lane < kWarpSize; lane++) {
        for (u32 part = 0; part < 4; part++) {
            const u32 row = lane / 4 + part % 2 * 8, column = part / 2 * 4 * per + lane % 4 * per;
            char chunk[kCoreLine] = {};
            memcpy(chunk, &asked[lane]->left[part], 4);
            take_as(chunk, lk_wgmma_type(asked[0]->type), [&](u32 i, double number) {
                if (i < per) operands.left[row][column + i] = number;
            });
        }
    }
}

#if defined(__x86_64__)
__attribute__((target_clones("arch=haswell", "default")))
#endif
void multiply(const Operands& operands, Four (*sums)[kMostColumns / 4], u32 groups, u32 depth) {
    for (u32 row = 0; row < kRows; row++) {
        for (u32 group = 0; group < groups; group += 2) {
            Four low = sums[row][group], high = sums[row][group + 1];
            for (u32 k = 0; k < depth; k++) {
                low += operands.left[row][k] * operands.right[k][group];
                high += operands.left[row][k] * operands.right[k][group + 1];
            }
            sums[row][group] = low;
            sums[row][group + 1] = high;
        }
    }
}

double read_sum(const lk_wgmma& asked, u32 i) {
    if (asked.sums_are == lk_wgmma_halves) {
        return half_to_float(u16(static_cast<const u32*>(asked.sums)[i / 2] >> 16 * (i % 2)));
    }
    if (asked.sums_are == lk_wgmma_integers) return static_cast<const int32_t*>(asked.sums)[i];
    return static_cast<const float*>(asked.sums)[i];
}

void write_sum(const lk_wgmma& asked, u32 i, double sum) {
    if (asked.sums_are == lk_wgmma_halves) {
        u32& word = static_cast<u32*>(asked.sums)[i / 2];
        const u32 shift = 16 * (i % 2);
        word = (word & ~(0xffffu << shift)) | u32{double_to_half(sum)} << shift;
    } else if (asked.sums_are == lk_wgmma_integers) {
        const double most = 2147483647.0, least = -2147483648.0;
        const double kept = asked.saturates ? std::clamp(sum, least, most) : sum;
        static_cast<u32*>(asked.sums)[i] = u32(i64(kept));
    } else {
        static_cast<float*>(asked.sums)[i] = float(sum);
    }
}

// Lane l holds columns 2 (l % 4) and the next of every eight, in lines l / 4 and l / 4 + 8.
template <class Visit>
void each_sum(u32 columns, Visit visit) {
    for (u32 lane = 0; lane < kWarpSize; lane++) {
        for (u32 i = 0; i < columns / 2; i++) visit(lane, i, lane / 4 + i / 2 % 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2);
    }
}

void refuse(Block& block, u32 lane, u64 address, bool is_left) {
    const u32 thread = block.warp * kWarpSize + lane;
    FindingRecord finding = make_finding(block, FindingKind::matrix_descriptor, thread, block.threads[thread].pc);
    finding.values[0] = is_left ? 0 : 1;
    finding.values[1] = u32(address - block.shared_begin);
    finding.bytes = u32(block.shared_end - block.shared_begin);
    block.launch->findings.report(finding);
    block.launch->stopped = true;
}

}  // namespace

void multiply_warpgroup(Block& block, u32 group) {
    const lk_wgmma* asked[kWarpSize] = {};
    for (u32 lanes = group; lanes; lanes &= lanes - 1) {
        const u32 lane = lowest_lane(lanes);
        WarpOperation& operation = block.threads[block.warp * kWarpSize + lane].operation;
        asked[lane] = static_cast<const lk_wgmma*>(operation.value);
        operation.answer = group;
    }
    block.warps[block.warp].products++;
    if (group != ~0u) return;
    const lk_wgmma& one = *asked[0];
    const lk_wgmma_type left_type = lk_wgmma_type(one.type), right_type = lk_wgmma_type(one.right_type);
    const u32 depth = 32 / element_size(left_type);
    thread_local Operands operands;
    thread_local std::vector<u64> chunks;
    chunks.clear();
    if (one.from_registers) {
        read_registers(asked, operands);
    } else {
        const Matrix matrix = read_descriptor(block, one.left_descriptor, one.turns_left);
        const u32 first = block.warp % kWarps * kRows;
        if (!read_matrix(block, matrix, first, kRows, depth, left_type, chunks,
                         [&](u32 row, u32 k, double number) { operands.left[row][k] = number; })) {
            return refuse(block, 0, chunks.back(), true);
        }
    }
    const Matrix matrix = read_descriptor(block, one.right_descriptor, one.turns_right);
    if (!read_matrix(block, matrix, 0, one.columns, depth, right_type, chunks,
                     [&](u32 column, u32 k, double number) { operands.right[k][column / 4][column % 4] = number; })) {
        return refuse(block, 0, chunks.back(), false);
    }
    if (one.negates_left != one.negates_right) {
        for (auto& row : operands.left) {
            for (double& number : row) number = -number;
        }
    }
    if (block.mode == Mode::check && !check_operands(block, chunks)) return;
    thread_local Four sums[kRows][kMostColumns / 4];
    memset(sums, 0, sizeof sums);
    if (one.adds) {
        each_sum(one.columns, [&](u32 lane, u32 i, u32 row, u32 column) { sums[row][column / 4][column % 4] = read_sum(*asked[lane], i); });
    }
    multiply(operands, sums, one.columns / 4, depth);
    each_sum(one.columns, [&](u32 lane, u32 i, u32 row, u32 column) { write_sum(*asked[lane], i, sums[row][column / 4][column % 4]); });
}

}  // namespace lk
