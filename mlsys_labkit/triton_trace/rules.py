"""The allow-list of a kernel's source, so that interpreting a kernel can only do arithmetic on its arrays.

Two barriers protect the worker: this list, and a namespace without built-in functions that holds only the names of the
list. Everything refused here is refused by Triton's compiler too, or has no meaning without a GPU.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from mlsys_labkit.triton_trace.errors import RefusedSourceError, TritonUnsolvedError
from mlsys_labkit.triton_trace.gluon import vocabulary as gluon
from mlsys_labkit.triton_trace.libdevice_names import LIBDEVICE
from mlsys_labkit.triton_trace.names import Name, dotted_path, name_set
from mlsys_labkit.triton_trace.source import Function, KernelSource

MATH = name_set("""
    abs ceil cos div_rn erf exp exp2 fdiv floor fma log log2 rsqrt sin sqrt sqrt_rn umulhi
""")
LANGUAGE = MATH | name_set("""
    constexpr_type tensor tuple tensor_descriptor dot_scaled map_elementwise
    int1 pi32_t int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64
    float8e4b15 float8e4nv float8e5
    PropagateNan add advance arange argmax argmin associative_scan assume atomic_add atomic_and atomic_cas atomic_load
    atomic_max atomic_min atomic_or atomic_store atomic_xchg atomic_xor broadcast broadcast_to cast cat cdiv clamp
    constexpr cumprod cumsum debug_barrier device_assert device_print dot expand_dims flip full gather histogram
    inline_asm_elementwise interleave join load load_tensor_descriptor make_block_ptr make_tensor_descriptor math max
    max_constancy max_contiguous maximum min minimum mul multiple_of num_programs pair_uniform_to_normal permute
    philox philox_impl pointer_type program_id rand rand4x randint randint4x randn randn4x range ravel reduce
    reduce_or reshape sigmoid softmax sort split squeeze static_assert static_print static_range store
    store_tensor_descriptor sub sum swizzle2d topk trans uint_to_uniform_float unsqueeze view where xor_sum zeros
    zeros_like
""")
TOP = frozenset(("cdiv", "next_power_of_2", "language"))

_METHODS = name_set("""
    ALL NONE abs advance argmax argmin associative_scan atomic_add atomic_and atomic_cas atomic_max atomic_min
    atomic_or atomic_xchg atomic_xor broadcast_to cast cdiv ceil cos cumprod cumsum erf exp exp2 expand_dims flip
    floor gather histogram load log log2 logical_and logical_or max min permute ravel reduce reduce_or reshape rsqrt
    item scatter
    sigmoid sin softmax sort split sqrt sqrt_rn squeeze store sum to topk trans unsqueeze view xor_sum
""")
_PROPERTIES = name_set("""
    T block_shape dtype element_ty exponent_bias fp_mantissa_width int_bitwidth int_signedness is_bf16 is_block
    is_bool is_floating is_fp16 is_fp32 is_fp64 is_fp8 is_int is_int_signed is_int_unsigned is_ptr
    is_standard_floating numel primitive_bitwidth scalar shape strides type value
""")
_MEMBERS = _METHODS | _PROPERTIES | gluon.MEMBERS
_EXTRA = "triton.language.extra"
DEPENDENT_LAUNCH = name_set("gdc_wait gdc_launch_dependents")  # nothing to wait for: launches follow one another
_MODULES = {
    "triton": TOP,
    "triton.language": LANGUAGE | name_set("extra random"),
    "triton.language.math": MATH,
    "triton.language.random": LANGUAGE,
    _EXTRA: name_set("cuda libdevice"),
    f"{_EXTRA}.cuda": DEPENDENT_LAUNCH | name_set("libdevice globaltimer num_threads num_warps smid"),
    f"{_EXTRA}.libdevice": LIBDEVICE,
    f"{_EXTRA}.cuda.libdevice": LIBDEVICE,
    **gluon.MODULES,
}
KINDS = name_set("tensor tensor_descriptor")  # which a kernel may ask about, but not make
KNOWN = frozenset().union(*_MODULES.values())
ATTRIBUTES = KNOWN | _MEMBERS

_COMPILED = name_set(
    "language math random extra cuda libdevice gdc_wait gdc_launch_dependents globaltimer smid num_threads num_warps"
)

_ALLOWED = tuple(
    getattr(ast, name)
    for name in name_set("""
    FunctionDef arguments arg Return Assign AugAssign AnnAssign For While If Assert Expr Pass BoolOp BinOp UnaryOp
    IfExp Compare Call keyword Constant Attribute Subscript Name List Tuple Slice JoinedStr FormattedValue
    ListComp comprehension expr_context boolop operator unaryop cmpop
