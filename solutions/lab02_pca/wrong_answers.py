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

# %% wrong={"grade_id": "project", "name": "assumes_orthonormal", "misconception": "every basis is orthonormal, so P = B B^T", "keeps": 0}
def project(X, basis):
    return (X @ basis) @ basis.T

# %% wrong={"grade_id": "project", "name": "unit_columns", "misconception": "columns of length one are enough to be orthonormal", "keeps": 0}
#-    Q, _ = np.linalg.qr(basis)  # same span, orthonormal columns: (BᵀB)⁻¹ becomes the identity
#+    Q = basis / np.linalg.norm(basis, axis=0)

# %% wrong={"grade_id": "project", "name": "forms_P", "misconception": "the projection matrix has to exist", "keeps": 5}
def project(X, basis):
    P = basis @ np.linalg.solve(basis.T @ basis, basis.T)
    return X @ P

# %% wrong={"grade_id": "project", "name": "the_error", "misconception": "the projection is what is left over", "keeps": 0}
#-    return (X @ Q) @ Q.T
#+    return X - (X @ Q) @ Q.T

# %% wrong={"grade_id": "project", "name": "coordinates", "misconception": "coordinates in the basis are the projected point", "keeps": 0}
def project(X, basis):
    return np.linalg.lstsq(basis, X.T, rcond=None)[0].T

# %% wrong={"grade_id": "covariance", "name": "divides_by_n", "misconception": "the sample covariance divides by n", "keeps": 1}
#-    return centred.T @ centred / (n - 1)
#+    return centred.T @ centred / n

# %% wrong={"grade_id": "covariance", "name": "not_centred", "misconception": "second moments about the origin are the covariance", "keeps": 1}
#-    centred = X - X.mean(axis=0, dtype=np.float64)
#+    centred = X.astype(float)

# %% wrong={"grade_id": "covariance", "name": "rows_as_variables", "misconception": "rows are variables, as np.cov takes them by default", "keeps": 1}
def covariance(X):
    if X.shape[0] < 2:
        raise ValueError("at least 2 rows")
    return np.atleast_2d(np.cov(X))

# %% wrong={"grade_id": "covariance", "name": "one_pass_textbook", "misconception": "mean of squares minus square of the mean is the same in floating point", "keeps": 5}
#-    centred = X - X.mean(axis=0, dtype=np.float64)
#-    return centred.T @ centred / (n - 1)
#+    X = X.astype(float)
#+    mean = X.mean(axis=0)
#+    return (X.T @ X - n * np.outer(mean, mean)) / (n - 1)

# %% wrong={"grade_id": "covariance", "name": "centres_in_place", "misconception": "X -= mean changes a copy", "keeps": 5}
#-    centred = X - X.mean(axis=0, dtype=np.float64)
#+    centred = X if X.dtype == np.float64 else X.astype(float)
#+    centred -= X.mean(axis=0)

# %% wrong={"grade_id": "covariance", "name": "bytes_wrap", "misconception": "a product of uint8 arrays is as wide as it needs to be", "keeps": 7}
#+    if X.dtype.kind == "u":
#+        mean = X.mean(axis=0)
#+        return (X.T @ X - n * np.outer(mean, mean)) / (n - 1)
#     centred = X - X.mean(axis=0, dtype=np.float64)

# %% wrong={"grade_id": "covariance", "name": "one_column_is_a_number", "misconception": "np.cov always returns a matrix", "keeps": 5}
def covariance(X):
    if X.shape[0] < 2:
        raise ValueError("at least 2 rows")
    return np.cov(X.astype(float), rowvar=False)

# %% wrong={"grade_id": "covariance", "name": "one_row_is_nan", "misconception": "one sample has a covariance", "keeps": 7}
def covariance(X):
    centred = X - X.mean(axis=0)
    return centred.T @ centred / max(X.shape[0] - 1, 1)

