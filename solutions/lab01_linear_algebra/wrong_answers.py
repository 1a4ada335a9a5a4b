# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% wrong={"grade_id": "offset", "name": "strides_count_elements", "misconception": "strides count elements, so an item size is still missing", "keeps": 1}
def offset(index, strides, start=0):
    return start + 8 * sum(i * stride for i, stride in zip(index, strides, strict=True))

# %% wrong={"grade_id": "offset", "name": "starts_at_zero", "misconception": "every array starts where its memory starts", "keeps": 1}
def offset(index, strides, start=0):
    return sum(i * stride for i, stride in zip(index, strides, strict=True))

# %% wrong={"grade_id": "offset", "name": "addresses_are_positive", "misconception": "a negative stride is a positive one read the other way", "keeps": 3}
def offset(index, strides, start=0):
    return start + sum(i * abs(stride) for i, stride in zip(index, strides, strict=True))

# %% wrong={"grade_id": "offset", "name": "axes_from_the_right", "misconception": "the first index belongs to the last stride", "keeps": 1}
def offset(index, strides, start=0):
    return start + sum(i * stride for i, stride in zip(index, reversed(strides), strict=True))

# %% wrong={"grade_id": "offset", "name": "short_zip", "misconception": "zip complains about missing axes by itself", "keeps": 4}
def offset(index, strides, start=0):
    return start + sum(i * stride for i, stride in zip(index, strides))

# %% wrong={"grade_id": "contiguous_strides", "name": "column_major", "misconception": "the first axis is contiguous, as in Fortran", "keeps": 0}
#-    for length in reversed(shape):
#+    for length in shape:

#-    return tuple(reversed(strides))
#+    return tuple(strides)

# %% wrong={"grade_id": "contiguous_strides", "name": "in_elements", "misconception": "strides count elements", "keeps": 0}
def contiguous_strides(shape, itemsize):
    return tuple(math.prod(max(length, 1) for length in shape[axis + 1 :]) for axis in range(len(shape)))

# %% wrong={"grade_id": "contiguous_strides", "name": "own_length_included", "misconception": "a step along an axis jumps over that axis itself", "keeps": 0}
def contiguous_strides(shape, itemsize):
    return tuple(itemsize * math.prod(max(length, 1) for length in shape[axis:]) for axis in range(len(shape)))

# %% wrong={"grade_id": "contiguous_strides", "name": "zero_length_zero_stride", "misconception": "an empty axis needs no care", "keeps": 4}
def contiguous_strides(shape, itemsize):
    return tuple(itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))

# %% wrong={"grade_id": "contiguous_strides", "name": "own_length", "misconception": "the stride of an axis is its own row length", "keeps": 0}
def contiguous_strides(shape, itemsize):
    return tuple(itemsize * length for length in shape)

# %% wrong={"grade_id": "transpose", "name": "inverse_permutation", "misconception": "axes says where each axis goes, not where it comes from", "keeps": 2}
def transpose(layout, axes):
    if sorted(axes) != list(range(len(layout.shape))):
        raise ValueError("not a permutation")
    shape, strides = [0] * len(axes), [0] * len(axes)
    for old, new in enumerate(axes):
        shape[new], strides[new] = layout.shape[old], layout.strides[old]
    return Layout(tuple(shape), tuple(strides), layout.offset)

# %% wrong={"grade_id": "transpose", "name": "shape_only", "misconception": "a transpose swaps the lengths; fresh strides follow from the shape", "keeps": 2}
def transpose(layout, axes):
    if sorted(axes) != list(range(len(layout.shape))):
        raise ValueError("not a permutation")
    shape = tuple(layout.shape[axis] for axis in axes)
    return Layout(shape, contiguous_strides(shape, 8), layout.offset)

# %% wrong={"grade_id": "transpose", "name": "always_reversed", "misconception": "transposing means reversing all axes", "keeps": 2}
def transpose(layout, axes):
    if sorted(axes) != list(range(len(layout.shape))):
        raise ValueError("not a permutation")
    return Layout(layout.shape[::-1], layout.strides[::-1], layout.offset)

