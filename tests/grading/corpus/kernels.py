"""Attacks by the text of a kernel, and by the calls of ranks, on the real labs. All other answers are stubs."""
# ruff: noqa: E501 - the long lines are those of programs in strings

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from mlsys_grading.build.notebook import source_notebook, student_notebook
from mlsys_grading.lab import Lab, read_lab
from tests.conftest import ROOT

CUDA, TRITON, RANKS = "lab03_cuda_matmul", "lab05_triton", "lab07_parallelism"


@dataclass(frozen=True)
class Answered:
    """A submission to a real lab: stubs, and some answers. It deserves to pass only the tests in ``passes``.

    Attributes:
        cells: name of a solution cell -> its new source.
        own: a code cell before the others.
        passes: names of the test cells that it deserves to pass.
    """

    name: str
    lab: str
    why: str
    cells: Mapping[str, str] = field(default_factory=dict)
    own: str = ""
    passes: frozenset[str] = frozenset()

    def file(self) -> bytes:
        """Return the bytes of the notebook file."""
        notebook = json.loads(json.dumps(student_notebook(lab(self.lab))))
        by_name = {cell["metadata"].get("nbgrader", {}).get("grade_id"): cell for cell in notebook["cells"]}
        for name, text in self.cells.items():
            by_name[name]["source"] = text.strip("\n")
        if self.own:
            cell = {"cell_type": "code", "metadata": {}, "source": self.own, "outputs": [], "execution_count": None}
            notebook["cells"].insert(0, cell)
        return json.dumps(notebook).encode()


@cache
def lab(name: str) -> Lab:
    return read_lab(ROOT, name)


@cache
def source(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(source_notebook(lab(name))))
    return found


_ADD = "__global__ void vector_add(const float* a, const float* b, float* c, int n)"
_RIGHT = "int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) { c[i] = a[i] + b[i]; }"
_FORGED = '{\\"verdict\\": {\\"name\\": \\"vector_add_test\\", \\"passed\\": true, \\"error\\": null}}\\n'
_SOLVED_TOO = frozenset(("vector_add_test", "vector_add_test_traffic"))


def cuda(name: str, why: str, before: str = "", body: str = _RIGHT, whole: str = "") -> Answered:
    """Build a submission with a kernel that adds correctly unless ``before``, ``body`` or ``whole`` changes it."""
    text = whole or f"{before}\n{_ADD}\n{{\n    {body}\n}}"
    return Answered(f"CUDA: {name}", CUDA, why, {"vector_add": f"%%cuda vector_add\n{text}"})


_CALLS = {
    "system": '#include <cstdlib>\nextern "C" int system(const char*);',
    "fopen": "#include <cstdio>",
    "fork and exec": '#include <unistd.h>\nextern "C" int fork(); extern "C" int execl(const char*, const char*, ...);',
    "dlopen": '#include <dlfcn.h>\nextern "C" void* dlopen(const char*, int);',
    "exit": 'extern "C" void _exit(int); extern "C" void exit(int);',
    "write": 'extern "C" long write(int, const void*, unsigned long);',
    "mmap": 'extern "C" void* mmap(void*, unsigned long, int, int, int, long);',
    "getenv": 'extern "C" char* getenv(const char*);',
}
_BODIES = {
    "system": 'system("touch /tmp/escaped");',
    "fopen": 'fopen("/tmp/escaped", "w");',
    "fork and exec": 'if (fork() == 0) execl("/bin/sh", "sh", (char*)0);',
    "dlopen": 'dlopen("libc.so.6", 2);',
    "exit": "_exit(0); exit(0);",
    "write": f'for (int f = 3; f < 64; ++f) write(f, "{_FORGED}", {len(_FORGED) - 9});',
    "mmap": "mmap(0, 4096, 7, 0x22, -1, 0);",
    "getenv": 'c[0] = getenv("PATH")[0];',
}
_REFUSED = "a graded kernel calls nothing outside of itself but arithmetic"