# %% wrong={"grade_id": "variance_split", "name": "forms_sigma", "misconception": "the covariance must exist before it can be projected", "keeps": 5}
def variance_split(X, Q):
    sigma = np.cov(X, rowvar=False)
    along = np.diag(Q.T @ sigma @ Q)
    return along, max(float(np.trace(sigma) - along.sum()), 0.0)

# %% wrong={"grade_id": "variance_split", "name": "not_centred", "misconception": "variance is the mean square of the coordinates, wherever the data lies", "keeps": 2}
def variance_split(X, Q):
    along = np.sum((X @ Q) ** 2, axis=0) / (len(X) - 1)
    return along, max(float(np.sum(X**2) / (len(X) - 1) - along.sum()), 0.0)

# %% wrong={"grade_id": "variance_split", "name": "divides_by_n", "misconception": "np.var has the divisor n − 1", "keeps": 2}
def variance_split(X, Q):
    along = np.var(X @ Q, axis=0)
    return along, max(float(np.var(X, axis=0).sum() - along.sum()), 0.0)

# %% wrong={"grade_id": "variance_split", "name": "total_as_lost", "misconception": "lost is the total, not the total minus what is kept", "keeps": 3}
def variance_split(X, Q):
    along = np.var(X @ Q, axis=0, ddof=1)
    return along, float(np.var(X, axis=0, ddof=1).sum())

# %% wrong={"grade_id": "variance_split", "name": "lengths_not_squares", "misconception": "Pythagoras adds lengths", "keeps": 2}
def variance_split(X, Q):
    along = np.std(X @ Q, axis=0, ddof=1)
    return along, max(float(np.sqrt(np.var(X, axis=0, ddof=1).sum()) - along.sum()), 0.0)

# %% wrong={"grade_id": "pca_eigh", "name": "ascending", "misconception": "eigh puts the largest eigenvalue first", "keeps": 2}
#-    return PCA(mean, vectors[:, ::-1][:, :k], np.clip(values[::-1][:k], 0.0, None))
#+    return PCA(mean, vectors[:, :k], np.clip(values[:k], 0.0, None))

# %% wrong={"grade_id": "pca_eigh", "name": "rows_of_vectors", "misconception": "the eigenvectors are the rows of the matrix that eigh returns", "keeps": 2}
#-    return PCA(mean, vectors[:, ::-1][:, :k], np.clip(values[::-1][:k], 0.0, None))
#+    return PCA(mean, vectors[::-1][:k].T, np.clip(values[::-1][:k], 0.0, None))

# %% wrong={"grade_id": "pca_eigh", "name": "not_centred", "misconception": "PCA does not need the mean taken away", "keeps": 2}
#-    centred = X - mean
#+    centred = X

# %% wrong={"grade_id": "pca_eigh", "name": "negative_variance", "misconception": "a computed eigenvalue of a covariance cannot come out below zero", "keeps": 8}
#-    return PCA(mean, vectors[:, ::-1][:, :k], np.clip(values[::-1][:k], 0.0, None))
#+    return PCA(mean, vectors[:, ::-1][:, :k], values[::-1][:k])

# %% wrong={"grade_id": "pca_eigh", "name": "general_eig", "misconception": "eig does for a symmetric matrix what eigh does, in order of size", "keeps": 2}
#-    values, vectors = np.linalg.eigh(centred.T @ centred / (n - 1))  # ascending
#-    return PCA(mean, vectors[:, ::-1][:, :k], np.clip(values[::-1][:k], 0.0, None))
#+    values, vectors = np.linalg.eig(centred.T @ centred / (n - 1))
#+    return PCA(mean, vectors[:, :k].real, np.clip(values[:k].real, 0.0, None))

# %% wrong={"grade_id": "pca_eigh", "name": "deviations", "misconception": "eigenvalues of a covariance are squares of variances", "keeps": 2}
#-    return PCA(mean, vectors[:, ::-1][:, :k], np.clip(values[::-1][:k], 0.0, None))
#+    return PCA(mean, vectors[:, ::-1][:, :k], np.sqrt(np.clip(values[::-1][:k], 0.0, None)))

