"""Reading C++ without a parser: tokens join to the text, agree with gcc's, and no line moves."""

from __future__ import annotations

import re
import subprocess

import pytest
from hypothesis import given, settings, strategies as st

from mlsys_labkit.cuda import CudaCompileError
from mlsys_labkit.cuda.source.kernels import choose_kernels
from mlsys_labkit.cuda.source.rewrite import rewrite
from mlsys_labkit.cuda.source.shared import dynamic_arrays
from mlsys_labkit.cuda.source.source import Source
from mlsys_labkit.cuda.source.statements import statement_end
from mlsys_labkit.cuda.source.stub import CPP_STUB, stub_line
from mlsys_labkit.cuda.source.tokens import tokenize

# Pieces whose meaning depends on what stands around them.
PIECES = st.sampled_from(
    [
        '"',
        "'",
        "\\",
        "\\\n",
        "\n",
        "//",
        "/*",
        "*/",
        "#",
        "#if 0\n",
        "\n#endif\n",
        "\n#else\n",
        "\r\n",
        " ",
        'R"(',
        ')"',
        'R"x(',
        ')x"',
        'u8"',
        "L'",
        "1'000",
        "0x1p+3",
        ".5e-3f",
        "a",
        "__global__",
        "_x1",
        "$y",
        "é",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        "<<<",
        ">>>",
        "::",
        "->",
        "##",
        "%:",
        ";",
        ",",
        "=",
        "+",
        "?",
        "\t",
        "\v",
        "\n#pragma unroll\n",
        "for (int i = 0; i < 4; ++i)",
        "extern __shared__ float s[];",
        "namespace n {",
    ]
)
TEXTS = st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=60)


@given(TEXTS)
@settings(max_examples=500, deadline=None)
def test_tokens_join_to_the_text(text: str) -> None:
    tokens = tokenize(text)
    assert "".join(token.text for token in tokens) == text
    for token in tokens:
        assert token.text == text[token.start : token.end]
        assert token.line == text.count("\n", 0, token.start) + 1


@given(TEXTS)
@settings(max_examples=300, deadline=None)
def test_no_source_stops_the_readers_and_no_line_moves(text: str) -> None:
    source = Source(text)
    assert len(source.kernels) <= text.count("__global__")
    dynamic_arrays(source)
    assert rewrite(source).count("\n") == text.count("\n")
    code = source.code
    ends = [statement_end(source, begin) for begin in range(len(code))]
    assert all(begin < end <= len(code) or code[begin].text == "}" for begin, end in enumerate(ends))


# What gcc's own preprocessor makes of a text is the truth about comments and strings.
LITERALS = st.sampled_from(
    [
        '"a // b"',
        '"/* no */"',
        '"\\""',
        "'\"'",
        "'\\''",
        'R"(a " b)"',
        'R"q(x)" y)q"',
        'u8"é"',
        "'\\\\'",
        '"\\\\"',
        "1'000",
    ]
)
COMMENTS = st.sampled_from(["// it's\n", '/* "open */', "// a \\\n b\n", "/* // */", "//\n", "/**/"])
WORDS = st.sampled_from(["int", "x", "=", "+", ";", "(", ")", "0x1F", "1e+3", ".5f", "a1", "{", "}", "\n"])


@given(st.lists(LITERALS | COMMENTS | WORDS, min_size=1, max_size=25))
@settings(max_examples=60, deadline=None)
def test_comments_and_strings_end_where_gcc_ends_them(pieces: list[str]) -> None:
    text = " ".join(pieces)
    mine = [token.text for token in tokenize(text) if token.kind not in ("comment", "space")]
    said = subprocess.run(
        ["g++", "-std=gnu++17", "-E", "-P", "-x", "c++", "-w", "-"], input=text, capture_output=True, text=True
    )
    theirs = [token.text for token in tokenize(said.stdout) if token.kind != "space"]
    assert said.returncode == 0
    assert "".join(mine) == "".join(theirs)