KERNELS = (
    *(cuda(f"calls {name}", _REFUSED, before, _BODIES[name] + "\n    " + _RIGHT) for name, before in _CALLS.items()),
    cuda("a constructor", "nothing runs before a kernel", "__attribute__((constructor)) static void boom() { *(int*)0 = 0; }"),
    cuda("a global object", "nothing runs before a kernel", "struct S { S() { __builtin_trap(); } } s;"),
    cuda("a computed constant", "nothing runs before a kernel", "int now() { return __builtin_ia32_rdtsc(); }\nint start = now();"),
    cuda("a system call", "inline assembly could be any code", body=f'asm volatile("syscall" :: "a"(39) : "rcx", "r11", "memory");\n    {_RIGHT}'),
    cuda("assembly at file scope", "inline assembly could be any code", 'asm(".section .init_array\\n.quad boom\\n.text\\nboom: ud2\\n");'),
    cuda("a file taken in by assembly", "inline assembly could be any code", 'asm(".data\\n.globl taken\\ntaken: .incbin \\"/etc/passwd\\"\\n.text");'),
    cuda("another file", "no file of the machine's is part of a kernel", '#include "/etc/passwd"'),
    cuda("another file, by a macro", "no file of the machine's is part of a kernel", '#define WHICH "/proc/self/environ"\n#include WHICH'),
    cuda("itself, for ever", "includes have a depth", "#include __FILE__"),
    cuda("macros for the harness", "what the harness says is not the kernel's to change", "#define blockIdx fake\n#define if(x) if (true)\n#define return\n#define int long\n#define void int\n#define extern\n#define static"),
    cuda("macros for the simulator", "names of the simulator are its own", "#define lk_run_0 other\n#define lk_kernel_count 0\n#undef __global__\n#define __global__ extern \"C\""),
    cuda("pragmas", "what the compiler does is not the kernel's to change", '#pragma GCC optimize("O0")\n#pragma GCC push_options\n#pragma redefine_extname vector_add system\n#pragma weak vector_add = exit'),
    cuda("another's symbols", "names of the simulator are its own", 'extern "C" int lk_kernel_count() { return 0; }\nextern "C" void lk_run_0() {}\nint main() { return 0; }\nvoid* malloc(unsigned long) { return 0; }'),
    cuda("an attribute for a section", "inline code in another section is still code for the host", '__attribute__((section(".init_array"))) void* first = (void*)0x41414141;'),
    cuda("an indirect function", "the loader would run it", 'extern "C" void* pick() { __builtin_trap(); }\nextern "C" void picked() __attribute__((ifunc("pick")));'),
    cuda("out of its function", "a brace too many ends nothing but the kernel", whole=f"{_ADD} {{ {_RIGHT} }} }} }} }}\nint main() {{ return 0; }}\nnamespace {{ void f() {{"),
    cuda("a comment that does not end", "the cell ends where it ends", whole=f"{_ADD} {{ {_RIGHT} }}\n/*"),
    cuda("a condition that does not end", "the cell ends where it ends", whole=f"{_ADD} {{ {_RIGHT} }}\n#if 0"),
    cuda("a string that does not end", "the cell ends where it ends", whole=f'{_ADD} {{ {_RIGHT} }}\nconst char* s = R"x('),
    cuda("verdicts, printed", "what a kernel prints is no verdict", body=f'printf("{_FORGED}");'),
    cuda("verdicts, and an end", "a verdict follows from the numbers", body=f'printf("{_FORGED}");\n    __trap();'),
    cuda("a loop without end", "a launch has a deadline", body="while (true) { c[0] = c[0] + 1; }"),
    cuda("an empty loop", "a launch has a deadline, whatever the compiler makes of it", body="for (volatile int i = 0;; ++i) {}"),
    cuda("recursion without end", "a stack ends, and with it the test", "__device__ int deep(int n) { volatile int x[64]; x[0] = n; return deep(n + 1) + x[0]; }", "c[0] = deep(0);"),
    cuda("a large stack", "a stack ends, and with it the test", body="volatile float much[1 << 24];\n    for (int i = 0; i < (1 << 24); i += 512) much[i] = i;\n    c[0] = much[7];"),
    cuda("writes far outside", "every access has bounds", body="for (long i = -(1L << 40); i < (1L << 40); i += 1L << 30) c[i] = 1;"),
    cuda("writes a little outside", "every access has bounds", body="int i = blockIdx.x * blockDim.x + threadIdx.x;\n    c[i] = a[i] + b[i];\n    c[n + i] = 1; c[-1 - i] = 1;"),
    cuda("writes where its inputs are", "inputs are inputs", body=f"float* in = (float*)a;\n    {_RIGHT}\n    in[0] = 0; ((float*)b)[0] = 0;"),
    cuda("a pointer out of the air", "no address is the kernel's own but what it was given", body="*(volatile long*)0x400000 = 1; *(volatile long*)&printf = 1;"),
    cuda("the stack's neighbours", "what lies on the host's stack is not reached by what the compiler accepts", body="void** frame = (void**)__builtin_frame_address(0);\n    for (int i = 0; i < 4096; ++i) frame[i] = 0;"),
    cuda("a jump into the middle", "no address is code", body="((void (*)())(void*)c)();"),
    cuda("templates without end", "compiling has a deadline and a depth", "template <int N> struct F { enum { v = F<N + 1>::v + F<N + 2>::v }; };\nint x = F<0>::v;"),
    cuda("a constant without end", "compiling has a deadline", "constexpr long f(long n) { long s = 0; for (long i = 0; i < n; ++i) for (long j = 0; j < n; ++j) s += i ^ j; return s; }\nconstexpr long x = f(1L << 20);"),
    cuda("a billion words", "compiling has a deadline", "#define A x x x x x x x x x x\n#define B A A A A A A A A A A\n#define C B B B B B B B B B B\n#define D C C C C C C C C C C\n#define E D D D D D D D D D D\n#define F E E E E E E E E E E\n#define G F F F F F F F F F F\n#define H G G G G G G G G G G\nint H;"),
    cuda("a huge array", "the module's memory has bounds", "__device__ char much[1L << 40] = {1};"),
)  # fmt: skip