# %% wrong={"grade_id": "pca_eigh", "name": "first_k_then_reversed", "misconception": "reversing comes after choosing", "keeps": 4}
#-    return PCA(mean, vectors[:, ::-1][:, :k], np.clip(values[::-1][:k], 0.0, None))
#+    return PCA(mean, vectors[:, :k][:, ::-1], np.clip(values[:k][::-1], 0.0, None))

# %% wrong={"grade_id": "pca_svd", "name": "full_matrices", "misconception": "the SVD has to return all d right vectors", "keeps": 7}
#-    _, singular, Vt = np.linalg.svd(X - mean, full_matrices=False)
#+    _, singular, Vt = np.linalg.svd(X - mean)

# %% wrong={"grade_id": "pca_svd", "name": "by_covariance", "misconception": "an eigendecomposition of the covariance is just as precise", "keeps": 4}
#-    _, singular, Vt = np.linalg.svd(X - mean, full_matrices=False)
#-    return PCA(mean, Vt[:k].T, singular[:k] ** 2 / (n - 1))
#+    values, vectors = np.linalg.eigh((X - mean).T @ (X - mean) / (n - 1))
#+    return PCA(mean, vectors[:, ::-1][:, :k], np.clip(values[::-1][:k], 0, None))

# %% wrong={"grade_id": "pca_svd", "name": "gram_of_rows", "misconception": "the small n × n Gram matrix keeps all digits", "keeps": 7}
#-    _, singular, Vt = np.linalg.svd(X - mean, full_matrices=False)
#-    return PCA(mean, Vt[:k].T, singular[:k] ** 2 / (n - 1))
#+    centred = X - mean
#+    values, left = np.linalg.eigh(centred @ centred.T)
#+    values, left = np.clip(values[::-1][:k], 0, None), left[:, ::-1][:, :k]
#+    components, _ = np.linalg.qr(centred.T @ left)
#+    return PCA(mean, components, values / (n - 1))

# %% wrong={"grade_id": "pca_svd", "name": "not_squared", "misconception": "singular values are variances", "keeps": 4}
#-    return PCA(mean, Vt[:k].T, singular[:k] ** 2 / (n - 1))
#+    return PCA(mean, Vt[:k].T, singular[:k])

# %% wrong={"grade_id": "pca_svd", "name": "divides_by_n", "misconception": "the divisor of a sample variance is n", "keeps": 4}
#-    return PCA(mean, Vt[:k].T, singular[:k] ** 2 / (n - 1))
#+    return PCA(mean, Vt[:k].T, singular[:k] ** 2 / n)

# %% wrong={"grade_id": "pca_svd", "name": "columns_of_vt", "misconception": "svd returns V, so its columns are the components", "keeps": 3}
#-    return PCA(mean, Vt[:k].T, singular[:k] ** 2 / (n - 1))
#+    return PCA(mean, Vt[:, :k], singular[:k] ** 2 / (n - 1))

# %% wrong={"grade_id": "pca_svd", "name": "not_centred", "misconception": "the SVD of the raw data is PCA", "keeps": 3}
#-    _, singular, Vt = np.linalg.svd(X - mean, full_matrices=False)
#+    _, singular, Vt = np.linalg.svd(X, full_matrices=False)

# %% wrong={"grade_id": "rank_for", "name": "one_short", "misconception": "the index at which the sum is reached is the count", "keeps": 1}
def rank_for(variances, keep):
    if not 0 <= keep <= 1:
        raise ValueError("keep is a share")
    kept = np.cumsum(variances) / np.sum(variances)
    return int(np.searchsorted(kept, keep))

# %% wrong={"grade_id": "rank_for", "name": "divides_by_nothing", "misconception": "there always is some variance to divide by", "keeps": 3}
def rank_for(variances, keep):
    if not 0 <= keep <= 1:
        raise ValueError("keep is a share")
    if keep == 0:
        return 0
    kept = np.cumsum(variances) / np.sum(variances)
    return int(np.searchsorted(kept, keep)) + 1