FOUND: list[tuple[str, list[str]]] = [
    ("__global__ void f() {}", ["f"]),
    ("// __global__ void f() {}\n/* __global__ void g() {} */ __global__ void h() {}", ["h"]),
    ('const char* s = "__global__ void f() {}"; __global__ void h() {}', ["h"]),
    ('auto s = R"(__global__ void f() {})"; __global__ void h() {}', ["h"]),
    ("__global__ static void f(int* p) {}", ["f"]),
    ("static __global__ void f(int* p) {}", ["f"]),
    ("static inline __global__ void f(int* p) {}", ["f"]),
    ('extern "C" __global__ void f() {}', ["f"]),
    ('extern "C" { __global__ void f() {} }', ["f"]),
    ("__global__ void __launch_bounds__(16 * (2 + 2)) f(int* p) {}", ["f"]),
    ("__launch_bounds__(256, (1 + (1))) __global__ void f(int* p) {}", ["f"]),
    ("void __global__ f() {}", ["f"]),
    ("__global__ void\nf\n(int a,\n int b)\n{\n}", ["f"]),
    ("namespace a { namespace b::c { __global__ void f() {} } __global__ void g() {} }", ["a::b::c::f", "a::g"]),
    ("namespace { __global__ void f() {} }", ["f"]),
    ("namespace short_name = a::b; __global__ void f() {}", ["f"]),
    ("using namespace a; struct S { int x; }; __global__ void f(S s) {}", ["f"]),
    ("__global__ void f(int); __global__ void g() {}", ["g"]),
    ("__global__ void f(int); __global__ void f(int a) {}", ["f"]),
    ("#if 0\n__global__ void f() {}\n#else\n__global__ void g() {}\n#endif", ["g"]),
    ("#if 0\n#if 1\n#endif\n__global__ void f() {}\n#elif 1\n__global__ void g() {}\n#endif", ["g"]),
    ("__global__ void f(int (*op)(int), int n = (1 + 2)) {}", ["f"]),
    ("__global__ __attribute__((noinline)) void f() {}", ["f"]),
    ("[[maybe_unused]] __global__ void f() {}", ["f"]),
    ("template <typename T, int N = (1 > 0)> __global__ void f(T* p) {}", ["f"]),
    ("#define MAKE(n) __global__ void n() {}\nMAKE(f)", []),
    ("int x = 1'000; char c = '\"'; __global__ void f() {}", ["f"]),
]


@pytest.mark.parametrize(("source", "names"), FOUND, ids=[source[:50] for source, _ in FOUND])
def test_kernels_are_found(source: str, names: list[str]) -> None:
    assert [kernel.name for kernel in Source(source).kernels] == names


def test_a_kernel_s_line_and_parameters() -> None:
    source = "\r\n\r\ntemplate <int N>\r\n__global__ void f(float* a, /* n */ int n)\r\n{ }\r\n"
    (kernel,) = Source(source).kernels
    assert (kernel.line, kernel.parameters, kernel.template) == (4, "float* a, /* n */ int n", "int N")


SIMPLE = Source("namespace q { __global__ void f() {} } template <class T, int N> __global__ void g(T*) {}").kernels


def test_kernels_are_chosen_by_name() -> None:
    assert choose_kernels(SIMPLE, None) == ("q::f",)
    assert (
        choose_kernels(SIMPLE, "f") == choose_kernels(SIMPLE, "q::f") == choose_kernels(SIMPLE, "::q::f") == ("q::f",)
    )
    assert choose_kernels(SIMPLE, "g<float, 4>") == ("g<float, 4>",)
    assert choose_kernels((), "anything<3>") == ("anything<3>",)  # a macro may write it


@pytest.mark.parametrize(
    ("name", "said"),
    [("h", "no kernel called 'h'; it defines: q::f, g"), ("g", "such as g<float, 16>")],
)
def test_a_kernel_that_cannot_be_chosen(name: str, said: str) -> None:
    with pytest.raises(CudaCompileError, match=re.escape(said)):
        choose_kernels(SIMPLE, name)


def test_no_kernel_at_all() -> None:
    with pytest.raises(CudaCompileError, match="defines no kernel"):
        choose_kernels(Source("int main() {}").kernels, None)
    with pytest.raises(CudaCompileError, match="template <int N>"):
        choose_kernels(Source("template <int N> __global__ void f() {}").kernels, None)


SHARED: list[tuple[str, tuple[str, ...]]] = [
    ("extern __shared__ float s[];", ("s",)),
    ("extern __shared__ float s[], t[];", ("s", "t")),
    ("extern __shared__ float s[][4];", ("s",)),
    ("extern __shared__ __align__(16) unsigned char raw[];", ("raw",)),
    ("extern __shared__ alignas(16) float4 s[];", ("s",)),
    ("__shared__ extern volatile int s[];", ("s",)),
    ("extern volatile __shared__ int s[];", ("s",)),
    ("extern __shared__ Pair<float, 2> s[];", ("s",)),
    ("__global__ void f() { extern __shared__ int s[]; }", ("s",)),
    ("namespace a { namespace b { __global__ void f() { extern __shared__ int s[]; } } }", ("_ZN1a1b1sE",)),
    ("namespace { extern __shared__ int s[]; }", ("_ZN12_GLOBAL__N_11sE", "_ZN12_GLOBAL__N_1L1sE")),
    ("__shared__ float s[4]; extern float t[];", ()),
    ("// extern __shared__ float s[];", ()),
    ("extern __shared__ float s[]; void f() { extern __shared__ float s[]; }", ("s",)),
]