# %% wrong={"grade_id": "transpose", "name": "forgets_offset", "misconception": "a view starts where its memory starts", "keeps": 4}
#-        tuple(layout.shape[axis] for axis in axes), tuple(layout.strides[axis] for axis in axes), layout.offset
#+        tuple(layout.shape[axis] for axis in axes), tuple(layout.strides[axis] for axis in axes)

# %% wrong={"grade_id": "transpose", "name": "repeats_allowed", "misconception": "any tuple of existing axes is a transpose", "keeps": 4}
#-    if sorted(axes) != list(range(len(layout.shape))):
#+    if any(axis >= len(layout.shape) for axis in axes):

# %% wrong={"grade_id": "transpose", "name": "as_a_set", "misconception": "a tuple that names every axis is a permutation, however long it is", "keeps": 4}
#-    if sorted(axes) != list(range(len(layout.shape))):
#+    if set(axes) != set(range(len(layout.shape))):

# %% wrong={"grade_id": "transpose", "name": "range_unchecked", "misconception": "as many different axes as the array has are a permutation, whatever they are", "keeps": 4}
#-    if sorted(axes) != list(range(len(layout.shape))):
#+    if len(axes) != len(layout.shape) or len(set(axes)) != len(axes):

# %% wrong={"grade_id": "slice_view", "name": "start_in_bytes", "misconception": "the start is a byte count", "keeps": 0}
#-    return Layout(tuple(shape), tuple(strides), layout.offset + start * layout.strides[axis])
#+    return Layout(tuple(shape), tuple(strides), layout.offset + start)

# %% wrong={"grade_id": "slice_view", "name": "start_in_new_strides", "misconception": "the start counts steps of the new stride", "keeps": 0}
#-    return Layout(tuple(shape), tuple(strides), layout.offset + start * layout.strides[axis])
#+    return Layout(tuple(shape), tuple(strides), layout.offset + start * strides[axis])

# %% wrong={"grade_id": "slice_view", "name": "rounds_down", "misconception": "the length is (stop - start) // step", "keeps": 0}
#-    shape[axis] = len(range(start, stop, step))
#+    shape[axis] = max(0, (stop - start) // step)

# %% wrong={"grade_id": "slice_view", "name": "drops_old_offset", "misconception": "the view that is sliced starts at 0", "keeps": 2}
#-    return Layout(tuple(shape), tuple(strides), layout.offset + start * layout.strides[axis])
#+    return Layout(tuple(shape), tuple(strides), start * layout.strides[axis])

# %% wrong={"grade_id": "slice_view", "name": "backwards_from_the_front", "misconception": "reading backwards only flips the sign of the stride", "keeps": 0}
#-    return Layout(tuple(shape), tuple(strides), layout.offset + start * layout.strides[axis])
#+    first = min(start, start + (shape[axis] - 1) * step) if shape[axis] else start
#+    return Layout(tuple(shape), tuple(strides), layout.offset + first * layout.strides[axis])

# %% wrong={"grade_id": "slice_view", "name": "bounds_as_given", "misconception": "bounds are always present and within the array", "keeps": 0}
#-    start, stop, step = cut.indices(layout.shape[axis])
#+    start, stop, step = cut.start or 0, layout.shape[axis] if cut.stop is None else cut.stop, cut.step or 1

# %% wrong={"grade_id": "slice_view", "name": "first_axis", "misconception": "the start always counts rows", "keeps": 0}
#-    return Layout(tuple(shape), tuple(strides), layout.offset + start * layout.strides[axis])
#+    return Layout(tuple(shape), tuple(strides), layout.offset + start * layout.strides[0])

# %% wrong={"grade_id": "broadcast", "name": "aligned_left", "misconception": "shapes line up at the left", "keeps": 0}
#-    for old, stride, new in zip(layout.shape, layout.strides, shape[added:], strict=True):
#+    for old, stride, new in zip(layout.shape, layout.strides, shape[: len(layout.shape)], strict=True):