# %% wrong={"grade_id": "rank_for", "name": "deviations", "misconception": "shares of the standard deviation are shares of the variance", "keeps": 4}
#-    tail = np.append(np.cumsum(variances[::-1])[::-1], 0.0)
#+    tail = np.append(np.cumsum(np.sqrt(variances)[::-1])[::-1], 0.0)

# %% wrong={"grade_id": "rank_for", "name": "each_large_enough", "misconception": "keep the directions that are each large beside the first", "keeps": 2}
def rank_for(variances, keep):
    if not 0 <= keep <= 1:
        raise ValueError("keep is a share")
    return int(np.sum(variances >= (1 - keep) * variances[0]))

# %% wrong={"grade_id": "rank_for", "name": "tail_by_subtraction", "misconception": "total minus head is the tail in floating point, too", "keeps": 5}
#-    tail = np.append(np.cumsum(variances[::-1])[::-1], 0.0)
#+    tail = np.sum(variances) - np.append(0.0, np.cumsum(variances))

# %% wrong={"grade_id": "rank_for", "name": "accepts_anything", "misconception": "a share of 110 % is somebody else's problem", "keeps": 5}
#-    if not 0 <= keep <= 1:
#-        raise ValueError(f"keep is a share from 0 to 1, got {keep}")

# %% wrong={"grade_id": "rank_for", "name": "at_least_one", "misconception": "one direction always stays", "keeps": 4}
#-    return int(np.argmax(tail <= (1 - keep) * tail[0]))
#+    return max(1, int(np.argmax(tail <= (1 - keep) * tail[0])))

# %% wrong={"grade_id": "subspace_cosine", "name": "assumes_orthonormal", "misconception": "coordinates in any basis keep angles", "keeps": 3}
#-    there, here = table @ Q, x @ Q  # k coordinates each; Q keeps lengths and angles
#+    there, here = table @ basis, x @ basis

# %% wrong={"grade_id": "subspace_cosine", "name": "not_normalised", "misconception": "a dot product of shadows is a cosine", "keeps": 0}
#-    cosine = np.divide(there @ here, lengths, out=np.zeros_like(inside), where=lengths > 0)
#+    cosine = there @ here

# %% wrong={"grade_id": "subspace_cosine", "name": "divides_by_whole_lengths", "misconception": "lengths are taken before the projection", "keeps": 2}
#-    lengths = np.sqrt(inside) * np.linalg.norm(here)
#+    lengths = np.sqrt(whole) * np.linalg.norm(x)

# %% wrong={"grade_id": "subspace_cosine", "name": "nan_for_nothing", "misconception": "no vector has length zero", "keeps": 3}
#-    cosine = np.divide(there @ here, lengths, out=np.zeros_like(inside), where=lengths > 0)
#-    share = np.divide(inside, whole, out=np.zeros_like(inside), where=whole > 0)
#+    with np.errstate(invalid="ignore", divide="ignore"):
#+        cosine, share = there @ here / lengths, inside / whole

# %% wrong={"grade_id": "subspace_cosine", "name": "projects_the_table", "misconception": "shadows must be built as vectors of d numbers", "keeps": 5}
#-    there, here = table @ Q, x @ Q  # k coordinates each; Q keeps lengths and angles
#+    there, here = (table @ Q) @ Q.T, (x @ Q) @ Q.T

# %% wrong={"grade_id": "subspace_cosine", "name": "share_of_length", "misconception": "a share of the length is a share of the energy", "keeps": 3}
#-    share = np.divide(inside, whole, out=np.zeros_like(inside), where=whole > 0)
#+    share = np.sqrt(np.divide(inside, whole, out=np.zeros_like(inside), where=whole > 0))

# %% wrong={"grade_id": "power_iteration", "name": "normalises_at_the_end", "misconception": "normalising once, at the end, is the same", "keeps": 8}
def power_iteration(apply, start, steps):
    v = start / np.linalg.norm(start)
    with np.errstate(all="ignore"):
        for _ in range(steps):
            before = v
            v = apply(v)
        value = float(before @ v / (before @ before))
        length = np.linalg.norm(v)
        return (value, v / length) if length > 0 else (0.0, before)

