// EM routing (document 004, Procedure 1) and all its gradients in one kernel.
//
// em_routing.py is the form to read; this one gives the same numbers up to rounding. The lanes of a vector hold
// parents' types. Children are processed four at a time, one row of their poses at a time, so that what belongs to the
// parent is loaded once for all four. The shares of children among parents are kept for the backward pass.
//
// A vote of a matrix takes four multiplications a number, so it is computed again in registers wherever it is needed.
// That of a vector takes 16, and its transformations fill a cache: votes of an image are computed once for all parent
// positions, so that each transformation is loaded once, and are stored for all iterations.
//
// Shapes: B images; X positions below with c types each; poses of P = R I numbers (R rows of I: a 4x4 matrix has R = I
// = 4, a vector of 16 has R = 1, I = 16); p parent positions with k positions below each, N = k c children; D parent
// types in G groups of L lanes; lanes past D are empty. Votes are relative to their plain mean for each parent
// (`centre`). The result of routing does not depend on it, but float32 is too short for squares of votes that agree far
// from 0.
//
// Threads process chunks of images. Sums over images are kept by chunk and added in order, so that the result has the
// same bits for any number of threads.

#include "kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>
#include <vector>

namespace {

constexpr int64_t IMAGES = 4;       // of a chunk, at least
constexpr float LEAST_MASS = 1e-7f; // added to masses that are divided by, as in the authors' code
constexpr int64_t MOST_ITERATIONS = 8;
constexpr float EMPTY = -1e30f; // log density of lanes without a parent

#define FLAT __attribute__((always_inline))

// log of positive normal numbers, to about 1 ulp.
template <int L> INLINE F<L> log(F<L> x) {
    I32<L> bits = (I32<L>)x;
    I32<L> e = (bits >> 23) - 126;
    F<L> m = (F<L>)((bits & 0x007fffff) | 0x3f000000); // in [0.5, 1)
    I32<L> low = m < broadcast<L>(0.707106781186547524f);
    e = e + low; // a true comparison is -1
    m = select<L>(low, m + m, m) - 1.0f;
    F<L> n = __builtin_convertvector(e, F<L>), z = m * m;
    F<L> y = broadcast<L>(7.0376836292e-2f);
    y = y * m - 1.1514610310e-1f;
    y = y * m + 1.1676998740e-1f;
    y = y * m - 1.2420140846e-1f;
    y = y * m + 1.4249322787e-1f;
    y = y * m - 1.6668057665e-1f;
    y = y * m + 2.0000714765e-1f;
    y = y * m - 2.4999993993e-1f;
    y = y * m + 3.3333331174e-1f;
    y = y * m * z + n * -2.12194440e-4f - 0.5f * z;
    return m + y + n * 0.693359375f;
}

// Derivative of the log of the gamma function, and its own derivative, at x > 0: recurrences up to x + 6 and asymptotic
// series there, whose first terms left out are below 1e-8.
template <int L> INLINE F<L> digamma(F<L> x) {
    F<L> shift = {};
    for (int i = 0; i < 6; i++) shift += 1.0f / (x + (float)i);
    const F<L> y = 1.0f / (x + 6.0f), z = y * y;
    return log<L>(x + 6.0f) - 0.5f * y - z * (1.0f / 12 - z * (1.0f / 120 - z * (1.0f / 252))) - shift;
}
template <int L> INLINE F<L> trigamma(F<L> x) {
    F<L> shift = {};
    for (int i = 0; i < 6; i++) {
        const F<L> each = 1.0f / (x + (float)i);
        shift += each * each;
    }
    const F<L> y = 1.0f / (x + 6.0f), z = y * y;
    return y + 0.5f * z + y * z * (1.0f / 6 - z * (1.0f / 30 - z * (1.0f / 42))) + shift;
}

} // namespace

extern "C" {

// A layer and its inputs. All arrays are contiguous.
struct Layer {
    int64_t images, positions, types_below, rows, inner, parents, field, types, groups, lanes, iterations;
    int64_t places;      // sets of transformations: k, or 1 for the whole receptive field
    int64_t competition; // 0: all parents of a child; 1: those of each position by themselves
    int64_t activation;  // 0: description length; 1: mixing proportion; 2: variational Bayes
    int64_t threads;
    int64_t wishart, shares_of_position, logits; // of variational Bayes; see em_routing.py
    float variance_floor, damping, first_damping; // the latter towards a pose of 0
    float alpha0, kappa0, nu0, psi0;   // priors of variational Bayes
    const float *inverse_temperatures; // of each iteration
    const int32_t *children;           // [p, k]: positions below
    const int32_t *slots;              // [X, most]: places p k + kk that see a position, filled up with -1
    int64_t most;
    const float *even;                // [p, k]: shares of the first iteration
    const float *offsets;             // [k, P], or null
    const float *poses, *activations; // [B, X, c, P], [B, X, c]
    const float *transformations;     // [places, c, G, I, I, L]
    const float *beta_a, *beta_u;     // [G, L]
};

struct Gradients {
    const float *poses, *activations;       // of the parents: [B, p, D, P], [B, p, D]
    float *child_poses, *child_activations; // [B, X, c, P], [B, X, c], zeros at first
    float *transformations, *betas;         // zeros at first: [places, c, G, I, I, L] (or null), [2, G, L]
};
}