#-    return Layout(tuple(shape), tuple(strides), layout.offset)
#+    return Layout(tuple(shape), tuple(strides[added:] + [0] * added), layout.offset)

# %% wrong={"grade_id": "broadcast", "name": "stride_kept", "misconception": "a stretched axis keeps its stride", "keeps": 2}
#-        strides.append(stride if old == new else 0)
#+        strides.append(stride)

# %% wrong={"grade_id": "broadcast", "name": "anything_stretches", "misconception": "any axis can be stretched", "keeps": 6}
#-        if old not in (1, new):
#-            raise ValueError(f"cannot stretch an axis of length {old} to {new}")

# %% wrong={"grade_id": "broadcast", "name": "multiples_stretch", "misconception": "an axis may repeat whenever its length divides the target", "keeps": 6}
#-        if old not in (1, new):
#+        if new % old:

# %% wrong={"grade_id": "broadcast", "name": "fresh_strides", "misconception": "the result is laid out like a fresh array, so the data is repeated", "keeps": 2}
#-    return Layout(tuple(shape), tuple(strides), layout.offset)
#+    return Layout(tuple(shape), contiguous_strides(shape, 8), layout.offset)

# %% wrong={"grade_id": "broadcast", "name": "drops_leading_axes", "misconception": "extra axes of length 1 may vanish", "keeps": 6}
def broadcast(layout, shape):
    old_shape, old_strides = layout.shape[-len(shape) :], layout.strides[-len(shape) :]
    if len(shape) == 0:
        old_shape, old_strides = (), ()
    added = len(shape) - len(old_shape)
    if any(old not in (1, new) for old, new in zip(old_shape, shape[added:])):
        raise ValueError("does not fit")
    strides = [stride if old == new else 0 for old, stride, new in zip(old_shape, old_strides, shape[added:])]
    return Layout(tuple(shape), (0,) * added + tuple(strides), layout.offset)

# %% wrong={"grade_id": "windows", "name": "copies", "misconception": "only the values count: stacking slices is as good as a view", "keeps": 7}
def windows(x, width, step=1):
    starts = range(0, len(x) - width + 1, step)
    return np.array([x[start : start + width] for start in starts], dtype=x.dtype).reshape(len(starts), width)