# %% wrong={"grade_id": "power_iteration", "name": "extra_product", "misconception": "the Rayleigh quotient deserves a product of its own", "keeps": 2}
#-    return value, v
#+    return float(v @ apply(v)), v

# %% wrong={"grade_id": "power_iteration", "name": "two_products_a_step", "misconception": "a second product a step costs nothing", "keeps": 6}
#+        value = float(v @ apply(v))
#         product = apply(v)
#-        value = float(v @ product)

# %% wrong={"grade_id": "power_iteration", "name": "length_as_value", "misconception": "the length of the product is the Rayleigh quotient", "keeps": 6}
#-        length = np.linalg.norm(product)
#+        value = length = float(np.linalg.norm(product))

# %% wrong={"grade_id": "power_iteration", "name": "zero_over_zero", "misconception": "no product is ever zero", "keeps": 9}
def power_iteration(apply, start, steps):
    v = start / np.linalg.norm(start)
    with np.errstate(all="ignore"):
        for _ in range(steps):
            product = apply(v)
            value = float(v @ product)
            v = product / np.linalg.norm(product)
    return value, v

# %% wrong={"grade_id": "power_iteration", "name": "overwrites_start", "misconception": "start is mine to overwrite", "keeps": 9}
#-    v = start / np.linalg.norm(start)
#+    v = start
#+    v /= np.linalg.norm(v)

#-        v = product / length
#+        v[:] = product / length

# %% wrong={"grade_id": "power_iteration", "name": "keeps_the_path", "misconception": "remembering every iterate is free", "keeps": 6}
def power_iteration(apply, start, steps):
    path = [start / np.linalg.norm(start)]
    products = []
    for _ in range(steps):
        products.append(apply(path[-1]))
        length = np.linalg.norm(products[-1])
        if length == 0:
            return 0.0, path[-1]
        path.append(products[-1] / length)
    return float(path[-2] @ products[-1]), path[-1]

# %% wrong={"grade_id": "power_iteration", "name": "one_turn_short", "misconception": "the first multiplication is not a step", "keeps": 2}
#-    for _ in range(steps):
#+    for _ in range(steps - 1):

# %% wrong={"grade_id": "randomized_pca", "name": "no_orthonormalisation", "misconception": "the qr between products is for beauty", "keeps": 9}
def randomized_pca(times, times_t, d, k, power, rng, oversample=8):
    Y = times(rng.standard_normal((d, min(k + oversample, d))))
    for _ in range(power):
        Y = times(times_t(Y))
    Q, _ = np.linalg.qr(Y)
    V, singular, _ = np.linalg.svd(times_t(Q), full_matrices=False)
    return V[:, :k], singular[:k]

# %% wrong={"grade_id": "randomized_pca", "name": "no_power", "misconception": "a bare sketch is good enough for any spectrum", "keeps": 1}
#-    for _ in range(power):
#-        W, _ = np.linalg.qr(times_t(Q))
#-        Q, _ = np.linalg.qr(times(W))

# %% wrong={"grade_id": "randomized_pca", "name": "one_pass_more", "misconception": "another pass for the singular values costs nothing", "keeps": 7}
#-    return V[:, :k], singular[:k]
#+    return V[:, :k], np.linalg.norm(times(V[:, :k]), axis=0)

# %% wrong={"grade_id": "randomized_pca", "name": "left_vectors", "misconception": "the range of A holds its principal components", "keeps": 0}
#-    V, singular, _ = np.linalg.svd(times_t(Q), full_matrices=False)  # d × width: small beside A
#-    return V[:, :k], singular[:k]
#+    U, singular, _ = np.linalg.svd(times_t(Q).T, full_matrices=False)
#+    return (Q @ U)[:, :k], singular[:k]