""")
)
_ADVICE: dict[str, tuple[type[ast.AST], ...]] = {
    "import at the top of the cell": (ast.Import, ast.ImportFrom),
    "write a function under @triton.jit": (ast.Lambda,),
    "write a loop over tl.static_range": (ast.GeneratorExp, ast.SetComp, ast.DictComp),
    "a GPU has no exceptions": (ast.Try,),
    "a GPU has no exceptions; use tl.device_assert": (ast.Raise,),
    "write the statements themselves": (ast.With, ast.AsyncWith),
    "a kernel passes results through its arrays": (ast.Global, ast.Nonlocal),
    "put the condition into while": (ast.Break,),
    "put the rest of the loop under if": (ast.Continue,),
    "assign on a line of its own": (ast.NamedExpr,),
    "leave it out": (ast.Delete,),
    "write every argument": (ast.Starred,),
    "use several variables": (ast.Dict,),
    "use a tuple": (ast.Set,),
    "a kernel returns nothing": (ast.Yield, ast.YieldFrom),
    "a kernel waits for nothing": (ast.Await,),
    "a kernel is one function": (ast.ClassDef,),
    "write def": (ast.AsyncFunctionDef,),
    "write for": (ast.AsyncFor,),
    "use if": (ast.Match,),
    "use tl.dot": (ast.MatMult,),
}
_INSTEAD = {node: advice for advice, nodes in _ADVICE.items() for node in nodes}
_FORBIDDEN_OPERATORS = (ast.MatMult, ast.NotIn, ast.In)
_FREE_TEXT = frozenset(("static_print", "static_assert", "device_assert"))


def names_of(module: str) -> frozenset[str]:
    """Return the names of a module that a kernel may use."""
    return _MODULES.get(module, frozenset())


def check_rules(source: KernelSource) -> None:
    """Raise RefusedSourceError, with the first line that is not allowed, unless every function passes.

    A function that says ``raise NotImplementedError`` raises TritonUnsolvedError, before anything else is checked.

    Example:
        >>> import triton
        >>> @triton.jit
        ... def kernel(x):
        ...     print(x.__class__)
        >>> check_rules(KernelSource.of(kernel))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        mlsys_labkit.triton_trace.errors.RefusedSourceError: ...line 3: .__class__ is no attribute of a block ...
    """
    require_solved(source)
    for function in source.functions:
        for line, reason in violations(function, source.fields):
            shown = function.line_text(line)
            place = f"{function.place} " if function.place else ""
            raise RefusedSourceError(f"{place}line {line}: {reason}{f'  [{shown}]' if shown else ''}")


def check_compiled(source: KernelSource) -> None:
    """Raise RefusedSourceError if compiling a function could run Python other than Triton's own.

    Triton's compiler calls what it finds: ``tl.core.builtins.open`` would open a file.
    """
    import triton.language as tl

    public = {name for name in dir(tl) if type(getattr(tl, name)).__name__ != "module"}
    allowed = {one for one in ATTRIBUTES.union(public, source.fields, _COMPILED) if not one.startswith("_")}
    for function in source.functions:
        node = ast.parse(function.text).body[0]
        paths = {path for path in function.names if "." in path}
        parts = [one for part in getattr(node, "body", []) for one in ast.walk(part)]
        known = {id(each) for one in parts if dotted_path(one) in paths for each in ast.walk(one)}  # type: ignore[arg-type]
        for one in parts:
            name = one.attr if isinstance(one, ast.Attribute) and id(one) not in known else None
            if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id in ("getattr", "hasattr"):
                given = one.args[1] if len(one.args) > 1 else None
                name = str(given.value) if isinstance(given, ast.Constant) else "a computed name"
            imports = function.constant and isinstance(one, (ast.Import, ast.ImportFrom))
            if imports or (name is not None and name not in allowed):
                line = function.first_line + getattr(one, "lineno", 1) - 1
                raise RefusedSourceError(f"{function.place} line {line}: .{name} is nothing that a kernel may use")


def require_solved(source: KernelSource) -> None:
    """Raise TritonUnsolvedError if a function still says ``raise NotImplementedError``."""
    for function in source.functions:
        for number, line in enumerate(function.text.splitlines(), function.first_line):
            if line.strip().startswith("raise NotImplementedError"):
                place = f" of {function.place}" if function.place else ""
                raise TritonUnsolvedError(
                    f"{function.name} is not written yet: line {number}{place} says so; write the kernel, "
                    "delete that line, and run its cell and this one again"
                )


def violations(function: Function, fields: Collection[str] = ()) -> Iterator[tuple[int, str]]:
    """Yield line and reason of everything that one function may not contain.

    Args:
        fields: names of the fields of named tuples.
    """
    try:
        tree = ast.parse(function.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        yield function.first_line, f"it is no Python: {error}"
        return
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef) or tree.body[0].name != function.name:
        yield function.first_line, f"expected one function, {function.name}"
        return
    for parameter in function.parameters:
        if parameter.default is not None and parameter.default.kind not in ("constant", "language", "layout"):
            yield function.first_line, f"{parameter.name} has {parameter.default.value}"
    yield from _Reader(function, tree.body[0], fields).all()


class _Reader:
    def __init__(self, function: Function, node: ast.FunctionDef, fields: Collection[str]) -> None:
        self._function = function
        self._node = node
        self._fields = fields
        self._texts = _messages(node)
        self._bound = set(_bound_in_comprehensions(node))
        stored = {one.id for one in _stored(node) if id(one) not in self._bound}
        self._local = {*stored, *(one.name for one in function.parameters)}
        self._optional = self._of_constant_branches()
        self._paths = {id(one): path for one in ast.walk(node) if (path := self._path(one))}
        paths = (one for one in ast.walk(node) if id(one) in self._paths)
        self._known = {id(part) for one in paths for part in ast.walk(one) if part is not one}
        self._known |= {id(part) for one in _raised_in_branches(node) for part in ast.walk(one)}
        calls = (one for one in ast.walk(node) if isinstance(one, ast.Call))
        self._spread = {id(one) for call in calls for one in call.args if _is_spread(one)}

    def _path(self, node: ast.AST) -> str:
        """Return the path of a name in another module, "" for other expressions."""
        path = dotted_path(node) if isinstance(node, ast.Attribute) else ""
        return path if path in self._function.names and path.partition(".")[0] not in self._local else ""

    def all(self) -> Iterator[tuple[int, str]]:
        if getattr(self._node, "type_params", None):
            yield self._function.first_line, "a kernel has no type parameters"
        body = [node for part in self._node.body for node in ast.walk(part)]
        for node in body:
            line = getattr(node, "lineno", None)
            for reason in self._reasons(node):
                yield (line or 1) + self._function.first_line - 1, reason
        used = {one.id for one in ast.walk(self._node) if isinstance(one, ast.Name)}
        for name in used | self._local | {self._function.name}:
            if name.startswith(("_lk_", "__")) and (name != "__init__" or not self._function.constant):
                yield self._function.first_line, f"{name}: choose a name that does not begin with {name[:2]}"

    def _of_constant_branches(self) -> set[int]:
        """Return the ids of the nodes in branches that constants choose: the compiler does not read those not taken."""
        constants = {one.name for one in self._function.parameters if one.constexpr}
        constants |= {name for name, one in self._function.names.items() if one.kind == "constant"}
        found = set()
        for one in ast.walk(self._node):
            if isinstance(one, (ast.If, ast.IfExp)) and _names_in(one.test) and _names_in(one.test) <= constants:
                branches = one.body + one.orelse if isinstance(one, ast.If) else [one.body, one.orelse]
                found |= {id(part) for branch in branches for part in ast.walk(branch)}
        return found

    def _reasons(self, node: ast.AST) -> Iterator[str]:
        if id(node) in self._known or id(node) in self._spread:
            return  # a part of the name of something in another module, or of a raise, which rewrite.py leaves out
        for one in [*getattr(node, "ops", ()), getattr(node, "op", None)]:  # an operator itself has no line
            if isinstance(one, _FORBIDDEN_OPERATORS):
                yield f"a kernel has no {type(one).__name__}; {_INSTEAD.get(type(one), 'compare numbers')}"
        if isinstance(node, _FORBIDDEN_OPERATORS):
            return
        if not isinstance(node, _ALLOWED) or isinstance(node, ast.FunctionDef):
            yield f"a kernel cannot contain {_word(node)}; {_INSTEAD.get(type(node), 'Triton does not compile it')}"
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and not self._function.constant:
            index = ast.unparse(node.slice)
            to = f"{ast.unparse(node.value)} + {index if index.isidentifier() else f'({index})'}"
            yield f"a pointer has no []; store with tl.store({to}, value, mask=...), and load with tl.load"
        elif isinstance(node, ast.ListComp) and (len(node.generators) > 1 or node.generators[0].ifs):
            yield "a comprehension in a kernel has one for, and no if"
        elif isinstance(node, ast.Call):
            yield from self._call(node)
        elif isinstance(node, ast.Name):
            yield from self._name(node)
        elif isinstance(node, ast.Attribute):
            yield from self._attribute(node)
        elif isinstance(node, ast.Compare) and len(node.ops) > 1:
            yield "several comparisons in a row; write (a < b) & (b < c)"
        elif isinstance(node, ast.Assign) and len(node.targets) > 1:
            yield "several assignments in a row; write one a line"
        elif isinstance(node, (ast.For, ast.While)) and node.orelse:
            yield f"a {_word(node)} has no else in a kernel"
        elif isinstance(node, ast.For):
            yield from self._loop(node)
        elif isinstance(node, ast.JoinedStr) and id(node) not in self._texts:
            yield "an f-string outside tl.static_print and messages"
        elif isinstance(node, ast.FormattedValue) and not isinstance(node.value, (ast.Name, ast.Constant)):
            yield "an f-string of more than names"
        elif isinstance(node, ast.keyword) and (node.arg is None or node.arg.startswith("_")):
            yield f"{node.arg or '**'}: not an argument of a kernel's to give"
        elif isinstance(node, ast.Constant) and isinstance(node.value, (bytes, complex)):
            yield f"a constant of type {type(node.value).__name__}"

    def _call(self, node: ast.Call) -> Iterator[str]:
        if isinstance(node.func, ast.Attribute) and node.func.attr in KINDS:
            yield f"tl.{node.func.attr} is a kind for isinstance; a kernel makes none itself"
        elif isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr"):
            for name in (one.value for one in node.args[1:2] if isinstance(one, ast.Constant)):
                if name not in ATTRIBUTES:
                    yield f".{name!s} is no attribute of a block that a kernel may use"

    def _name(self, node: ast.Name) -> Iterator[str]:
        if node.id in self._local or id(node) in self._bound or not isinstance(node.ctx, ast.Load):
            return
        yield from self._meant(node, node.id)

    def _meant(self, node: ast.AST, path: str) -> Iterator[str]:
        """Yield why a name or a name in another module may not be used."""
        meaning = self._function.names.get(path, Name("refused", f"{path} is not defined"))
        if id(node) in self._optional and meaning.kind in ("refused", "language", "module"):
            return  # language.py refuses its use, if the branch is taken
        if meaning.kind == "refused":
            yield str(meaning.value)
        elif meaning.kind == "language":
            module, _, name = str(meaning.value).rpartition(".")
            if name not in _MODULES.get(module, ()):
                yield f"{path} is not interpreted{f': {gluon.ABSENT}' if 'blackwell' in module else ''}"
        elif meaning.kind == "module" and meaning.value not in _MODULES:
            yield f"{path}: {meaning.value} is not interpreted"
        elif meaning.kind not in ("module", "function", "constant", "record", "layout", "aggregate", "python"):
            yield f"{path} is not known"

    def _attribute(self, node: ast.Attribute) -> Iterator[str]:
        if not isinstance(node.ctx, ast.Load):
            own = self._function.name == "__init__" and getattr(node.value, "id", "") == "self"
            if not own or node.attr not in self._fields:
                yield f".{node.attr} = ...: a kernel sets no attributes"
            return
        if id(node) in self._paths:
            yield from self._meant(node, self._paths[id(node)])
            return
        module = self._module(node.value)
        if module is None:
            if isinstance(node.value, ast.Name) and self._refused(node.value):
                yield from self._name(node.value)
            elif node.attr not in _MEMBERS and (node.attr not in self._fields or node.attr.startswith("_")):
                yield f".{node.attr} is no attribute of a block that a kernel may use"
        elif node.attr not in _MODULES[module] and (node.attr.startswith("_") or id(node) not in self._optional):
            yield f"{module.replace('triton.language', 'tl')}.{node.attr} is not interpreted"

    def _refused(self, node: ast.Name) -> bool:
        meaning = self._function.names.get(node.id)
        return node.id not in self._local and meaning is not None and meaning.kind == "refused"

    def _module(self, node: ast.expr) -> str | None:
        """Return the module that an expression names, or None."""
        if isinstance(node, ast.Name) and node.id not in self._local:
            meaning = self._function.names.get(node.id)
            return meaning.value if meaning and meaning.kind == "module" and meaning.value in _MODULES else None
        if id(node) in self._paths:
            meaning = self._function.names[self._paths[id(node)]]
            return meaning.value if meaning.kind == "module" and meaning.value in _MODULES else None
        if isinstance(node, ast.Attribute):
            path = f"{self._module(node.value)}.{node.attr}"
            return path if path in _MODULES else None
        return None

    def _loop(self, node: ast.For) -> Iterator[str]:
        called = node.iter.func if isinstance(node.iter, ast.Call) else None
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name not in ("range", "static_range") and not self._function.constant:
            yield "a for loop goes over range, tl.range or tl.static_range"


def _stored(node: ast.AST) -> Iterator[ast.Name]:
    return (one for one in ast.walk(node) if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load))


def _bound_in_comprehensions(node: ast.AST) -> Iterator[int]:
    """Yield the ids of the variables of comprehensions, which mean nothing outside of them."""
    for one in ast.walk(node):
        if isinstance(one, ast.ListComp):
            targets = [name for each in one.generators for name in _stored(each.target)]
            names = {name.id for name in targets}
            inside = (name for name in ast.walk(one.elt) if isinstance(name, ast.Name) and name.id in names)
            yield from (id(name) for name in (*targets, *inside))


def _raised_in_branches(node: ast.AST) -> Iterator[ast.Raise]:
    """Yield what branches raise: the compiler refuses it only if it reads that branch."""
    for one in ast.walk(node):
        if isinstance(one, ast.If):
            inside = (part for each in (*one.body, *one.orelse) for part in ast.walk(each))
            yield from (part for part in inside if isinstance(part, ast.Raise))


def _is_spread(argument: ast.expr) -> bool:
    """Return whether an argument is ``*values``; rewrite.py lets ``values`` be a tuple only."""
    return isinstance(argument, ast.Starred) and isinstance(argument.value, (ast.Name, ast.Attribute))


def _names_in(test: ast.expr) -> set[str]:
    return {one.id for one in ast.walk(test) if isinstance(one, ast.Name)}


def _messages(node: ast.FunctionDef) -> set[int]:
    """Return the ids of the f-strings in messages and prints, which do not compute anything."""
    found = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Assert) and one.msg:
            found.add(id(one.msg))
        elif isinstance(one, ast.Call) and getattr(one.func, "attr", "") in _FREE_TEXT:
            found |= {id(argument) for argument in (*one.args, *(keyword.value for keyword in one.keywords))}
    return found


def _word(node: ast.AST) -> str:
    words = {"ListComp": "a comprehension", "FunctionDef": "a function of its own", "NamedExpr": ":="}
    name = type(node).__name__
    return words.get(name, name.lower().removesuffix("def"))