namespace {

// Sizes, in vectors, of what is kept of one image for the way back.
struct Kept {
    int64_t centre, moments, poses, precisions, activations, shares, all;
    explicit Kept(const Layer &l) {
        const int64_t P = l.rows * l.inner, parents = l.parents * l.groups, N = l.field * l.types_below;
        int64_t at = 0;
        auto next = [&](int64_t size) {
            int64_t start = at;
            at += size;
            return start;
        };
        centre = next(parents * P);
        moments = next(l.iterations * parents * (1 + 2 * P));
        poses = next(l.iterations * parents * P);
        precisions = next(l.iterations * parents * P);
        activations = next(l.iterations * parents);
        shares = next((l.iterations - 1) * parents * N);
        all = at;
    }
};

template <int L, int R, int I> struct Router {
    using V = F<L>;
    static constexpr int P = R * I;
    static constexpr int MOMENTS = 1 + 2 * P; // mass, first, second
    static constexpr bool STORED = R == 1;    // whether the votes of an image are stored
    const Layer &l;
    const int64_t c, k, N, G, T, parents;
    const Kept kept;
    const V *W;
    V *const stored; // [p, G, N, P]: votes and then, in the backward pass, gradients by votes

    explicit Router(const Layer &layer, V *memory = nullptr)
        : l(layer), c(layer.types_below), k(layer.field), N(k * c), G(layer.groups), T(layer.iterations),
          parents(layer.parents * layer.groups), kept(layer), W((const V *)layer.transformations), stored(memory) {}

    int64_t stored_size() const { return STORED ? parents * N * P : 0; }
    V *stored_at(int64_t q, int64_t g, int64_t n) const { return stored + ((q * G + g) * N + n) * P; }

    const V *transformation(int64_t place, int64_t type, int64_t g) const {
        return W + (((l.places > 1 ? place : 0) * c + type) * G + g) * I * I;
    }

    // Row r of the votes of C children for one parent group, from `origin [I]` on; `w`: what `each_child` passes.
    template <int C>
    INLINE static void votes(V (&v)[C][I], const V *origin, const float *u, const V *w, int64_t stride, int r) {
        for (int child = 0; child < C; child++) {
            for (int j = 0; j < I; j++) v[child][j] = STORED ? origin[j] + w[child * stride + j] : origin[j];
            for (int s = 0; !STORED && s < I; s++) {
                const float x = u[child * P + r * I + s];
                for (int j = 0; j < I; j++) v[child][j] += x * w[child * stride + s * I + j];
            }
        }
    }

    // `f(place, type, g, transformation)`, for all transformations.
    template <class Function> INLINE void each_transformation(Function f) const {
        for (int64_t kk = 0; kk < k; kk++)
            for (int64_t type = 0; type < c; type++)
                for (int64_t g = 0; g < G; g++) f(kk, type, g, transformation(kk, type, g));
    }

    // Stores the votes of an image, without origin.
    void store(const float *poses) const {
        each_transformation([&](int64_t kk, int64_t type, int64_t g, const V *w) FLAT {
            for (int64_t q = 0; q < l.parents; q++) {
                const float *u = poses + (l.children[q * k + kk] * c + type) * P;
                V v[I] = {};
                for (int s = 0; s < I; s++)
                    for (int j = 0; j < I; j++) v[j] += u[s] * w[s * I + j];
                std::copy(v, v + P, stored_at(q, g, kk * c + type));
            }
        });
    }

    // The gradient by a pose and its transformation from that by the vote, `[P]`.
    INLINE static void through_vote(const V *by_vote, const float *u, const V *w, float *grad_u, V *grad_w) {
        for (int r = 0; r < R; r++)
            for (int i = 0; i < I; i++) {
                V total = {};
                for (int j = 0; j < I; j++) total += by_vote[r * I + j] * w[i * I + j];
                grad_u[r * I + i] += sum<L>(total);
            }
        if (!grad_w) return;
        for (int i = 0; i < I; i++)
            for (int j = 0; j < I; j++) {
                V total = grad_w[i * I + j];
                for (int r = 0; r < R; r++) total += u[r * I + i] * by_vote[r * I + j];
                grad_w[i * I + j] = total;
            }
    }

    // `through_vote` for all stored gradients.
    void through_stored(const float *poses, float *grad_poses, V *grad_transformations) const {
        each_transformation([&](int64_t kk, int64_t type, int64_t g, const V *w) FLAT {
            V *grad_w = grad_transformations ? grad_transformations + (w - W) : nullptr;
            for (int64_t q = 0; q < l.parents; q++) {
                const int64_t at = (l.children[q * k + kk] * c + type) * P;
                through_vote(stored_at(q, g, kk * c + type), poses + at, w, grad_poses + at, grad_w);
            }
        });
    }

    // `f(count, n, poses, w, start)` for the children of parent (q, g): four of a position at a time while there are
    // four, then one; `w`: the first one's transformation or, if votes are stored, its vote, and those of the others
    // `stride` later; `start [P]` is `origin`, coordinates added.
    template <class Function>
    INLINE void each_child(const float *poses, int64_t q, int64_t g, const V *origin, Function f) const {
        V moved[P];
        for (int64_t kk = 0; kk < k; kk++) {
            const float *at = poses + l.children[q * k + kk] * c * P;
            const V *start = origin;
            if (l.offsets) {
                for (int h = 0; h < P; h++) moved[h] = origin[h] + l.offsets[kk * P + h];
                start = moved;
            }
            const V *w = STORED ? stored_at(q, g, kk * c) : transformation(kk, 0, g);
            int64_t type = 0;
            for (; type + 4 <= c; type += 4)
                f(std::integral_constant<int, 4>{}, kk * c + type, at + type * P, w + type * stride(), start);
            for (; type < c; type++)
                f(std::integral_constant<int, 1>{}, kk * c + type, at + type * P, w + type * stride(), start);
        }
    }

    // Plain means of the votes with the other sign, [parents, P]: what votes start from.
    void centre(const float *poses, V *out) const {
        for (int64_t q = 0; q < l.parents; q++)
            for (int64_t g = 0; g < G; g++) {
                V total[P] = {}, zero[P] = {};
                each_child(poses, q, g, zero,
                           [&](auto count, int64_t, const float *u, const V *w, const V *start) FLAT {
                               constexpr int C = decltype(count)::value;
                               for (int r = 0; r < R; r++) {
                                   V v[C][I];
                                   votes<C>(v, start + r * I, u, w, stride(), r);
                                   for (int j = 0; j < I; j++)
                                       for (int child = 0; child < C; child++) total[r * I + j] += v[child][j];
                               }
                           });
                for (int h = 0; h < P; h++) out[(q * G + g) * P + h] = total[h] * (-1.0f / N);
            }
    }

    int64_t stride() const { return STORED ? P : G * I * I; }

    // Mass, first and second moments of the votes from `origin [P]`, for parent (q, g). Weights [N] are every G-th of
    // `shares` (the even ones if null), times the activations of the children if `active` is given.
    INLINE void moments(const float *poses, const float *active, const V *shares, const V *origin, int64_t q, int64_t g,
                        V *out) const {
        V sums[MOMENTS] = {};
        each_child(poses, q, g, origin, [&](auto count, int64_t n, const float *u, const V *w, const V *start) FLAT {
            constexpr int C = decltype(count)::value;
            V weight[C];
            for (int child = 0; child < C; child++) {
                weight[child] = shares ? shares[(n + child) * G] : V{} + l.even[q * k + n / c];
                if (active) weight[child] *= active[l.children[q * k + n / c] * c + n % c + child];
                sums[0] += weight[child];
            }
            for (int r = 0; r < R; r++) {
                V v[C][I];
                votes<C>(v, start + r * I, u, w, stride(), r);
                for (int j = 0; j < I; j++)
                    for (int child = 0; child < C; child++) {
                        const V weighted = weight[child] * v[child][j];
                        sums[1 + r * I + j] += weighted;
                        sums[1 + P + r * I + j] += weighted * v[child][j];
                    }
            }
        });
        for (int h = 0; h < MOMENTS; h++) out[h] = sums[h];
    }

    // For every child of parent (q, g): constant - sum_h precision_h (vote_h - pose_h)^2. `precision` is half of it.
    INLINE void log_densities(const float *poses, const V *centre, const V *pose, const V *precision, V constant,
                              int64_t q, int64_t g, V *out) const {
        V origin[P];
        for (int h = 0; h < P; h++) origin[h] = centre[h] - pose[h];
        each_child(poses, q, g, origin, [&](auto count, int64_t n, const float *u, const V *w, const V *start) FLAT {
            constexpr int C = decltype(count)::value;
            V total[C];
            for (int child = 0; child < C; child++) total[child] = constant;
            for (int r = 0; r < R; r++) {
                V v[C][I];
                votes<C>(v, start + r * I, u, w, stride(), r);
                for (int j = 0; j < I; j++)
                    for (int child = 0; child < C; child++)
                        total[child] -= precision[r * I + j] * (v[child][j] * v[child][j]);
            }
            for (int child = 0; child < C; child++) out[(n + child) * G] = total[child];
        });
    }

    // For every child of parent (q, g): mass + sum_h (first_h + second_h vote_h) vote_h.
    INLINE void through_moments(const float *poses, const V *centre, const V *gradient, int64_t q, int64_t g,
                                V *out) const {
        each_child(poses, q, g, centre, [&](auto count, int64_t n, const float *u, const V *w, const V *start) FLAT {
            constexpr int C = decltype(count)::value;
            V total[C];
            for (int child = 0; child < C; child++) total[child] = gradient[0];
            for (int r = 0; r < R; r++) {
                V v[C][I];
                votes<C>(v, start + r * I, u, w, stride(), r);
                for (int j = 0; j < I; j++)
                    for (int child = 0; child < C; child++)
                        total[child] +=
                            (gradient[1 + r * I + j] + gradient[1 + P + r * I + j] * v[child][j]) * v[child][j];
            }
            for (int child = 0; child < C; child++) out[(n + child) * G] = total[child];
        });
    }

    // ---- a child among its parents: `logits`, `shares` are [p, N, G]

    // `f(position below, type, places [count], count)` for every child that some parent sees.
    template <class Function> INLINE void each_below(Function f) const {
        for (int64_t x = 0; x < l.positions; x++) {
            const int32_t *slots = l.slots + x * l.most;
            int64_t count = 0;
            while (count < l.most && slots[count] >= 0) count++;
            if (!count) continue;
            for (int64_t type = 0; type < c; type++) {
                if (l.competition == 0)
                    f(x, type, slots, count);
                else
                    for (int64_t s = 0; s < count; s++) f(x, type, slots + s, 1);
            }
        }
    }

    void share(V *logits) const {
        each_below([&](int64_t, int64_t type, const int32_t *slots, int64_t count) FLAT {
            V most = broadcast<L>(EMPTY);
            for (int64_t s = 0; s < count; s++)
                for (int64_t g = 0; g < G; g++) most = larger<L>(most, logits[(slots[s] * c + type) * G + g]);
            const float top = largest<L>(most);
            V all = {};
            for (int64_t s = 0; s < count; s++)
                for (int64_t g = 0; g < G; g++) {
                    V &each = logits[(slots[s] * c + type) * G + g];
                    all += each = exp<L>(each - top);
                }
            const float scale = 1.0f / sum<L>(all);
            for (int64_t s = 0; s < count; s++)
                for (int64_t g = 0; g < G; g++) logits[(slots[s] * c + type) * G + g] *= scale;
        });
    }

    // Turns `gradient` by the weights of moments into the gradient by the logits, in place, and adds that by the
    // children's activations to `grad_active`. With `shares` null (the first iteration) there are no logits.
    void through_share(const V *shares, const float *active, V *gradient, float *grad_active) const {
        each_below([&](int64_t x, int64_t type, const int32_t *slots, int64_t count) FLAT {
            V all = {};
            for (int64_t s = 0; s < count; s++)
                for (int64_t g = 0; g < G; g++) {
                    const int64_t at = (slots[s] * c + type) * G + g;
                    all += gradient[at] * (shares ? shares[at] : V{} + l.even[slots[s]]);
                }
            const float mean = sum<L>(all), a = active[x * c + type];
            grad_active[x * c + type] += mean;
            if (!shares) return;
            for (int64_t s = 0; s < count; s++)
                for (int64_t g = 0; g < G; g++) {
                    const int64_t at = (slots[s] * c + type) * G + g;
                    gradient[at] = a * shares[at] * (gradient[at] - mean);
                }
        });
    }

    // ---- a parent: M-steps. Pointers are to one parent group; `before` is its pose in the iteration before, or where a
    // pose of 0 lies, which has the weight `damping` in the new one.

    struct Step {
        V pose[P], spread[P], variance[P], mass, sum_log;
    };

    INLINE void gaussian(const V *moments, const V *before, float damping, Step &step) const {
        step.mass = moments[0] + LEAST_MASS;
        step.sum_log = V{};
        const V inverse = 1.0f / step.mass;
        for (int h = 0; h < P; h++) {
            const V first = moments[1 + h], mean = first * inverse;
            const V pose = (1 - damping) * mean + damping * before[h];
            V spread = moments[1 + P + h] - 2.0f * pose * first + pose * pose * moments[0];
            spread = larger<L>(spread, V{});
            step.pose[h] = pose;
            step.spread[h] = spread;
            step.variance[h] = l.variance_floor + spread * inverse;
            step.sum_log += log<L>(step.variance[h]);
        }
    }

    INLINE V filled(int64_t g) const { // lanes with a parent
        V lane;
        for (int i = 0; i < L; i++) lane[i] = g * L + i < l.types ? 1.0f : 0.0f;
        return lane;
    }

    V total_mass(const V *moments) const {
        V all = {};
        for (int64_t g = 0; g < G; g++)
            for (int64_t q = 0; q < l.parents; q++) all += moments[(q * G + g) * MOMENTS] * filled(g);
        return broadcast<L>(std::fmax(sum<L>(all), LEAST_MASS));
    }

    // Logistic and its logarithm.
    INLINE static void logistic(V x, V &value, V &logarithm) {
        const V size = select<L>(x > V{}, x, -x), e = exp<L>(-size), small = 1.0f / (1.0f + e);
        value = select<L>(x > V{}, small, e * small);
        // log(1 + e) loses what is small in e: its series takes over
        const V grown = 1.0f + e;
        const V log1p = select<L>(e < broadcast<L>(1e-3f), e * (1.0f - e * (0.5f - e * (1.0f / 3))), log<L>(grown));
        logarithm = select<L>(x > V{}, V{}, x) - log1p;
    }

    // ---- M-step of variational Bayes: posteriors in closed form (em_routing.py). `origin` is where a pose of 0 lies.

    struct Posterior {
        V strength, shape, share, log_share, entropy, mean[P], rate[P], inside[P], log_precision;
    };

    V freedom(V shape, int h) const { return l.wishart ? shape - 0.5f * h : shape; }

    // For each position, the sum by which the shares of its capsules are normalised.
    std::vector<float> total_shares(const V *moments) const {
        std::vector<float> totals(l.parents);
        float all = 0;
        for (int64_t q = 0; q < l.parents; q++) {
            V each = {};
            for (int64_t g = 0; g < G; g++) each += (l.alpha0 + moments[(q * G + g) * MOMENTS]) * filled(g);
            all += totals[q] = sum<L>(each);
        }
        if (!l.shares_of_position) std::fill(totals.begin(), totals.end(), all);
        return totals;
    }

    INLINE void posterior(const V *m, const V *origin, float total, Posterior &post) const {
        post.strength = l.kappa0 + m[0];
        post.shape = 0.5f * l.nu0 + 0.5f * m[0];
        post.share = l.alpha0 + m[0];
        post.log_share = digamma<L>(post.share) - digamma<L>(broadcast<L>(total));
        V log_precision = {}, same = digamma<L>(post.shape);
        for (int h = 0; h < P; h++) {
            post.mean[h] = (m[1 + h] + l.kappa0 * origin[h]) / post.strength;
            const V scatter =
                m[1 + P + h] + l.kappa0 * origin[h] * origin[h] - post.strength * post.mean[h] * post.mean[h];
            post.inside[h] = select<L>(scatter > V{}, broadcast<L>(1.0f), V{});
            post.rate[h] = 0.5f / l.psi0 + 0.5f * larger<L>(scatter, V{});
            log_precision += (l.wishart ? digamma<L>(freedom(post.shape, h)) : same) - log<L>(post.rate[h]);
        }
        post.log_precision = log_precision;
        post.entropy = 0.5f * (P * 2.8378770664093453f - log_precision);
    }

    void bayes(const V *moments, const V *origins, V *pose, V *precision, V *activation, V *constant) const {
        const V *beta_a = (const V *)l.beta_a, *beta_u = (const V *)l.beta_u;
        const std::vector<float> totals = total_shares(moments);
        for (int64_t q = 0; q < l.parents; q++)
            for (int64_t g = 0; g < G; g++) {
                const int64_t at = q * G + g;
                Posterior post;
                posterior(moments + at * MOMENTS, origins + at * P, totals[q], post);
                for (int h = 0; h < P; h++) {
                    pose[at * P + h] = post.mean[h];
                    precision[at * P + h] = 0.5f * post.shape / post.rate[h];
                }
                const V x = beta_a[g] - exp<L>(post.log_share) * ((float)P * beta_u[g] + post.entropy);
                V unused;
                if (l.logits)
                    activation[at] = x;
                else
                    logistic(x, activation[at], unused);
                const V density =
                    post.log_share + 0.5f * (post.log_precision - P * 1.8378770664093453f) - (0.5f * P) / post.strength;
                constant[at] = select<L>(filled(g) > V{}, density, broadcast<L>(EMPTY));
            }
    }

    // As `through_m_step`.
    void through_bayes(const V *moments, const V *origins, const V *precision, const V *activation,
                       const V *grad_activation, const V *logit_moments, V *grad_pose, V *grad_moments,
                       V *grad_betas) const {
        const V *beta_u = (const V *)l.beta_u;
        const std::vector<float> totals = total_shares(moments);
        std::vector<float> by_totals(l.parents);
        float by_all = 0;
        for (int64_t q = 0; q < l.parents; q++) {
            V by_total = {};
            for (int64_t g = 0; g < G; g++) {
                const int64_t at = q * G + g;
                Posterior post;
                posterior(moments + at * MOMENTS, origins + at * P, totals[q], post);
                const V *by = logit_moments ? logit_moments + at * MOMENTS : nullptr;
                const V by_constant = by ? by[0] : V{}, active = activation[at];
                V by_x = grad_activation ? grad_activation[at] : V{};
                if (!l.logits) by_x *= active * (1.0f - active);
                const V share = exp<L>(post.log_share), cost = (float)P * beta_u[g] + post.entropy;
                grad_betas[g] += by_x;
                grad_betas[G + g] -= by_x * share * (float)P;
                const V by_log_precision = 0.5f * by_x * share + 0.5f * by_constant;
                const V by_log_share = by_constant - by_x * cost * share;
                by_total -= by_log_share * filled(g);
                V by_strength = (0.5f * P) * by_constant / (post.strength * post.strength), by_shape = {};
                V *out = grad_moments + at * MOMENTS;
                const V same = trigamma<L>(post.shape);
                for (int h = 0; h < P; h++) {
                    const V rate = 1.0f / post.rate[h], half = precision[at * P + h];
                    const V by_half = by ? -by[1 + P + h] : V{};
                    V by_mean = grad_pose[at * P + h];
                    if (by) by_mean += 2.0f * half * by[1 + h];
                    by_shape += 0.5f * by_half * rate;
                    by_shape += by_log_precision * (l.wishart ? trigamma<L>(freedom(post.shape, h)) : same);
                    const V by_rate = -(by_half * half + by_log_precision) * rate;
                    const V by_scatter = 0.5f * by_rate * post.inside[h];
                    by_mean -= 2.0f * by_scatter * post.strength * post.mean[h];
                    by_strength -= by_scatter * post.mean[h] * post.mean[h];
                    by_strength -= by_mean * post.mean[h] / post.strength;
                    out[1 + h] = by_mean / post.strength;
                    out[1 + P + h] = by_scatter;
                    grad_pose[at * P + h] = V{};
                }
                out[0] = by_strength + 0.5f * by_shape + by_log_share * trigamma<L>(post.share);
            }
            by_all += by_totals[q] = sum<L>(by_total);
        }
        if (!l.shares_of_position) std::fill(by_totals.begin(), by_totals.end(), by_all);
        for (int64_t q = 0; q < l.parents; q++) {
            const V each = by_totals[q] * trigamma<L>(broadcast<L>(totals[q]));
            for (int64_t g = 0; g < G; g++) grad_moments[(q * G + g) * MOMENTS] += each * filled(g);
        }
    }

    // ---- M-steps of EM

    void m_step(const V *moments, const V *before, const V *origins, int64_t iteration, V *pose, V *precision,
                V *activation, V *constant) const {
        if (l.activation == 2) return bayes(moments, origins, pose, precision, activation, constant);
        const float damping = before ? l.damping : l.first_damping;
        const V all = l.activation == 1 ? total_mass(moments) : V{};
        for (int64_t q = 0; q < l.parents; q++)
            for (int64_t g = 0; g < G; g++) {
                const int64_t at = q * G + g;
                Step step;
                gaussian(moments + at * MOMENTS, (before ? before : origins) + at * P, damping, step);
                const V mass = moments[at * MOMENTS];
                V active, log_active;
                if (l.activation == 1) {
                    active = mass / all;
                    log_active = log<L>(larger<L>(active, broadcast<L>(1.1754944e-38f)));
                } else {
                    const V *beta_a = (const V *)l.beta_a, *beta_u = (const V *)l.beta_u;
                    const V cost = mass * ((float)P * beta_u[g] + 0.5f * step.sum_log);
                    logistic(l.inverse_temperatures[iteration] * (beta_a[g] - cost), active, log_active);
                }
                for (int h = 0; h < P; h++) {
                    pose[at * P + h] = step.pose[h];
                    precision[at * P + h] = 0.5f / step.variance[h];
                }
                activation[at] = active;
                const V density = log_active - 0.5f * (step.sum_log + P * 1.8378770664093453f);
                constant[at] = select<L>(filled(g) > V{}, density, broadcast<L>(EMPTY));
            }
    }

    // Gradients by the moments (into `grad_moments`) and by the pose before (into `grad_pose`, which at first holds the
    // gradient by the pose), from the gradients by the results of the step. `logit_moments` are the moments, about the
    // pose, of the gradient by the log densities: by the constant, the pose and the precisions; null in the last step.
    void through_m_step(const V *moments, const V *before, const V *origins, int64_t iteration, const V *precision,
                        const V *activation, const V *grad_activation, const V *logit_moments, V *grad_pose,
                        V *grad_moments, V *grad_betas) const {
        if (l.activation == 2)
            return through_bayes(moments, origins, precision, activation, grad_activation, logit_moments, grad_pose,
                                 grad_moments, grad_betas);
        const float damping = before ? l.damping : l.first_damping;
        const V all = l.activation == 1 ? total_mass(moments) : V{};
        V by_total = {};
        for (int64_t q = 0; q < l.parents; q++)
            for (int64_t g = 0; g < G; g++) {
                const int64_t at = q * G + g;
                Step step;
                gaussian(moments + at * MOMENTS, (before ? before : origins) + at * P, damping, step);
                const V *m = moments + at * MOMENTS, *by = logit_moments ? logit_moments + at * MOMENTS : nullptr;
                const V mass = m[0], active = activation[at], by_constant = by ? by[0] : V{};
                const V by_active = grad_activation ? grad_activation[at] : V{};
                V by_mass = {}, by_divisor = {}, by_sum_log = -0.5f * by_constant;
                if (l.activation == 1) {
                    const V least = broadcast<L>(1.1754944e-38f);
                    const V through =
                        by_active + select<L>(active > least, by_constant / larger<L>(active, least), V{});
                    by_mass += through / all;
                    by_total -= through * active / all * filled(g);
                } else {
                    const V *beta_u = (const V *)l.beta_u;
                    const V by_logit =
                        l.inverse_temperatures[iteration] * (by_active * active + by_constant) * (1.0f - active);
                    grad_betas[g] += by_logit;
                    grad_betas[G + g] -= by_logit * mass * (float)P;
                    by_mass -= by_logit * ((float)P * beta_u[g] + 0.5f * step.sum_log);
                    by_sum_log -= 0.5f * by_logit * mass;
                }
                const V inverse = 1.0f / step.mass;
                V *out = grad_moments + at * MOMENTS;
                for (int h = 0; h < P; h++) {
                    const V half = precision[at * P + h], pose = step.pose[h]; // half = 0.5 / variance
                    V by_pose = grad_pose[at * P + h], by_variance = by_sum_log * 2.0f * half;
                    if (by) {
                        by_pose += 2.0f * half * by[1 + h];
                        by_variance += by[1 + P + h] * 2.0f * half * half; // precision by variance: -2 half^2
                    }
                    const V by_spread = select<L>(step.spread[h] > V{}, by_variance * inverse, V{});
                    by_divisor -= by_variance * step.spread[h] * inverse * inverse;
                    by_mass += by_spread * pose * pose;
                    by_pose += 2.0f * by_spread * (pose * mass - m[1 + h]);
                    const V by_mean = (1 - damping) * by_pose;
                    by_divisor -= by_mean * m[1 + h] * inverse * inverse;
                    out[1 + h] = by_mean * inverse - 2.0f * by_spread * pose;
                    out[1 + P + h] = by_spread;
                    grad_pose[at * P + h] = before ? damping * by_pose : V{};
                }
                out[0] = by_mass + by_divisor;
            }
        if (l.activation == 1) {
            const float each = sum<L>(by_total);
            for (int64_t at = 0; at < parents; at++) grad_moments[at * MOMENTS] += each * filled(at % G);
        }
    }

    // ---- all of it, for one image

    void forward(int64_t image, V *keep, V *constants, float *out_poses, float *out_activations) const {
        const float *poses = l.poses + image * l.positions * c * P, *active = l.activations + image * l.positions * c;
        V *centres = keep + kept.centre;
        if (STORED) store(poses);
        centre(poses, centres);
        const V *before = nullptr;
        for (int64_t t = 0; t < T; t++) {
            V *shares = t ? keep + kept.shares + (t - 1) * parents * N : nullptr;
            V *pose = keep + kept.poses + t * parents * P, *precision = keep + kept.precisions + t * parents * P;
            V *found = keep + kept.moments + t * parents * MOMENTS, *activation = keep + kept.activations + t * parents;
            if (t) {
                const V *old = precision - parents * P;
                for (int64_t q = 0; q < l.parents; q++)
                    for (int64_t g = 0; g < G; g++) {
                        const int64_t at = q * G + g;
                        log_densities(poses, centres + at * P, before + at * P, old + at * P, constants[at], q, g,
                                      shares + q * N * G + g);
                    }
                share(shares);
            }
            for (int64_t q = 0; q < l.parents; q++)
                for (int64_t g = 0; g < G; g++) {
                    const int64_t at = q * G + g;
                    moments(poses, active, shares ? shares + q * N * G + g : nullptr, centres + at * P, q, g,
                            found + at * MOMENTS);
                }
            m_step(found, before, centres, t, pose, precision, activation, constants);
            before = pose;
        }
        const V *activation = keep + kept.activations + (T - 1) * parents;
        for (int64_t q = 0; q < l.parents; q++)
            for (int64_t d = 0; d < l.types; d++) {
                const int64_t at = q * G + d / L, row = (image * l.parents + q) * l.types + d;
                out_activations[row] = activation[at][d % L];
                for (int h = 0; h < P; h++)
                    out_poses[row * P + h] = before[at * P + h][d % L] - centres[at * P + h][d % L];
            }
    }

    // Memory of one thread for the way back.
    struct Scratch {
        V *grad_pose, *grad_activation, *grad_moments, *logit_moments, *logits;
    };
    int64_t scratch_size() const { return parents * (P + 1 + T * MOMENTS + MOMENTS + T * N); }

    Scratch scratch(V *at) const {
        Scratch s;
        s.grad_pose = at;
        s.grad_activation = s.grad_pose + parents * P;
        s.grad_moments = s.grad_activation + parents; // of every iteration
        s.logit_moments = s.grad_moments + T * parents * MOMENTS;
        s.logits = s.logit_moments + parents * MOMENTS; // of every iteration
        return s;
    }

    void backward(int64_t image, const V *keep, const Scratch &s, const Gradients &gradients, V *grad_transformations,
                  V *grad_betas) const {
        const float *poses = l.poses + image * l.positions * c * P, *active = l.activations + image * l.positions * c;
        float *grad_poses = gradients.child_poses + image * l.positions * c * P;
        float *grad_active = gradients.child_activations + image * l.positions * c;
        const V *centres = keep + kept.centre;
        if (STORED) store(poses);
        std::memset((void *)s.grad_pose, 0, sizeof(V) * parents * (P + 1));
        for (int64_t q = 0; q < l.parents; q++)
            for (int64_t d = 0; d < l.types; d++) {
                const int64_t at = q * G + d / L, row = (image * l.parents + q) * l.types + d;
                s.grad_activation[at][d % L] = gradients.activations[row];
                for (int h = 0; h < P; h++) s.grad_pose[at * P + h][d % L] = gradients.poses[row * P + h];
            }
        for (int64_t t = T - 1; t >= 0; t--) {
            const V *shares = t ? keep + kept.shares + (t - 1) * parents * N : nullptr;
            const V *pose = keep + kept.poses + t * parents * P, *before = t ? pose - parents * P : nullptr;
            const V *precision = keep + kept.precisions + t * parents * P;
            const bool last = t == T - 1;
            V *by_moments = s.grad_moments + t * parents * MOMENTS, *logits = s.logits + t * parents * N;
            through_m_step(keep + kept.moments + t * parents * MOMENTS, before, centres, t, precision,
                           keep + kept.activations + t * parents, last ? s.grad_activation : nullptr,
                           last ? nullptr : s.logit_moments, s.grad_pose, by_moments, grad_betas);
            for (int64_t q = 0; q < l.parents; q++)
                for (int64_t g = 0; g < G; g++) {
                    const int64_t at = q * G + g;
                    through_moments(poses, centres + at * P, by_moments + at * MOMENTS, q, g, logits + q * N * G + g);
                }
            through_share(shares, active, logits, grad_active);
            if (!t) break;
            for (int64_t q = 0; q < l.parents; q++)
                for (int64_t g = 0; g < G; g++) {
                    const int64_t at = q * G + g;
                    V origin[P];
                    for (int h = 0; h < P; h++) origin[h] = centres[at * P + h] - before[at * P + h];
                    moments(poses, nullptr, logits + q * N * G + g, origin, q, g, s.logit_moments + at * MOMENTS);
                }
        }
        for (int64_t q = 0; q < l.parents; q++)
            for (int64_t g = 0; g < G; g++) {
                auto f = T == 1   ? &Router::through_votes<1>
                         : T == 2 ? &Router::through_votes<2>
                         : T == 3 ? &Router::through_votes<3>
                                  : &Router::through_votes<0>;
                (this->*f)(poses, active, keep, s, q, g, grad_poses, grad_transformations);
            }
        if (STORED) through_stored(poses, grad_poses, grad_transformations);
    }

    // The gradient by the votes of the children of (q, g), in registers, and from there by poses and transformations
    // or, if votes are stored, into their place.
    // Every iteration leaves in it weights times (gradient by first + 2 vote gradient by second), and every E-step the
    // gradient by the log density times -2 precision (vote - pose): numbers of the child times vectors of the parent.
    template <int T0>
    void through_votes(const float *poses, const float *active, const V *keep, const Scratch &s, int64_t q, int64_t g,
                       float *grad_poses, V *grad_transformations) const {
        constexpr int TERMS = 2 * (T0 ? T0 : MOST_ITERATIONS) - 1;
        const int64_t at = q * G + g, T = T0 ? T0 : this->T, terms = 2 * T - 1;
        V lines[2 * TERMS][P]; // of term i: constant in 2 i, times the vote in 2 i + 1
        for (int64_t t = 0; t < T; t++) {
            const V *by = s.grad_moments + (t * parents + at) * MOMENTS;
            for (int h = 0; h < P; h++) {
                lines[2 * t][h] = by[1 + h];
                lines[2 * t + 1][h] = 2.0f * by[1 + P + h];
            }
            if (!t) continue;
            const V *pose = keep + kept.poses + ((t - 1) * parents + at) * P,
                    *half = keep + kept.precisions + ((t - 1) * parents + at) * P;
            for (int h = 0; h < P; h++) {
                lines[2 * (T + t - 1)][h] = 2.0f * half[h] * pose[h];
                lines[2 * (T + t - 1) + 1][h] = -2.0f * half[h];
            }
        }
        const V *shares = keep + kept.shares;
        each_child(poses, q, g, keep + kept.centre + at * P,
                   [&](auto count, int64_t n, const float *u, const V *w, const V *start) FLAT {
                       constexpr int C = decltype(count)::value;
                       const int64_t kk = n / c, type = n % c, below = l.children[q * k + kk] * c + type;
                       for (int child = 0; child < C; child++) {
                           V number[TERMS];
                           const int64_t place = (q * N + n + child) * G + g;
                           for (int64_t t = 0; t < T; t++)
                               number[t] = (t ? shares[(t - 1) * parents * N + place] : V{} + l.even[q * k + kk]) *
                                           active[below + child];
                           for (int64_t t = 1; t < T; t++) number[T + t - 1] = s.logits[t * parents * N + place];
                           V by_vote[P];
                           for (int r = 0; r < R; r++) {
                               V v[1][I];
                               votes<1>(v, start + r * I, u + child * P, w + child * stride(), 0, r);
                               for (int j = 0; j < I; j++) {
                                   V a = {}, b = {};
                                   for (int64_t i = 0; i < terms; i++) {
                                       a += number[i] * lines[2 * i][r * I + j];
                                       b += number[i] * lines[2 * i + 1][r * I + j];
                                   }
                                   by_vote[r * I + j] = a + b * v[0][j];
                               }
                           }
                           const V *own = w + child * stride();
                           if (STORED)
                               std::copy(by_vote, by_vote + P, stored_at(q, g, n + child));
                           else
                               through_vote(by_vote, u + child * P, own, grad_poses + (below + child) * P,
                                            grad_transformations ? grad_transformations + (own - W) : nullptr);
                       }
                   });
    }
};

struct Memory { // aligned for the widest vectors
    void *at = nullptr;
    explicit Memory(int64_t bytes) : at(std::aligned_alloc(64, (bytes + 63) / 64 * 64)) {
        if (!at) throw std::bad_alloc();
    }
    ~Memory() { std::free(at); }
    Memory(const Memory &) = delete;
};

int64_t chunk_size(int64_t images) { return std::max(IMAGES, (images + 31) / 32); }

template <int L, int R, int I> bool forward_all(const Layer &l, float *keep, float *poses, float *activations) {
    using V = F<L>;
    const Router<L, R, I> sizes(l);
    const int64_t each = sizes.kept.all, own = keep ? 0 : each, constants = own + sizes.parents;
    const int64_t size = chunk_size(l.images), chunks = (l.images + size - 1) / size;
    auto work = [&](int64_t chunk, Memory &memory) {
        V *at = (V *)memory.at;
        const Router<L, R, I> router(l, at + constants);
        for (int64_t image = chunk * size; image < std::min(l.images, (chunk + 1) * size); image++)
            router.forward(image, keep ? (V *)keep + image * each : at, at + own, poses, activations);
    };
    return each_task(l.threads, chunks, [&] { return Memory((constants + sizes.stored_size()) * sizeof(V)); }, work);
}

template <int L, int R, int I> bool backward_all(const Layer &l, const float *keep, const Gradients &gradients) {
    using V = F<L>;
    const Router<L, R, I> sizes(l);
    const int64_t each = sizes.kept.all, scratch_size = sizes.scratch_size();
    const int64_t size = chunk_size(l.images), chunks = (l.images + size - 1) / size;
    const int64_t weights = gradients.transformations ? l.places * l.types_below * l.groups * I * I : 0,
                  betas = 2 * l.groups;
    Memory sums(chunks * (weights + betas) * sizeof(V));
    auto work = [&](int64_t chunk, Memory &memory) {
        const Router<L, R, I> router(l, (V *)memory.at + scratch_size);
        const auto scratch = router.scratch((V *)memory.at);
        V *sum = (V *)sums.at + chunk * (weights + betas);
        std::memset((void *)sum, 0, (weights + betas) * sizeof(V));
        for (int64_t image = chunk * size; image < std::min(l.images, (chunk + 1) * size); image++)
            router.backward(image, (const V *)keep + image * each, scratch, gradients, weights ? sum + betas : nullptr,
                            sum);
    };
    auto allocate = [&] { return Memory((scratch_size + sizes.stored_size()) * sizeof(V)); };
    if (!each_task(l.threads, chunks, allocate, work)) return false;
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        const V *sum = (const V *)sums.at + chunk * (weights + betas);
        for (int64_t i = 0; i < betas; i++) ((V *)gradients.betas)[i] += sum[i];
        for (int64_t i = 0; i < weights; i++) ((V *)gradients.transformations)[i] += sum[betas + i];
    }
    return true;
}