# %% wrong={"grade_id": "randomized_pca", "name": "materialises", "misconception": "multiplying by the identity is a cheap way to get A", "keeps": 7}
def randomized_pca(times, times_t, d, k, power, rng, oversample=8):
    A = times(np.eye(d))
    _, singular, Vt = np.linalg.svd(A, full_matrices=False)
    if len(singular) < k:
        _, singular, Vt = np.linalg.svd(A)
    return Vt[:k].T, singular[:k]

# %% wrong={"grade_id": "randomized_pca", "name": "no_oversampling", "misconception": "k random vectors are enough for k components", "keeps": 1}
#-    width = min(k + oversample, d)
#+    width = k

# %% wrong={"grade_id": "streaming_pca", "name": "keeps_everything", "misconception": "a stream is a list that has not been made yet", "keeps": 9}
def streaming_pca(chunks, d, k):
    X = np.concatenate([np.empty((0, d))] + [chunk.copy() for chunk in chunks()])
    n = len(X)
    if n < 2:
        raise ValueError("at least 2 rows")
    values, vectors = np.linalg.eigh((X - X.mean(axis=0)).T @ (X - X.mean(axis=0)) / (n - 1))
    return PCA(X.mean(axis=0), vectors[:, ::-1][:, :k], np.clip(values[::-1][:k], 0, None))

# %% wrong={"grade_id": "streaming_pca", "name": "keeps_views", "misconception": "a chunk stays what it was after the next one came", "keeps": 0}
def streaming_pca(chunks, d, k):
    X = np.concatenate([np.empty((0, d)), *list(chunks())])
    n = len(X)
    if n < 2:
        raise ValueError("at least 2 rows")
    values, vectors = np.linalg.eigh((X - X.mean(axis=0)).T @ (X - X.mean(axis=0)) / (n - 1))
    return PCA(X.mean(axis=0), vectors[:, ::-1][:, :k], np.clip(values[::-1][:k], 0, None))

# %% wrong={"grade_id": "streaming_pca", "name": "two_passes", "misconception": "the stream can be read again once the mean is known", "keeps": 10}
def streaming_pca(chunks, d, k):
    n, total = 0, np.zeros(d)
    for chunk in chunks():
        n += len(chunk)
        total += chunk.sum(axis=0)
    if n < 2:
        raise ValueError("at least 2 rows")
    mean, scatter = total / n, np.zeros((d, d))
    for chunk in chunks():
        scatter += (chunk - mean).T @ (chunk - mean)
    values, vectors = np.linalg.eigh(scatter / (n - 1))
    return PCA(mean, vectors[:, ::-1][:, :k], np.clip(values[::-1][:k], 0, None))

# %% wrong={"grade_id": "streaming_pca", "name": "averages_covariances", "misconception": "the covariance of a union is the average of the covariances", "keeps": 0}
#-        scatter += np.outer(delta, delta) * (n * b / (n + b))

# %% wrong={"grade_id": "streaming_pca", "name": "raw_sums", "misconception": "sums of squares can be centred at the end", "keeps": 12}
def streaming_pca(chunks, d, k):
    n, total, squares = 0, np.zeros(d), np.zeros((d, d))
    for chunk in chunks():
        n += len(chunk)
        total += chunk.sum(axis=0)
        squares += chunk.T @ chunk
    if n < 2:
        raise ValueError("at least 2 rows")
    mean = total / n
    values, vectors = np.linalg.eigh((squares - n * np.outer(mean, mean)) / (n - 1))
    return PCA(mean, vectors[:, ::-1][:, :k], np.clip(values[::-1][:k], 0, None))

# %% wrong={"grade_id": "streaming_pca", "name": "mean_of_means", "misconception": "every chunk weighs the same", "keeps": 0}
#-    n, mean, scatter = 0, np.zeros(d), np.zeros((d, d))
#+    seen, n, mean, scatter = 0, 0, np.zeros(d), np.zeros((d, d))

#-        scatter += np.outer(delta, delta) * (n * b / (n + b))
#-        mean += delta * (b / (n + b))
#+        scatter += np.outer(delta, delta) * seen / (seen + 1)
#+        seen += 1
#+        mean += delta / seen

