"""Triton kernels behind `attention.triton`: statistics of the rows of attention, and decoding in one reading of K and V.

Logits are kept in bits, x = e log2(e), so that exponentials are `exp2`. Of a row these are kept, in float32:

    top = max_j x_j,   mass = sum_j 2^(x_j - top),   tilt = sum_j 2^(x_j - top) (x_j - top);

    H = ln 2 (log2 mass - tilt / mass),   since log2 p_j = x_j - top - log2 mass.

Nothing large is ever subtracted: the entropy is as good as the logits are, which are sums of exact products.
"""

# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false, reportIndexIssue=false
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false

import triton
import triton.language as tl

LN2: tl.constexpr = tl.constexpr(0.6931471805599453)
NOTHING: tl.constexpr = tl.constexpr(float("-inf"))
ALL: tl.constexpr = tl.constexpr(tl.PropagateNan.ALL)  # a NaN stays one: by itself the larger of it and 0 is 0


@triton.jit
def _entropy(mass, tilt):
    some = tl.where(mass > 0, mass, 1.0)
    return tl.maximum(LN2 * (tl.log2(some) - tilt / some), 0.0, propagate_nan=ALL)


@triton.jit
def _beta(entropy, n, TABLE: tl.constexpr, COLUMNS: tl.constexpr, BOUNDS: tl.constexpr, EXP: tl.constexpr):
    """A `rules.Form`: a polynomial of the entropy, of which each coefficient is a polynomial of log n."""
    length = LN2 * tl.log2(tl.maximum(n, 1.0))
    value = entropy * 0.0
    for i in tl.static_range(len(TABLE) // COLUMNS):
        inner = entropy * 0.0
        for j in tl.static_range(COLUMNS):
            inner = inner * length + TABLE[i * COLUMNS + j]
        value = value * entropy + inner
    if EXP:
        value = tl.exp2(value / LN2)
    value = tl.minimum(tl.maximum(value, BOUNDS[1], propagate_nan=ALL), BOUNDS[2], propagate_nan=ALL)
    return tl.where(entropy <= BOUNDS[0], 1.0, value)


@triton.jit
def _seen(at, j, keys, CAUSAL: tl.constexpr, WINDOW: tl.constexpr):
    """Which of the keys j, along the second axis, queries at some positions see, along the first."""
    seen = (j < keys)[None, :] & (at > -keys - 2**30)[:, None]
    if CAUSAL:
        seen &= j[None, :] <= at[:, None]
    if WINDOW > 0:
        seen &= j[None, :] > at[:, None] - WINDOW
        if not CAUSAL:
            seen &= j[None, :] < at[:, None] + WINDOW
    return seen


@triton.jit
def _count(at, keys, CAUSAL: tl.constexpr, WINDOW: tl.constexpr):
    """How many keys queries at some positions see."""
    first, last = at * 0, at * 0 + keys
    if WINDOW > 0:
        first, last = tl.maximum(at - WINDOW + 1, 0), tl.minimum(at + WINDOW, keys)
    if CAUSAL:
        last = tl.minimum(at + 1, keys)
    return tl.maximum(last - first, 0).to(tl.float32)


@triton.jit
def _added(top, mass, tilt, products, bits, seen, MASKED: tl.constexpr):
    """Statistics of rows after a block more of products q . k, those not seen being -inf; times `bits` they are logits."""
    new = tl.maximum(top, tl.max(products, 1) * bits)
    base = new
    if MASKED:
        base = tl.where(new == NOTHING, 0.0, new)
    x = products * bits - base[:, None]  # one instruction: the products are not scaled before
    p = tl.exp2(x)
    if MASKED:
        x = tl.where(seen, x, 0.0)
    fade = tl.exp2(top - base)
    tilt = fade * (tilt + tl.where(mass > 0, mass * (top - base), 0.0)) + tl.sum(p * x, 1)
    return new, fade * mass + tl.sum(p, 1), tilt


@triton.jit
def _through(
    top, mass, tilt, q, K, b, g, start, stop, keys, at, bits,
    BN: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, MASKED: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Statistics of rows after the keys from start to stop; where not MASKED, each row sees each of them."""
    for begin in tl.range(start, stop, BN, num_stages=STAGES):
        k = K.load([b, g, begin, 0]).reshape(BN, q.shape[1])  # zeros outside
        products, seen = tl.dot(q, tl.trans(k)), True
        if MASKED:
            seen = _seen(at, begin + tl.arange(0, BN), keys, CAUSAL, WINDOW)
            products = tl.where(seen, products, NOTHING)
        top, mass, tilt = _added(top, mass, tilt, products, bits, seen, MASKED)
    return top, mass, tilt


@triton.jit
def statistics(
    Q, K, SHARP, ENTROPY, BETA, bits, heads, group, queries, keys, q_batch, q_head, q_row,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    STAGES: tl.constexpr, TABLE: tl.constexpr, COLUMNS: tl.constexpr, BOUNDS: tl.constexpr, EXP: tl.constexpr,
):  # fmt: skip
    """Entropy, beta and beta q of every row by one matrix product. A program has BM queries of a head, the last first.

    K is a tensor descriptor, so that the copy engine of a Hopper card finds the addresses: threads would spend a fifth on them.
    """
    block = tl.cdiv(queries, BM) - 1 - tl.program_id(0)
    b, h = tl.program_id(1) // heads, tl.program_id(1) % heads
    row, dim = block * BM + tl.arange(0, BM), tl.arange(0, BD)
    spot = Q + b.to(tl.int64) * q_batch + h.to(tl.int64) * q_head + row[:, None].to(tl.int64) * q_row + dim[None, :]
    q = tl.load(spot, mask=(row < queries)[:, None] & (dim < D)[None, :], other=0.0)
    g = h // group
    first = block * BM + keys - queries
    at = first + tl.arange(0, BM)
    start, stop, plain = 0, keys, keys // BN * BN  # up to `plain`, each row of the block sees each key
    if CAUSAL:
        stop = tl.minimum(tl.maximum(first + BM, 0), keys)
        plain = tl.maximum(first + 1, 0) // BN * BN
    if WINDOW > 0:
        start = tl.maximum(first - WINDOW + 1, 0) // BN * BN
        plain = start
        if not CAUSAL:
            stop = tl.minimum(first + BM - 1 + WINDOW, keys)
    top, mass, tilt = tl.full([BM], NOTHING, tl.float32), tl.zeros([BM], tl.float32), tl.zeros([BM], tl.float32)
    top, mass, tilt = _through(top, mass, tilt, q, K, b, g, start, plain, keys, at, bits, BN, CAUSAL, WINDOW, False, STAGES)
    top, mass, tilt = _through(top, mass, tilt, q, K, b, g, plain, stop, keys, at, bits, BN, CAUSAL, WINDOW, True, STAGES)
    entropy = _entropy(mass, tilt)
    beta = _beta(entropy, _count(at, keys, CAUSAL, WINDOW), TABLE, COLUMNS, BOUNDS, EXP)
    if q.dtype == tl.float16:  # which beta q must fit
        beta = tl.minimum(beta, 65504.0 / tl.maximum(tl.max(tl.abs(q.to(tl.float32)), 1), 1.0), propagate_nan=ALL)
    found = tl.program_id(1).to(tl.int64) * queries + row
    tl.store(ENTROPY + found, entropy, mask=row < queries)
    tl.store(BETA + found, beta, mask=row < queries)
    sharp = (q.to(tl.float32) * beta[:, None]).to(q.dtype)
    tl.store(SHARP + found[:, None] * D + dim[None, :], sharp, mask=(row < queries)[:, None] & (dim < D)[None, :])


@triton.jit
def _span(split, chunk, keys, queries, BN: tl.constexpr, WINDOW: tl.constexpr):
    """The keys of one split that some query may see: whole blocks of BN, the last perhaps cut short."""
    start, stop = split * chunk, tl.minimum(split * chunk + chunk, keys)
    if WINDOW > 0:
        start = tl.maximum(start, tl.maximum(keys - queries - WINDOW + 1, 0) // BN * BN)
    return start, stop


@triton.jit
def scores(
    Q, K, X, PARTS, bits, group, queries, keys, chunk, heads, q_batch, q_head, q_row, k_batch, k_head, k_row,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Decoding, first half: the logits of few queries with a run of keys, kept, and the statistics of that part of each row.

    A program has all the queries that share one head of the keys, BM rows at most: K is read once.
    """
    split, pair = tl.program_id(0), tl.program_id(1)
    b, g = (pair // heads).to(tl.int64), (pair % heads).to(tl.int64)
    row, column, dim = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BD)
    real, at = row < group * queries, keys - queries + row % queries
    asked = Q + b * q_batch + (g * group + row // queries)[:, None] * q_head + (row % queries)[:, None] * q_row + dim[None, :]
    q = tl.load(asked, mask=real[:, None] & (dim < D)[None, :], other=0.0)
    place = K + b * k_batch + g * k_head
    kept = X + (pair * group * queries + row).to(tl.int64)[:, None] * keys
    top, mass, tilt = tl.full([BM], NOTHING, tl.float32), tl.zeros([BM], tl.float32), tl.zeros([BM], tl.float32)
    start, stop = _span(split, chunk, keys, queries, BN, WINDOW)
    for begin in tl.range(start, stop, BN, num_stages=STAGES):
        j = begin + column
        near = (j < stop)[None, :]
        spot = place + j[None, :].to(tl.int64) * k_row + dim[:, None]
        x = tl.dot(q, tl.load(spot, mask=near & (dim < D)[:, None], other=0.0)) * bits
        seen = _seen(at, j, stop, CAUSAL, WINDOW)
        x = tl.where(seen, x, NOTHING)
        tl.store(kept + j[None, :], x, mask=near & real[:, None])
        top, mass, tilt = _added(top, mass, tilt, x, 1.0, seen, True)
    part = PARTS + (pair * tl.num_programs(0) + split).to(tl.int64) * 3 * BM + row
    tl.store(part, top)
    tl.store(part + BM, mass)
    tl.store(part + 2 * BM, tilt)


@triton.jit
def _whole(PARTS, pair, splits, BM: tl.constexpr, BZ: tl.constexpr):
    """Statistics of whole rows from those of their parts."""
    z, row = tl.arange(0, BZ), tl.arange(0, BM)
    part = PARTS + (pair * splits + z).to(tl.int64)[:, None] * 3 * BM + row[None, :]
    have = (z < splits)[:, None] & (row >= 0)[None, :]
    tops = tl.load(part, mask=have, other=NOTHING)
    masses, tilts = tl.load(part + BM, mask=have, other=0.0), tl.load(part + 2 * BM, mask=have, other=0.0)
    top = tl.max(tops, 0)
    base = tl.where(top == NOTHING, 0.0, top)
    fade, gap = tl.exp2(tops - base[None, :]), tl.where(masses > 0, tops - base[None, :], 0.0)
    return base, tl.sum(fade * masses, 0), tl.sum(fade * (tilts + masses * gap), 0)


@triton.jit
def mixtures(
    X, V, PARTS, MIXED, TOTAL, ENTROPY, BETA, group, queries, keys, chunk, heads, v_batch, v_head, v_row,
    E: tl.constexpr, BE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BZ: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, STAGES: tl.constexpr,
    TABLE: tl.constexpr, COLUMNS: tl.constexpr, BOUNDS: tl.constexpr, EXP: tl.constexpr,
):  # fmt: skip
    """Decoding, second half: beta from the whole rows, then the sum of a run of values under sharpened weights.

    The largest logit is known by now, so that parts of a row need no more than adding up.
    """
    split, pair, splits = tl.program_id(0), tl.program_id(1), tl.num_programs(0)
    b, g = (pair // heads).to(tl.int64), (pair % heads).to(tl.int64)
    row, column, dim = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BE)
    real, at = row < group * queries, keys - queries + row % queries
    top, mass, tilt = _whole(PARTS, pair, splits, BM, BZ)
    entropy = _entropy(mass, tilt)
    beta = _beta(entropy, _count(at, keys, CAUSAL, WINDOW), TABLE, COLUMNS, BOUNDS, EXP)
    if split == 0:
        tl.store(ENTROPY + pair * group * queries + row, entropy, mask=real)
        tl.store(BETA + pair * group * queries + row, beta, mask=real)
    place = V + b * v_batch + g * v_head + dim[None, :]
    kept = X + (pair * group * queries + row).to(tl.int64)[:, None] * keys
    mixed, total = tl.zeros([BM, BE], tl.float32), tl.zeros([BM], tl.float32)
    start, stop = _span(split, chunk, keys, queries, BN, WINDOW)
    for begin in tl.range(start, stop, BN, num_stages=STAGES):
        j = begin + column
        x = tl.load(kept + j[None, :], mask=(j < stop)[None, :] & real[:, None], other=NOTHING)
        v = tl.load(place + j[:, None].to(tl.int64) * v_row, mask=(j < stop)[:, None] & (dim < E)[None, :], other=0.0)
        p = tl.where(x == NOTHING, 0.0, tl.exp2(beta[:, None] * (x - top[:, None])))
        total += tl.sum(p, 1)
        mixed = tl.dot(p.to(v.dtype), v, mixed)
    part = (pair * splits + split).to(tl.int64) * BM + row
    tl.store(TOTAL + part, total)
    tl.store(MIXED + part[:, None] * BE + dim[None, :], mixed)


@triton.jit
def gathered(MIXED, TOTAL, OUT, rows, splits, E: tl.constexpr, BE: tl.constexpr, BM: tl.constexpr, BZ: tl.constexpr):
    """The output of one row from its parts; zeros for a row that sees no key."""
    pair, row = tl.program_id(0) // rows, tl.program_id(0) % rows
    z, dim = tl.arange(0, BZ), tl.arange(0, BE)
    part, have = (pair * splits + z).to(tl.int64) * BM + row, z < splits
    total = tl.sum(tl.load(TOTAL + part, mask=have, other=0.0), 0)
    mixed = tl.sum(tl.load(MIXED + part[:, None] * BE + dim[None, :], mask=have[:, None], other=0.0), 0)
    out = mixed / tl.where(total > 0, total, 1.0)
    tl.store(OUT + tl.program_id(0).to(tl.int64) * E + dim, out.to(OUT.dtype.element_ty), mask=dim < E)