#ifdef __AVX512F__
#define WIDE(CALL)                                                                                                     \
    if (l->lanes == 16 && matrix) return code_of([&] { return CALL(16, 4, 4); });                                      \
    if (l->lanes == 16 && vector) return code_of([&] { return CALL(16, 1, 16); });
#else
#define WIDE(CALL)
#endif

// The form for these poses and lanes: `CALL(lanes, rows, inner)`; 2 if there is none.
#define CHOOSE(CALL)                                                                                                   \
    if (l->iterations < 1 || l->iterations > MOST_ITERATIONS) return 2;                                                \
    const bool matrix = l->rows == 4 && l->inner == 4, vector = l->rows == 1 && l->inner == 16;                        \
    if (l->lanes == 8 && matrix) return code_of([&] { return CALL(8, 4, 4); });                                        \
    if (l->lanes == 8 && vector) return code_of([&] { return CALL(8, 1, 16); });                                       \
    WIDE(CALL)                                                                                                         \
    return 2;

} // namespace

extern "C" {

// Floats that `forward` keeps of an image for `backward`.
int64_t kept_floats(const Layer *l) { return Kept(*l).all * l->lanes; }

// 0, or 1: out of memory; 2: no form for these sizes. `keep [B, kept_floats]` may be null where nothing goes back.
int32_t em_routing_forward(const Layer *l, float *keep, float *poses, float *activations){
#define CALL(L, R, I) (forward_all<L, R, I>(*l, keep, poses, activations))
    CHOOSE(CALL)
#undef CALL
}

int32_t em_routing_backward(const Layer *l, const float *keep, const Gradients *gradients) {
#define CALL(L, R, I) (backward_all<L, R, I>(*l, keep, *gradients))
    CHOOSE(CALL)
#undef CALL
}
}
