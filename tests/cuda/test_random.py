"""Random numbers in kernels: Philox and MRG32k3a against published answers, jumps against steps and linear algebra."""

from __future__ import annotations

import itertools

from mlsys_labkit.cuda import run_program

WORDS, BITS = 5, 160


def step(v: int) -> int:
    """Compute a step of Marsaglia's XORWOW without its counter; the integer holds the five words, the first lowest."""
    words = [v >> 32 * i & 0xFFFFFFFF for i in range(WORDS)]
    t = words[0] ^ (words[0] >> 2)
    last = (words[4] ^ (words[4] << 4)) ^ (t ^ (t << 1))
    return sum(word << 32 * i for i, word in enumerate([*words[1:], last & 0xFFFFFFFF]))


def image(columns: list[int], v: int) -> int:
    result = 0
    for bit in range(BITS):
        if v >> bit & 1:
            result ^= columns[bit]
    return result


def run(body: str) -> list[list[int]]:
    source = f"""#include <cstdio>
#include <curand_kernel.h>
__global__ void k() {{ {body} }}
int main() {{ k<<<1, 1>>>(); cudaDeviceSynchronize(); }}"""
    output = run_program(source, backend="simulator").stdout
    return [[int(word, 16) for word in line.split()] for line in output.splitlines()]


def test_philox_gives_its_published_answers() -> None:
    # Random123, tests/kat_vectors, philox4x32-10: counter, key, answer.
    vectors = [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ]
    lines = [
        f"{{ curandStatePhilox4_32_10_t s = {{{{0x{', 0x'.join(counter.split())}}}, {{0x{', 0x'.join(key.split())}}}}};"
        'lk::random::philox_rounds(s); printf("%x %x %x %x\\n", s.output[0], s.output[1], s.output[2], s.output[3]); }'
        for counter, key, _ in vectors
    ]
    assert run("".join(lines)) == [[int(word, 16) for word in answer.split()] for _, _, answer in vectors]


def test_an_offset_is_as_many_steps() -> None:
    for kind in ("curandStateXORWOW_t", "curandStatePhilox4_32_10_t", "curandStateMRG32k3a_t"):
        body = f"""{kind} far, near;
        curand_init(5, 3, 1003, &far); curand_init(5, 3, 0, &near);
        for (int i = 0; i < 1003; ++i) curand(&near);
        for (int i = 0; i < 9; ++i) printf("%x %x\\n", curand(&far), curand(&near));"""
        pairs = run(body)
        assert len(pairs) == 9
        assert all(one == other for one, other in pairs)


def test_subsequences_are_2_to_the_67_steps_apart() -> None:
    columns = [step(1 << bit) for bit in range(BITS)]
    for _ in range(67):
        columns = [image(columns, column) for column in columns]
    body = """curandStateXORWOW_t s;
    for (int subsequence = 0; subsequence < 4; ++subsequence) { curand_init(99, subsequence, 0, &s);
    printf("%x %x %x %x %x\\n", s.v[0], s.v[1], s.v[2], s.v[3], s.v[4]); }"""
    states = [sum(word << 32 * i for i, word in enumerate(words)) for words in run(body)]
    assert len(set(states)) == 4
    assert [image(columns, state) for state in states[:-1]] == states[1:]


def test_mrg32k3a_gives_its_published_answer() -> None:
    # L'Ecuyer et al., "An object-oriented random-number package with many long streams and substreams" (2002):
    # the first number of the stream whose seed is six times 12345 is 0.127011122046577.
    output = run_program(
        """#include <cstdio>
        #include <curand_kernel.h>
        __global__ void k() {
          curandStateMRG32k3a s;
          curand_init(0, 0, 0, &s);
          printf("%.15f", curand_uniform_double(&s));
        }
        int main() { k<<<1, 1>>>(); cudaDeviceSynchronize(); }""",
        backend="simulator",
    ).stdout
    assert output == "0.127011122046577"


def test_subsequences_of_mrg32k3a_are_2_to_the_76_steps_apart() -> None:
    rows = {4294967087: (-810728, 1403580, 0), 4294944443: (-1370589, 0, 527612)}

    def jumped(state: tuple[int, ...], modulus: int) -> tuple[int, ...]:
        matrix = [[0, 1, 0], [0, 0, 1], list(rows[modulus])]
        for _ in range(76):
            columns = list(zip(*matrix, strict=True))
            matrix = [
                [sum(a * b for a, b in zip(row, column, strict=True)) % modulus for column in columns] for row in matrix
            ]
        return tuple(sum(a * b for a, b in zip(row, state, strict=True)) % modulus for row in matrix)

    body = """curandStateMRG32k3a_t s;
    for (int subsequence = 0; subsequence < 3; ++subsequence) { curand_init(99, subsequence, 0, &s);
    printf("%x %x %x %x %x %x\\n", s.first[0], s.first[1], s.first[2], s.second[0], s.second[1], s.second[2]); }"""
    states = run(body)
    for before, after in itertools.pairwise(states):
        assert jumped(tuple(before[:3]), 4294967087) == tuple(after[:3])
        assert jumped(tuple(before[3:]), 4294944443) == tuple(after[3:])


def test_the_kernels_header_brings_the_hosts() -> None:
    source = """#include <cstdio>
    #include <curand_kernel.h>
    int main() { curandGenerator_t g; std::printf("%d", curandCreateGenerator(&g, CURAND_RNG_PSEUDO_DEFAULT)); }"""
    assert run_program(source, backend="simulator").stdout == "0"