_LIE = (
    "import builtins, sys, mlsys_labkit.checks as checks\n"
    "for name in list(vars(checks)):\n"
    "    if name.startswith('expect_'): setattr(checks, name, lambda *a, **k: None)\n"
    "builtins.AssertionError = KeyError\n"
)
_GRID = "def add_grid(n, BLOCK):\n    return (-(-n // BLOCK),)\n\n\n"
_SIGNATURE = "def add(x, y, out, n, BLOCK: tl.constexpr):"


def triton(name: str, why: str, kernel: str, own: str = "") -> Answered:
    return Answered(f"Triton: {name}", TRITON, why, {"add": _GRID + kernel}, own)


def _body(*lines: str) -> str:
    return "@triton.jit\n" + _SIGNATURE + "\n" + "\n".join(f"    {line}" for line in lines)


_SIDE = "only a kernel's text leaves the student's process, and what is no kernel's is refused"
TRACED = (
    triton("imports in its body", _SIDE, _body(*_LIE.splitlines())),
    triton("calls the host", _SIDE, _body("__import__('os').system('touch /tmp/escaped')", "__import__('os')._exit(0)")),
    triton("binds what tests use", _SIDE, _body("global clean, unwritten, lk, torch", "clean = unwritten = print", "lk = torch = None")),
    triton("reaches for globals", _SIDE, _body("globals()['clean'] = lambda *a, **k: None", "globals()['lk'].checks.expect_close = print")),
    triton("patches the language", _SIDE, _body("tl.load = tl.store = lambda *a, **k: 1.0", "tl.program_id.__globals__.clear()")),
    triton("looks at frames", _SIDE, _body("import sys", "frame = sys._getframe()", "while frame:", "    frame.f_globals['expect_close'] = print", "    frame = frame.f_back")),
    triton("opens files", _SIDE, _body("open('/tmp/escaped', 'w').write('x')", "print(open('/etc/passwd').read())")),
    triton("ends the test", "an end of the test is no pass", _body("raise SystemExit(0)")),
    triton("ends the examiner", "an end of the examiner is no pass", _body("import os, signal", "os.kill(os.getpid(), signal.SIGKILL)")),
    triton("never ends", "a test has a deadline", _body("while True:", "    pass")),
    triton("a decorator with a hand", _SIDE, f"def evil(f):\n    {_LIE.splitlines()[0]}\n    return f\n\n\n@evil\n@triton.jit\n{_SIGNATURE}\n    pass"),
    triton("defaults that run", _SIDE, "@triton.jit\n" + _SIGNATURE.replace("BLOCK: tl.constexpr", "BLOCK: __import__('os')._exit(0) = exec('import os; os._exit(0)')") + "\n    pass"),
    triton("a kernel that is none", "a class with a kernel's name answers to no tracer", "class add:\n    def __class_getitem__(cls, grid): return lambda *a, **k: None"),
    triton("a kernel of another name", "the name is the test's", _body("pass").replace("def add(", "def other(") + "\n\n\nadd = other"),
    triton("tl is not tl", "the locked cells say what tl is", _body("tl.store(out, 1.0)"), own=_LIE + "import types\ntl = types.SimpleNamespace(load=print, store=print, constexpr=int)"),
)  # fmt: skip


def ranks(name: str, why: str, body: str, own: str = "", passes: tuple[str, ...] = ()) -> Answered:
    cells = {
        "tree_broadcast": f"def tree_broadcast(x, root):\n    {body}",
        "reduce_scatter": f"def ring_reduce_scatter(x):\n    {body}",
    }
    return Answered(f"ranks: {name}", RANKS, why, cells, own, frozenset(passes))


MESSAGES = (
    ranks("end the process", "a rank that dies has not answered", "import os; os._exit(0)"),
    ranks("wait for ever", "a call has a deadline", "import time; time.sleep(10**6)"),
    ranks("wait for each other", "a deadlock has a deadline", "dist.recv(x, (dist.get_rank() + 1) % dist.get_world_size()); return x"),
    ranks("send without end", "a call has a deadline, and memory has bounds", "while True: dist.send(x, (dist.get_rank() + 1) % dist.get_world_size())"),
    ranks("change the library", "patches stay in the student's process, and change no sum", "dist.get_world_size = lambda *a: 1; dist.get_rank = lambda *a: 0; return x"),
    ranks("change the kit", "the tests compare numbers of their own", "return x", own=_LIE),
    ranks("return an object", "comparisons are never the student's", "return type('Yes', (), {'__eq__': lambda *a: True, '__getattr__': lambda *a: a[0], '__len__': lambda a: 1})()"),
    ranks("raise what skips", "an error is no pass", "raise __import__('unittest').SkipTest('no') from StopIteration()"),
    ranks("call a collective", "the sum is right, and its collectives are counted", "y = x.clone(); dist.all_reduce(y); return torch.tensor_split(y, dist.get_world_size())[dist.get_rank()]"),
)  # fmt: skip

REAL = (*KERNELS, *TRACED, *MESSAGES)
