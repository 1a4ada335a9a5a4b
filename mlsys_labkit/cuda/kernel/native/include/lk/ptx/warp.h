// warp.h: PTX's shuffles, barriers, and matrix fragments. Which lane holds which elements is the PTX ISA's ("Matrix Fragments
// for mma"): lane l holds lines l / 4 and l / 4 + 8, and of each line 4 bytes in every 16 from 4 * (l % 4) on.
#pragma once

#include "lk/ptx/registers.h"
#include "lk/synchronize.h"
#include "lk/warp.h"

namespace lk {
namespace ptx {

// A float whose upper 19 bits count.
struct Tf32;
// Sums in half: two in a register.
struct Halves;

LK_INLINE unsigned shuffle(int mode, unsigned value, unsigned by, unsigned limits, unsigned mask, bool& inside) {
    const int lane = int(lk_lane());
    const int segment = int(limits >> 8 & 31), clamp = int(limits & 31), step = int(by & 31);
    const int least = lane & segment, most = (lane & segment) | (clamp & ~segment);
    int from = mode == lk_shuffle_up     ? lane - step
               : mode == lk_shuffle_down ? lane + step
               : mode == lk_shuffle_xor  ? lane ^ step
                                         : least | (step & ~segment);
    inside = mode == lk_shuffle_up ? from >= most : from <= most;
    return lk::shuffle(mask, value, lk_shuffle_index, inside ? from : lane, 32);
}

LK_INLINE void block_barrier(long long number, long long threads, int line = __builtin_LINE()) {
    const unsigned all = blockDim.x * blockDim.y * blockDim.z;
    if (threads != 0 && threads < all) return lk_named_barrier(unsigned(number), unsigned(threads), 1);
    lk_block_barrier(line | int(number & 15) << 20);
}

// Each lane gives the address of one line of 16 bytes; lane l's are line l % 8 of matrix l / 8.
template <int count, bool turned>
LK_OPAQUE void spread_lines(unsigned* words, const uint4& line) {
    uint4 lines[32];
    lk_gather(0xffffffffu, &line, lines, sizeof line);
    const unsigned short* numbers = reinterpret_cast<const unsigned short*>(lines);
    const int lane = int(lk_lane()), over = lane / 4, along = lane % 4 * 2;
    for (int i = 0; i < count; ++i) {
        const unsigned short* matrix = numbers + 64 * i;
        const unsigned low = turned ? matrix[8 * along + over] : matrix[8 * over + along];
        const unsigned high = turned ? matrix[8 * (along + 1) + over] : matrix[8 * over + along + 1];
        words[i] = high << 16 | low;
    }
}

template <int count, bool turned>
LK_INLINE void load_matrix(unsigned (&words)[count], const void* line) {
    uint4 mine = make_uint4(0, 0, 0, 0);
    if (lk_lane() < 8 * count) {
        mine = *static_cast<const uint4*>(line);
    }
    spread_lines<count, turned>(words, mine);
}

template <int count, bool turned>
LK_OPAQUE void collect_line(const unsigned* words, uint4* line) {
    unsigned all[32][count];
    lk_gather(0xffffffffu, words, all, sizeof all[0]);
    const int lane = int(lk_lane()), matrix = lane / 8 % count, mine = lane % 8;
    unsigned short numbers[8];
    for (int i = 0; i < 8; ++i) {
        const int over = turned ? i : mine, along = turned ? mine : i;
        numbers[i] = static_cast<unsigned short>(all[4 * over + along / 2][matrix] >> 16 * (along % 2));
    }
    __builtin_memcpy(line, numbers, sizeof numbers);
}

template <int count, bool turned>
LK_INLINE void store_matrix(const unsigned (&words)[count], void* line) {
    uint4 mine;
    collect_line<count, turned>(words, &mine);
    if (lk_lane() < 8 * count) {
        *static_cast<uint4*>(line) = mine;
    }
}

// Element i of a register.
template <class Type>
struct Element {
    static constexpr int per_word = 4 / sizeof(Type);
    using Number = std::conditional_t<std::is_integral_v<Type>, int, float>;
    LK_UNRECORDED static Number of(unsigned word, int i) {
        using Bits = std::conditional_t<sizeof(Type) == 2, unsigned short, unsigned char>;
        return Number(get<Type>(Bits(word >> 8 * sizeof(Type) * i)));
    }
};
template <>
struct Element<Tf32> {
    static constexpr int per_word = 1;
    using Number = float;
    LK_UNRECORDED static float of(unsigned word, int) { return __uint_as_float(word & 0xffffe000u); }
};
template <>
struct Element<double> {
    static constexpr int per_word = 1;
    using Number = double;
    LK_UNRECORDED static double of(double word, int) { return word; }
};

// The profile reads the FLOPs of a lane from this name and its first number. Products are exact, and their sum is rounded once.
template <int flops, int rows, int depth, class Left, class Right, class Sum, class Word, class Stored>
LK_OPAQUE bool tensor_core_multiply(Stored* results, const Word* left, const Word* right, const Stored* addends, bool saturates) {
    using Number = typename Element<Left>::Number;
    using Wide = std::conditional_t<std::is_same_v<Number, int>, long long, double>;
    constexpr bool in_halves = std::is_same_v<Sum, Halves>;
    constexpr int pack = Element<Left>::per_word, over = rows / 8, words = depth / (4 * pack);
    struct Part {
        Number left[over * words * pack];
        Number right[words * pack];
    };
    Part mine, parts[32];
    for (int i = 0; i < over * words * pack; ++i) mine.left[i] = Element<Left>::of(left[i / pack], i % pack);
    for (int i = 0; i < words * pack; ++i) mine.right[i] = Element<Right>::of(right[i / pack], i % pack);
    const bool all = lk_gather(0xffffffffu, &mine, parts, sizeof mine) == 0xffffffffu;

    const int lane = int(lk_lane());
    for (int element = 0; element < 2 * over; ++element) {
        const int column = lane % 4 * 2 + element % 2;
        Wide sum;
        if constexpr (in_halves) {
            sum = lk::half_value(static_cast<unsigned short>(addends[element / 2] >> 16 * (element % 2)));
        } else {
            sum = Wide(addends[element]);
        }
        for (int word = 0; word < words; ++word) {
            for (int quarter = 0; quarter < 4; ++quarter) {
                const Number* a = parts[lane / 4 * 4 + quarter].left + (element / 2 + over * word) * pack;
                const Number* b = parts[column * 4 + quarter].right + word * pack;
                for (int i = 0; i < pack; ++i) sum += Wide(a[i]) * Wide(b[i]);
            }
        }
        if constexpr (in_halves) {
            const unsigned bits = unsigned(lk::half_bits(sum)) << 16 * (element % 2);
            results[element / 2] = element % 2 ? results[element / 2] | bits : bits;
        } else if constexpr (std::is_same_v<Wide, long long>) {
            const long long most = 0x7fffffffll, least = -0x80000000ll;
            results[element] = Stored(!saturates ? sum : sum > most ? most : sum < least ? least : sum);
        } else {
            results[element] = Stored(sum);
        }
    }
    return all;
}

template <int flops, int rows, int depth, class Left, class Right, class Sum, class Word, class Stored, int sums, int lefts, int rights>
LK_INLINE void multiply(Stored (&results)[sums], const Word (&left)[lefts], const Word (&right)[rights],
                        const Stored (&addends)[sums], bool saturates) {
    constexpr int pack = Element<Left>::per_word;
    static_assert(lefts == rows / 8 * depth / (4 * pack) && rights == depth / (4 * pack), "mma: a fragment has another number of registers");
    static_assert(sums == rows / 4 / (std::is_same_v<Sum, Halves> ? 2 : 1), "mma: the sums have another number of registers");
    if (!tensor_core_multiply<flops, rows, depth, Left, Right, Sum>(results, left, right, addends, saturates)) {
        lk_assert_fail("all 32 lanes of the warp take part in mma.sync", __FILE__, __LINE__, __func__);
    }
}

}  // namespace ptx
}  // namespace lk