@pytest.mark.parametrize(("source", "names"), SHARED, ids=[source[:50] for source, _ in SHARED])
def test_dynamic_arrays_are_found(source: str, names: tuple[str, ...]) -> None:
    assert dynamic_arrays(Source(source)) == names


LOOP = "for (int i = 0; i < {0}; ++i) x[i] = i;"
UNROLLED: list[tuple[str, list[int]]] = [
    ("#pragma unroll\n" + LOOP.format(8), [8]),
    ("#pragma unroll 4\n" + LOOP.format(8), [4]),
    ("#pragma unroll(2)\n" + LOOP.format(8), [2]),
    ("#pragma  unroll  3 // three\n" + LOOP.format(9), [3]),
    ("\t# pragma unroll\n" + LOOP.format(5), [5]),
    ("#pragma unroll\r\n" + LOOP.format(5) + "\r\n", [5]),
    ("#pragma \\\nunroll\n" + LOOP.format(5), [5]),
    ("#define N 6\n#pragma unroll\n" + LOOP.format("N"), [6]),
    ("constexpr int N = 6;\n#pragma unroll N\n" + LOOP.format(12), [6]),
    ("#pragma unroll N * 2\n" + LOOP.format(12), [12]),
    ("#pragma unroll\n" + LOOP.format("n"), [16]),
    ("#pragma unroll 100\n" + LOOP.format(4), [4]),
    ('_Pragma("unroll") ' + LOOP.format(7), [7]),
    ('_Pragma("unroll 2") ' + LOOP.format(7), [2]),
    ('#define UNROLL _Pragma("unroll")\nUNROLL ' + LOOP.format(7), [8]),
    ("#pragma unroll\nfor (int i = 16; i <= 64; i += 16) x[i] = i;", [4]),
    ("#pragma unroll\nwhile (n--) x[n] = 1;", [16]),
    ("#pragma unroll\nint y = 3;", []),
    ("#pragma unroll\n#pragma unroll 2\n" + LOOP.format(8), [2]),
    ("// #pragma unroll\n" + LOOP.format(8), []),
    ('const char* s = "#pragma unroll";\n' + LOOP.format(8), []),
]


@pytest.mark.parametrize(("source", "factors"), UNROLLED, ids=[source[:40] for source, _ in UNROLLED])
def test_loops_are_unrolled(source: str, factors: list[int]) -> None:
    text = rewrite(Source(source))
    assert [int(factor) for factor in re.findall(r"GCC unroll (\d+)", text)] == factors
    assert text.count("\n") == source.count("\n")


def test_nested_loops_share_a_budget() -> None:
    """64 x 64 x 64 products of a few tokens each: nvcc takes a second for them, g++ minutes."""
    loops = "".join(f"#pragma unroll\nfor (int {i} = 0; {i} < 64; ++{i})\n" for i in "abc")
    factors = [
        int(factor) for factor in re.findall(r"GCC unroll (\d+)", rewrite(Source(f"{loops}x[a] += y[b] * z[c];")))
    ]
    assert len(factors) == 3
    assert factors[2] == 64, "the innermost loop is unrolled first"
    assert factors[0] * factors[1] * factors[2] * 16 <= 10_000


def test_register_tiles_are_unrolled_whole() -> None:
    """An 8 x 8 tile of products stays in registers only if both loops go."""
    outer, inner = (f"#pragma unroll\nfor (int {i} = 0; {i} < 8; ++{i})\n" for i in "ij")
    tile = outer + inner + "acc[i][j] += a[i] * b[j];"
    assert re.findall(r"GCC unroll (\d+)", rewrite(Source(tile))) == ["8", "8"]


def test_unsolved_cells() -> None:
    assert stub_line("__global__ void f() {\n    # YOUR CODE HERE\n    raise NotImplementedError()\n}") == 3
    assert stub_line("# YOUR CODE HERE\nraise NotImplementedError('write it')") == 2
    assert stub_line(CPP_STUB) == 2
    assert not stub_line(
        '__global__ void f() { /* raise NotImplementedError() */ printf("raise NotImplementedError"); }'
    )
    assert not stub_line("// YOUR CODE HERE, in place of the next line\n__global__ void f() {}")