# %% wrong={"grade_id": "streaming_pca", "name": "new_mean_in_delta", "misconception": "the difference of means is taken to the mean of both", "keeps": 0}
#-        delta = chunk_mean - mean
#+        delta = (chunk_mean - mean) * (n / (n + b))

#-        mean += delta * (b / (n + b))
#+        mean += (chunk_mean - mean) * (b / (n + b))

# %% wrong={"grade_id": "streaming_pca", "name": "empty_chunk", "misconception": "every chunk has rows", "keeps": 12}
#-        if b == 0:
#-            continue

# %% wrong={"grade_id": "low_rank", "name": "values_forgotten", "misconception": "the singular vectors alone are the factors", "keeps": 3}
#-    return U[:, :k] * singular[:k], Vt[:k]
#+    return U[:, :k], Vt[:k]

# %% wrong={"grade_id": "low_rank", "name": "values_twice", "misconception": "both factors carry the singular values", "keeps": 3}
#-    return U[:, :k] * singular[:k], Vt[:k]
#+    return U[:, :k] * singular[:k], singular[:k, None] * Vt[:k]

# %% wrong={"grade_id": "low_rank", "name": "multiplies_the_weight_out", "misconception": "matrix products cost the same wherever the brackets stand", "keeps": 5}
#-    return (X @ A) @ B
#+    return X @ (A @ B)

# %% wrong={"grade_id": "low_rank", "name": "first_columns", "misconception": "a QR factorisation without pivots ranks directions", "keeps": 5}
#-    U, singular, Vt = np.linalg.svd(W, full_matrices=False)
#-    return U[:, :k] * singular[:k], Vt[:k]
#+    Q, R = np.linalg.qr(W)
#+    return Q[:, :k], R[:k]

# %% wrong={"grade_id": "low_rank", "name": "smallest_kept", "misconception": "svd sorts its values ascending, as eigh does", "keeps": 5}
#-    return U[:, :k] * singular[:k], Vt[:k]
#+    last = len(singular) - k
#+    return U[:, last:] * singular[last:], Vt[last:]

# %% wrong={"grade_id": "covariance", "name": "narrow_stays_narrow", "misconception": "the mean of a float32 array is float64", "keeps": 7}
#-    centred = X - X.mean(axis=0, dtype=np.float64)
#+    centred = X - X.mean(axis=0)

# %% wrong={"grade_id": "subspace_cosine", "name": "least_length", "misconception": "no row is shorter than 1e-12", "keeps": 6}
#-    cosine = np.divide(there @ here, lengths, out=np.zeros_like(inside), where=lengths > 0)
#+    cosine = there @ here / np.maximum(lengths, 1e-12)

# %% wrong={"grade_id": "subspace_cosine", "name": "unit_columns", "misconception": "columns of length one are enough to be orthonormal", "keeps": 3}
#-    Q, _ = np.linalg.qr(basis)
#+    Q = basis / np.linalg.norm(basis, axis=0)

# %% wrong={"grade_id": "power_iteration", "name": "stops_early", "misconception": "a vector that hardly moves has arrived", "keeps": 9}
#-        v = product / length
#+        before, v = v, product / length
#+        if np.linalg.norm(v - before) < 1e-8:
#+            break

# %% wrong={"grade_id": "randomized_pca", "name": "one_qr_a_round", "misconception": "one qr a round is enough", "keeps": 9}
#-        W, _ = np.linalg.qr(times_t(Q))
#+        W = times_t(Q)

# %% wrong={"grade_id": "randomized_pca", "name": "global_generator", "misconception": "any random numbers will do", "keeps": 10}
#-    Q, _ = np.linalg.qr(times(rng.standard_normal((d, width))))
#+    Q, _ = np.linalg.qr(times(np.random.standard_normal((d, width))))

# %% wrong={"grade_id": "low_rank", "name": "columns_of_vt", "misconception": "svd returns V, so its columns are the directions", "keeps": 3}
#-    return U[:, :k] * singular[:k], Vt[:k]
#+    return U[:, :k] * singular[:k], Vt[:, :k]
