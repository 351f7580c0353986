"""One step of the delta rule and its gradient: W is [key, value] here, and the write is u = beta e with e = v - k W.

Additive, e is v alone.
"""

from __future__ import annotations

from assay.ops.cpu.jit import inline
from assay.ops.cpu.lanes import add_outer, add_outer_into, copy, matrix_times, take, times_matrix, write_and_read
from assay.ops.cpu.vector import load, store, zero


@inline
def scaled(beta, e, u, n):
    """u = beta e."""
    for c in range(n):
        store(u, c, load(beta, 0) * load(e, c))


@inline
def delta_step(W, q, k, v, beta, e, u, o, K, V, additive):
    """e = v - k W, W += k^T beta e, o = q W."""
    if additive:
        copy(v, e)
    else:
        times_matrix(k, W, e, K, V)
        for c in range(V):
            store(e, c, load(v, c) - load(e, c))
    scaled(beta, e, u, V)
    write_and_read(k, u, W, q, o, K, V)


@inline
def states_of_segment(start, k, beta, e, states, u, K, V):
    """The states before each step of a segment, from the one at its start and the segment's k, beta and e."""
    copy(start, take(states, 0, K * V))
    for t in range(len(e) - 1):
        W, after = take(states, t * K * V, K * V), take(states, (t + 1) * K * V, K * V)
        scaled(beta[t], e[t], u, V)
        add_outer_into(W, k[t], u, after, K, V)


@inline
def delta_step_back(W, dW, q, k, beta, e, do, dq, dk, dv, dbeta, u, W_u, K, V, additive):
    """From the gradients of o and of the new state in dW, those of q, k, v, beta and, in dW, of the state W before."""
    scaled(beta, e, u, V)
    shared = zero(W)
    for c in range(V):
        shared = shared + load(u, c) * load(do, c)
    matrix_times(W, do, dq, K, V)
    for j in range(K):
        store(dq, j, load(dq, j) + load(k, j) * shared)
    add_outer(q, do, dW, K, V)
    times_matrix(k, dW, dv, K, V)  # of u, until it is scaled to that of e
    matrix_times(dW, u, dk, K, V)
    summed = zero(W)
    for c in range(V):
        du = load(dv, c)
        summed = summed + load(e, c) * du
        store(dv, c, load(beta, 0) * du)
        store(u, c, -load(dv, c))
    store(dbeta, 0, summed)
    if additive:
        return
    matrix_times(W, u, W_u, K, V)
    for j in range(K):
        store(dk, j, load(dk, j) + load(W_u, j))
    add_outer(k, u, dW, K, V)