# %% wrong={"grade_id": "windows", "name": "eight_bytes", "misconception": "an element has 8 bytes", "keeps": 0}
def windows(x, width, step=1):
    count = max(0, (len(x) - width) // step + 1)
    return np.lib.stride_tricks.as_strided(x, (count, width), (step * 8, 8), writeable=False)

# %% wrong={"grade_id": "windows", "name": "itemsize_as_stride", "misconception": "every 1-D array is contiguous: its stride is its item size", "keeps": 5}
def windows(x, width, step=1):
    count = max(0, (len(x) - width) // step + 1)
    return np.lib.stride_tricks.as_strided(x, (count, width), (step * x.itemsize, x.itemsize), writeable=False)

# %% wrong={"grade_id": "windows", "name": "one_window_short", "misconception": "there are (n - width) // step windows", "keeps": 0}
#-    count = max(0, (len(x) - width) // step + 1)
#+    count = max(0, (len(x) - width) // step)

# %% wrong={"grade_id": "windows", "name": "made_contiguous_first", "misconception": "a view of a contiguous copy is still a view of x", "keeps": 7}
#     ### BEGIN SOLUTION
#+    x = x.copy()

# %% wrong={"grade_id": "windows", "name": "no_overlap", "misconception": "windows lie side by side", "keeps": 0}
def windows(x, width, step=1):
    count = max(0, (len(x) - width) // step + 1)
    return x[: len(x) // width * width].reshape(-1, width)[:count]

# %% wrong={"grade_id": "windows", "name": "fewer_than_none", "misconception": "a signal shorter than a window needs no care", "keeps": 6}
#-    count = max(0, (len(x) - width) // step + 1)
#+    count = (len(x) - width) // step + 1

# %% wrong={"grade_id": "windows", "name": "rounds_towards_zero", "misconception": "int() rounds down for negative numbers, too", "keeps": 6}
#-    count = max(0, (len(x) - width) // step + 1)
#+    count = max(0, int((len(x) - width) / step) + 1)

# %% wrong={"grade_id": "windows", "name": "strides_swapped", "misconception": "the first stride steps inside a window", "keeps": 0}
#-    return np.lib.stride_tricks.as_strided(x, (count, width), (step * stride, stride), writeable=False)
#+    return np.lib.stride_tricks.as_strided(x, (count, width), (stride, step * stride), writeable=False)

# %% wrong={"grade_id": "lines_touched", "name": "dense_bytes", "misconception": "only useful bytes are fetched", "keeps": 1}
def lines_touched(layout, itemsize, line_bytes=64):
    return math.ceil(math.prod(layout.shape) * itemsize / line_bytes)

# %% wrong={"grade_id": "lines_touched", "name": "a_line_an_element", "misconception": "every access fetches a line of its own", "keeps": 1}
def lines_touched(layout, itemsize, line_bytes=64):
    return math.prod(layout.shape)

# %% wrong={"grade_id": "lines_touched", "name": "first_byte_only", "misconception": "an element lies in the line of its first byte", "keeps": 6}
def lines_touched(layout, itemsize, line_bytes=64):
    first_bytes = np.array([layout.offset])
    for length, stride in zip(layout.shape, layout.strides, strict=True):
        first_bytes = (first_bytes[:, None] + stride * np.arange(length)).ravel()
    return len(np.unique(first_bytes // line_bytes))

# %% wrong={"grade_id": "lines_touched", "name": "aligned_start", "misconception": "an array starts on a line boundary", "keeps": 1}
def lines_touched(layout, itemsize, line_bytes=64):
    first_bytes = np.array([0])
    for length, stride in zip(layout.shape, layout.strides, strict=True):
        first_bytes = (first_bytes[:, None] + stride * np.arange(length)).ravel()
    return len(np.unique([first_bytes // line_bytes, (first_bytes + itemsize - 1) // line_bytes]))

# %% wrong={"grade_id": "lines_touched", "name": "whole_span", "misconception": "everything between the first and the last byte is fetched", "keeps": 1}
def lines_touched(layout, itemsize, line_bytes=64):
    if 0 in layout.shape:
        return 0
    reach = [stride * (length - 1) for length, stride in zip(layout.shape, layout.strides)]
    first = layout.offset + sum(r for r in reach if r < 0)
    last = layout.offset + sum(r for r in reach if r > 0) + itemsize - 1
    return last // line_bytes - first // line_bytes + 1

# %% wrong={"grade_id": "lines_touched", "name": "first_and_last_byte", "misconception": "no element is longer than a line", "keeps": 6}
#-    for byte in (*range(0, itemsize, line_bytes), itemsize - 1):
#+    for byte in (0, itemsize - 1):

# %% wrong={"grade_id": "lines_touched", "name": "always_64", "misconception": "every machine has lines of 64 bytes", "keeps": 1}
#-    for byte in (*range(0, itemsize, line_bytes), itemsize - 1):
#-        lines.update(((first_bytes + byte) // line_bytes).tolist())
#+    for byte in (*range(0, itemsize, 64), itemsize - 1):
#+        lines.update(((first_bytes + byte) // 64).tolist())

# %% wrong={"grade_id": "matmul", "name": "dot_by_dot", "misconception": "the textbook order i, j, k is as good as any", "keeps": 10}
def matmul(a, b, c):
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            for k in range(a.shape[1]):
                c[i, j] += a[i, k] * b[k, j]

# %% wrong={"grade_id": "matmul", "name": "outer_products", "misconception": "the innermost loop decides alone: c is fetched anew for every k", "keeps": 10}
def matmul(a, b, c):
    for k in range(a.shape[1]):
        for i in range(a.shape[0]):
            for j in range(b.shape[1]):
                c[i, j] += a[i, k] * b[k, j]

# %% wrong={"grade_id": "matmul", "name": "column_order", "misconception": "walking columns is what Fortran does, so it must be fast", "keeps": 10}
def matmul(a, b, c):
    for j in range(b.shape[1]):
        for k in range(a.shape[1]):
            for i in range(a.shape[0]):
                c[i, j] += a[i, k] * b[k, j]

# %% wrong={"grade_id": "matmul", "name": "overwrites", "misconception": "the last product is the sum", "keeps": 0}
def matmul(a, b, c):
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            for j in range(b.shape[1]):
                c[i, j] = a[i, k] * b[k, j]

# %% wrong={"grade_id": "matmul", "name": "clears_c", "misconception": "c is output only, what it held does not matter", "keeps": 6}
def matmul(a, b, c):
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            c[i, j] = 0.0
        for k in range(a.shape[1]):
            for j in range(b.shape[1]):
                c[i, j] += a[i, k] * b[k, j]

# %% wrong={"grade_id": "matmul", "name": "b_transposed", "misconception": "row of a times row of b", "keeps": 0}
def matmul(a, b, c):
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            for k in range(a.shape[1]):
                c[i, j] += a[i, k] * b[j, k]

# %% wrong={"grade_id": "matmul", "name": "all_square", "misconception": "all three loops have the same length", "keeps": 0}
def matmul(a, b, c):
    n = a.shape[0]
    for i in range(n):
        for k in range(n):
            for j in range(n):
                c[i, j] += a[i, k] * b[k, j]

# %% wrong={"grade_id": "matmul", "name": "new_array", "misconception": "c = c + ... changes the caller's array", "keeps": 0}
def matmul(a, b, c):
    c = c + a @ b

# %% wrong={"grade_id": "matmul", "name": "hidden_product", "misconception": "a whole-array product has no loop order", "keeps": 10}
def matmul(a, b, c):
    c += a @ b

# %% wrong={"grade_id": "apply_chain", "name": "left_to_right", "misconception": "brackets do not matter, so multiply the matrices first", "keeps": 6}
def apply_chain(matrices, x):
    if not matrices:
        return x
    product = matrices[0]
    for matrix in matrices[1:]:
        product = product @ matrix
    return product @ x

# %% wrong={"grade_id": "apply_chain", "name": "first_first", "misconception": "the first matrix of the product acts first", "keeps": 0}
#-    for matrix in reversed(matrices):
#+    for matrix in matrices:

# %% wrong={"grade_id": "apply_chain", "name": "from_the_right_as_matrices", "misconception": "right to left is enough: x is multiplied in at the end", "keeps": 6}
def apply_chain(matrices, x):
    if not matrices:
        return x
    product = matrices[-1]
    for matrix in reversed(matrices[:-1]):
        product = matrix @ product
    return product @ x

# %% wrong={"grade_id": "apply_chain", "name": "never_empty", "misconception": "a chain has at least one matrix", "keeps": 7}
#-    for matrix in reversed(matrices):
#+    *rest, last = matrices
#+    x = last @ x
#+    for matrix in reversed(rest):

# %% wrong={"grade_id": "apply_chain", "name": "vector_from_the_left", "misconception": "x A is A x", "keeps": 0}
#-        x = matrix @ x
#+        x = x @ matrix

# %% wrong={"grade_id": "cosines", "name": "plain_dot", "misconception": "a dot product is a similarity already", "keeps": 0}
def cosines(x, w):
    return x @ w.T

# %% wrong={"grade_id": "cosines", "name": "zero_gives_nan", "misconception": "no input is ever all zeros", "keeps": 6}
def cosines(x, w):
    with np.errstate(invalid="ignore", divide="ignore"):
        return (x / np.linalg.norm(x, axis=1, keepdims=True)) @ (w / np.linalg.norm(w, axis=1, keepdims=True)).T

# %% wrong={"grade_id": "cosines", "name": "materialised", "misconception": "broadcasting to [batch, neurons, features] is free: the result is right", "keeps": 5}
def cosines(x, w):
    dots = (x[:, None, :] * w[None, :, :]).sum(axis=2)
    lengths = np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(w, axis=1)
    return dots / np.where(lengths == 0, 1, lengths)

# %% wrong={"grade_id": "cosines", "name": "norm_of_the_whole", "misconception": "np.linalg.norm of a matrix gives a length for each row", "keeps": 0}
def cosines(x, w):
    lengths = np.linalg.norm(x) * np.linalg.norm(w)
    return (x @ w.T) / (lengths or 1)

# %% wrong={"grade_id": "cosines", "name": "columns", "misconception": "the length runs along axis 0", "keeps": 0}
#-        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
#+        lengths = np.linalg.norm(rows, axis=0, keepdims=True)

# %% wrong={"grade_id": "cosines", "name": "small_constant", "misconception": "adding a small number to the length instead of asking for zero does no harm", "keeps": 0}
def cosines(x, w):
    lengths = np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(w, axis=1)
    return (x @ w.T) / (lengths + 1e-6)

# %% wrong={"grade_id": "cosines", "name": "neurons_by_inputs", "misconception": "a layer's output has a row for each neuron", "keeps": 0}
#-    return unit(x) @ unit(w).T
#+    return unit(w) @ unit(x).T

# %% wrong={"grade_id": "xor_backward", "name": "no_tanh_slope", "misconception": "gradients pass through tanh unchanged", "keeps": 0}
#-    dbend = dhidden * (1 - hidden**2)  # the slope of tanh, from its own output
#+    dbend = dhidden

# %% wrong={"grade_id": "xor_backward", "name": "logistic_slope_twice", "misconception": "p (1 - p) is still to be multiplied in: cross-entropy has cancelled it", "keeps": 0}
#-    dz = (p - y) / len(y)  # [n]
#+    dz = (p - y) * p * (1 - p) / len(y)

# %% wrong={"grade_id": "xor_backward", "name": "no_mean", "misconception": "the loss is a sum over the samples", "keeps": 0}
#-    dz = (p - y) / len(y)  # [n]
#+    dz = p - y

# %% wrong={"grade_id": "xor_backward", "name": "no_bias_gradient", "misconception": "biases do not learn", "keeps": 0}
#-    return Net(w1=dbend.T @ x, b1=dbend.sum(axis=0), w2=hidden.T @ dz, b2=dz.sum())
#+    return Net(w1=dbend.T @ x, b1=np.zeros_like(net.b1), w2=hidden.T @ dz, b2=np.zeros(()))

# %% wrong={"grade_id": "xor_backward", "name": "transposed_weights", "misconception": "the gradient of w1 is [inputs, hidden]", "keeps": 0}
#-    return Net(w1=dbend.T @ x, b1=dbend.sum(axis=0), w2=hidden.T @ dz, b2=dz.sum())
#+    return Net(w1=x.T @ dbend, b1=dbend.sum(axis=0), w2=hidden.T @ dz, b2=dz.sum())

# %% wrong={"grade_id": "xor_backward", "name": "slope_of_logistic_for_tanh", "misconception": "tanh has the slope h (1 - h)", "keeps": 0}
#-    dbend = dhidden * (1 - hidden**2)  # the slope of tanh, from its own output
#+    dbend = dhidden * hidden * (1 - hidden)

# %% wrong={"grade_id": "xor_backward", "name": "finite_differences", "misconception": "measuring the slope is as good as deriving it", "keeps": 10}
def backward(net, x, y):
    def loss(parameters):
        p = forward(Net(*parameters), x)[1]
        return -np.mean(y * np.log(p) + (1 - y) * np.log(1 - p))

    parameters = [np.array(parameter, dtype=float) for parameter in net]
    gradients = [np.zeros_like(parameter) for parameter in parameters]
    for parameter, gradient in zip(parameters, gradients):
        for index in np.ndindex(parameter.shape):
            kept = parameter[index]
            parameter[index] = kept + 1e-6
            up = loss(parameters)
            parameter[index] = kept - 1e-6
            gradient[index] = (up - loss(parameters)) / 2e-6
            parameter[index] = kept
    return Net(*gradients)

# %% wrong={"grade_id": "transformer_size", "name": "rules_of_thumb", "misconception": "12 N d^2 + V d and 9 B L d + 2 B h L^2 are exact", "keeps": 0}
def parameter_count(layers, d, vocab, context):
    return 12 * layers * d**2 + vocab * d


def activation_count(batch, length, d, heads):
    return 9 * batch * length * d + 2 * batch * heads * length**2

# %% wrong={"grade_id": "transformer_size", "name": "no_biases", "misconception": "a Linear is its matrix; softmax keeps scores and probabilities", "keeps": 1}
def parameter_count(layers, d, vocab, context):
    return layers * (12 * d**2 + 4 * d) + vocab * d + context * d + 2 * d


def activation_count(batch, length, d, heads):
    return 16 * batch * length * d + 2 * batch * heads * length**2 + 4 * batch * length

# %% wrong={"grade_id": "transformer_size", "name": "untied_output", "misconception": "the output layer has a matrix of its own; gelu's input is thrown away", "keeps": 0}
def parameter_count(layers, d, vocab, context):
    return layers * (12 * d**2 + 13 * d) + 2 * vocab * d + context * d + 2 * d


def activation_count(batch, length, d, heads):
    return 12 * batch * length * d + batch * heads * length**2 + 4 * batch * length

# %% wrong={"grade_id": "transformer_size", "name": "positions_and_last_norm_forgotten", "misconception": "only blocks and tokens have parameters; norms keep nothing but their input", "keeps": 0}
def parameter_count(layers, d, vocab, context):
    return layers * (12 * d**2 + 13 * d) + vocab * d


def activation_count(batch, length, d, heads):
    return 16 * batch * length * d + batch * heads * length**2

# %% wrong={"grade_id": "transformer_size", "name": "one_square_for_all_heads", "misconception": "all heads share one L x L matrix", "keeps": 4}
def parameter_count(layers, d, vocab, context):
    return layers * (12 * d**2 + 13 * d) + vocab * d + context * d + 2 * d


def activation_count(batch, length, d, heads):
    return 16 * batch * length * d + batch * length**2 + 4 * batch * length

# %% wrong={"grade_id": "matmul", "name": "rows_at_once", "misconception": "a row of numpy is one element", "keeps": 10}
def matmul(a, b, c):
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            c[i] += a[i, k] * b[k]

# %% wrong={"grade_id": "cosines", "name": "least_length", "misconception": "no row is shorter than 1e-12", "keeps": 6}
#-        return rows / np.where(lengths == 0, 1, lengths)
#+        return rows / np.maximum(lengths, 1e-12)

# %% wrong={"grade_id": "cosines", "name": "in_place", "misconception": "dividing the caller's rows does no harm", "keeps": 5}
#-        return rows / np.where(lengths == 0, 1, lengths)
#+        rows /= np.where(lengths == 0, 1, lengths)
#+        return rows

# %% wrong={"grade_id": "apply_chain", "name": "empties_the_list", "misconception": "the caller's list is mine to empty", "keeps": 5}
#-    for matrix in reversed(matrices):
#-        x = matrix @ x
#+    while matrices:
#+        x = matrices.pop() @ x

# %% wrong={"grade_id": "lines_touched", "name": "again_and_again", "misconception": "a line that is touched twice is two lines", "keeps": 3}
#-    lines = set()
#+    lines = []

#-        lines.update(((first_bytes + byte) // line_bytes).tolist())
#+        lines += ((first_bytes + byte) // line_bytes).tolist()

# %% wrong={"grade_id": "xor_backward", "name": "signs_turned", "misconception": "the gradient is the answer minus the prediction", "keeps": 0}
#-    dz = (p - y) / len(y)  # [n]
#+    dz = (y - p) / len(y)
