// A block of multihead attention (MAB of `attention.py`, the form to read) and its gradients in one kernel.
//
//     H = X + attention(LN(X) Wq, LN(Y) Wk, LN(Y) Wv),    result = H + relu(LN(H) Wf)
//
// The sets are small (16 elements of 128 numbers are 8 KB): a chunk of images stays in the cache from LayerNorm to the
// result, and no array is transposed or copied between the products.
//
// Shapes: B images; X [B, n, d], or [1, n, d] shared by all images; Y [B, m, d]; h heads of e = d / h numbers, e a
// multiple of the L lanes of a vector; weights [outputs, inputs] as in torch.nn.Linear. Rows of m shares are filled up
// with zeros to a multiple of L.
//
// Threads process chunks of images. Sums over images are kept for at most 8 groups of chunks and added in order, so
// that the result has the same bits for any number of threads.

#include "kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

constexpr int64_t ROWS = 128; // of a chunk, about
constexpr int64_t GROUPS = 8; // of chunks, at most: each has its own sums

// R rows and W vectors of `product`, kept in registers.
template <int L, int R, int W, bool ADD>
INLINE void tile(int64_t K, const float *a, int64_t row, int64_t step, const float *b, int64_t ldb, float *c,
                 int64_t ldc) {
    F<L> sums[R][W];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
        for (int w = 0; w < W; w++) sums[r][w] = ADD ? load<L>(c + r * ldc + w * L) : F<L>{};
    for (int64_t k = 0; k < K; k++) {
        F<L> right[W];
#pragma GCC unroll 2
        for (int w = 0; w < W; w++) right[w] = load<L>(b + k * ldb + w * L);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            const float left = a[r * row + k * step];
#pragma GCC unroll 2
            for (int w = 0; w < W; w++) sums[r][w] += left * right[w];
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
        for (int w = 0; w < W; w++) store<L>(c + r * ldc + w * L, sums[r][w]);
}

template <int L, int W, bool ADD>
INLINE void columns(int64_t M, int64_t K, const float *a, int64_t row, int64_t step, const float *b, int64_t ldb,
                    float *c, int64_t ldc) {
    constexpr int R = L == 16 ? 8 : 4;
    int64_t m = 0;
    for (; m + R <= M; m += R) tile<L, R, W, ADD>(K, a + m * row, row, step, b, ldb, c + m * ldc, ldc);
    for (; m < M; m++) tile<L, 1, W, ADD>(K, a + m * row, row, step, b, ldb, c + m * ldc, ldc);
}

// C [M, N] = A [M, K] B [K, N], or added to C. A's element (m, k) is a[m row + k step]; N is a multiple of L.
template <int L, bool ADD>
__attribute__((noinline)) void product(int64_t M, int64_t N, int64_t K, const float *a, int64_t row, int64_t step,
                                       const float *b, int64_t ldb, float *c, int64_t ldc) {
    int64_t n = 0;
    for (; n + 2 * L <= N; n += 2 * L) columns<L, 2, ADD>(M, K, a, row, step, b + n, ldb, c + n, ldc);
    if (n < N) columns<L, 1, ADD>(M, K, a, row, step, b + n, ldb, c + n, ldc);
}

// to [columns, >= rows] = transposed from [rows, columns].
void transpose(int64_t rows, int64_t columns, const float *from, int64_t ldf, float *to, int64_t ldt) {
    for (int64_t j = 0; j < columns; j++)
        for (int64_t i = 0; i < rows; i++) to[j * ldt + i] = from[i * ldf + j];
}

} // namespace

extern "C" {

struct Linear {
    const float *weight, *bias;
};

// A block and its inputs. All arrays are contiguous.
struct Block {
    int64_t images, queries, keys, width, heads, shared, threads;
    const float *x, *y;
    Linear norm_query, norm_key, norm_feed, query, key_value, feed;
    double eps; // of LayerNorm
};
}

namespace {

// Where the gradients of the parameters start in one array; see `attention.py`.
struct Places {
    int64_t query, key_value, feed, norm_query, norm_key, norm_feed, all;
    explicit Places(int64_t d) {
        query = 0;
        key_value = query + d * d + d;
        feed = key_value + 2 * (d * d + d);
        norm_query = feed + d * d + d;
        norm_key = norm_query + 2 * d;
        norm_feed = norm_key + 2 * d;
        all = norm_feed + 2 * d;
    }
};

template <int L> struct Attention {
    const Block &b;
    const int64_t B, n, m, d, h, e, padded; // padded: m filled up
    const int64_t wide, wider;              // rows of d and 2 d numbers; not powers of two, which share few cache lines
    const Places places;
    // Kept for the way back: queries, keys and values, shares, H and relu(LN(H) Wf), and the moments of the three
    // norms.
    float *const q, *const kv, *const p, *const residual, *const fed;
    struct Moments {
        float mean, scale;
    };
    Moments *const of_x, *const of_y, *const of_residual;

    Attention(const Block &block, float *kept)
        : b(block), B(b.images), n(b.queries), m(b.keys), d(b.width), h(b.heads), e(d / h), padded((m + L - 1) / L * L),
          wide(d + L), wider(2 * d + L), places(d), q(kept), kv(q + (b.shared ? 1 : B) * n * d), p(kv + B * m * 2 * d),
          residual(p + B * h * n * padded), fed(residual + B * n * d), of_x((Moments *)(fed + B * n * d)),
          of_y(of_x + (b.shared ? 1 : B) * n), of_residual(of_y + B * m) {}

    static int64_t kept_floats(const Block &b) {
        const Attention all(b, nullptr);
        return (b.shared ? 1 : b.images) * all.n * (all.d + 2) +
               b.images * (all.m * 2 * all.d + all.h * all.n * all.padded + 2 * all.n * all.d + 2 * all.m + 2 * all.n);
    }

    int64_t chunk() const { return std::max<int64_t>(1, std::min(B, ROWS / std::max(n, m))); }
    int64_t chunks() const { return (B + chunk() - 1) / chunk(); }

    INLINE Moments moments(const float *row) const {
        F<L> total = {};
        for (int64_t i = 0; i < d; i += L) total += load<L>(row + i);
        const float mean = sum<L>(total) / d;
        F<L> squares = {};
        for (int64_t i = 0; i < d; i += L) {
            const F<L> apart = load<L>(row + i) - mean;
            squares += apart * apart;
        }
        return {mean, 1.0f / std::sqrt(sum<L>(squares) / d + (float)b.eps)};
    }

    // LayerNorm of `rows` rows [d], to rows [wide]; their moments are found and kept, or were.
    template <bool FIND>
    void normalise(int64_t rows, const float *from, const Linear &norm, Moments *kept, float *to) const {
        for (int64_t r = 0; r < rows; r++) {
            if (FIND) kept[r] = moments(from + r * d);
            const Moments s = kept[r];
            for (int64_t i = 0; i < d; i += L)
                store<L>(to + r * wide + i, (load<L>(from + r * d + i) - s.mean) * s.scale * load<L>(norm.weight + i) +
                                                load<L>(norm.bias + i));
        }
    }

    // Its gradients, given those of the result `[rows, wide]`; `to [rows, d]` is added to or written.
    template <bool ADD>
    void normalise_back(int64_t rows, const float *from, const Linear &norm, const Moments *kept, const float *gradient,
                        float *to, float *weights) const {
        float *biases = weights + d;
        for (int64_t r = 0; r < rows; r++) {
            const Moments s = kept[r];
            F<L> first = {}, second = {};
            for (int64_t i = 0; i < d; i += L) {
                const F<L> g = load<L>(gradient + r * wide + i), x = (load<L>(from + r * d + i) - s.mean) * s.scale;
                store<L>(weights + i, load<L>(weights + i) + g * x);
                store<L>(biases + i, load<L>(biases + i) + g);
                const F<L> through = g * load<L>(norm.weight + i);
                first += through;
                second += through * x;
            }
            const float one = sum<L>(first) / d, two = sum<L>(second) / d;
            for (int64_t i = 0; i < d; i += L) {
                const F<L> g = load<L>(gradient + r * wide + i), x = (load<L>(from + r * d + i) - s.mean) * s.scale;
                const F<L> found = s.scale * (g * load<L>(norm.weight + i) - one - x * two);
                store<L>(to + r * d + i, ADD ? load<L>(to + r * d + i) + found : found);
            }
        }
    }

    // rows [outputs] = from [rows, d] of `wide` numbers times the transposed weights, plus the bias.
    void linear(int64_t rows, int64_t outputs, const float *from, const float *transposed, int64_t ld,
                const float *bias, float *to) const {
        for (int64_t r = 0; r < rows; r++) std::memcpy(to + r * outputs, bias, outputs * sizeof(float));
        product<L, true>(rows, outputs, d, from, wide, 1, transposed, ld, to, outputs);
    }

    // Gradients of weights and bias, added, and of the input `[rows, wide]`.
    void linear_back(int64_t rows, int64_t outputs, const float *from, const float *weights, const float *gradient,
                     int64_t ld, float *to, float *sums) const {
        product<L, true>(outputs, d, rows, gradient, 1, ld, from, wide, sums, d);
        float *biases = sums + outputs * d;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < outputs; i += L)
                store<L>(biases + i, load<L>(biases + i) + load<L>(gradient + r * ld + i));
        product<L, false>(rows, d, outputs, gradient, ld, 1, weights, wide, to, wide);
    }

    // The weights in rows that are not powers of two apart: as they are (for the way back), or transposed.
    struct Weights {
        std::vector<float> query, key_value, feed;
    };
    Weights transposed() const {
        Weights w{std::vector<float>(d * wide), std::vector<float>(d * wider), std::vector<float>(d * wide)};
        transpose(d, d, b.query.weight, d, w.query.data(), wide);
        transpose(2 * d, d, b.key_value.weight, d, w.key_value.data(), wider);
        transpose(d, d, b.feed.weight, d, w.feed.data(), wide);
        return w;
    }
    Weights spaced() const {
        Weights w{std::vector<float>(d * wide), std::vector<float>(2 * d * wide), std::vector<float>(d * wide)};
        for (int64_t r = 0; r < d; r++) {
            std::memcpy(&w.query[r * wide], b.query.weight + r * d, d * sizeof(float));
            std::memcpy(&w.feed[r * wide], b.feed.weight + r * d, d * sizeof(float));
        }
        for (int64_t r = 0; r < 2 * d; r++)
            std::memcpy(&w.key_value[r * wide], b.key_value.weight + r * d, d * sizeof(float));
        return w;
    }

    INLINE void softmax(float *row) const {
        const float scale = 1.0f / std::sqrt((float)e);
        for (int64_t j = m; j < padded; j++) row[j] = -INFINITY;
        F<L> found = load<L>(row);
        for (int64_t j = L; j < padded; j += L) found = larger<L>(found, load<L>(row + j));
        const float most = largest<L>(found);
        F<L> total = {};
        for (int64_t j = 0; j < padded; j += L) {
            const F<L> share = exp<L>((load<L>(row + j) - most) * scale);
            store<L>(row + j, share);
            total += share;
        }
        const float all = 1.0f / sum<L>(total);
        for (int64_t j = 0; j < padded; j += L) store<L>(row + j, load<L>(row + j) * all);
    }

    void queries(int64_t rows, const float *x, const Weights &w, Moments *kept, float *normed, float *to) const {
        normalise<true>(rows, x, b.norm_query, kept, normed);
        linear(rows, d, normed, w.query.data(), wide, b.query.bias, to);
    }

    void forward(int64_t first, int64_t count, const Weights &w, std::vector<float> &memory, float *out) const {
        memory.resize(count * std::max(n, m) * wide + d * padded);
        float *normed = memory.data(), *turned = normed + count * std::max(n, m) * wide;
        float *keys = kv + first * m * 2 * d, *sums = residual + first * n * d, *relu = fed + first * n * d;
        normalise<true>(count * m, b.y + first * m * d, b.norm_key, of_y + first * m, normed);
        linear(count * m, 2 * d, normed, w.key_value.data(), wider, b.key_value.bias, keys);
        if (!b.shared) queries(count * n, b.x + first * n * d, w, of_x + first * n, normed, q + first * n * d);
        for (int64_t i = 0; i < count; i++) {
            const float *own = b.shared ? q : q + (first + i) * n * d, *key = keys + i * m * 2 * d;
            float *sum = sums + i * n * d;
            std::memcpy(sum, b.x + (b.shared ? 0 : (first + i) * n * d), n * d * sizeof(float));
            transpose(m, d, key, 2 * d, turned, padded);
            for (int64_t head = 0; head < h; head++) {
                float *share = p + ((first + i) * h + head) * n * padded;
                product<L, false>(n, padded, e, own + head * e, d, 1, turned + head * e * padded, padded, share,
                                  padded);
                for (int64_t r = 0; r < n; r++) softmax(share + r * padded);
                product<L, true>(n, e, m, share, padded, 1, key + d + head * e, 2 * d, sum + head * e, d);
            }
        }
        normalise<true>(count * n, sums, b.norm_feed, of_residual + first * n, normed);
        linear(count * n, d, normed, w.feed.data(), wide, b.feed.bias, relu);
        for (int64_t at = 0; at < count * n * d; at += L) {
            const F<L> f = load<L>(relu + at), kept = select<L>(f <= 0.0f, F<L>{}, f); // NaN stays
            store<L>(relu + at, kept);
            store<L>(out + first * n * d + at, load<L>(sums + at) + kept);
        }
    }

    // Gradients of `count` images from `first` on. `sums` are a group's; `shared_q`, `shared_x [n, d]` too, where X is
    // shared; `to_x`, `to_y` belong to the images.
    void backward(int64_t first, int64_t count, const Weights &w, std::vector<float> &memory, const float *out,
                  float *to_x, float *to_y, float *sums, float *shared_q, float *shared_x) const {
        const int64_t rows = count * n, below = count * m, most = std::max(rows, below);
        memory.resize((2 * most + 2 * rows) * wide + rows * d + below * wider + d * padded + n * padded);
        float *normed = memory.data(), *passed = normed + most * wide, *fed_back = passed + most * wide,
              *to_q = fed_back + rows * wide, *to_sum = to_q + rows * wide, *to_kv = to_sum + rows * d,
              *turned = to_kv + below * wider, *to_share = turned + d * padded;
        const float *keys = kv + first * m * 2 * d, *residuals = residual + first * n * d;
        const float scale = 1.0f / std::sqrt((float)e);

        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < d; i += L) {
                const F<L> g = load<L>(out + (first * n + r) * d + i), f = load<L>(fed + (first * n + r) * d + i);
                store<L>(fed_back + r * wide + i, select<L>(f > 0.0f, g, F<L>{}));
                store<L>(to_sum + r * d + i, g);
            }
        normalise<false>(rows, residuals, b.norm_feed, of_residual + first * n, normed);
        linear_back(rows, d, normed, w.feed.data(), fed_back, wide, passed, sums + places.feed);
        normalise_back<true>(rows, residuals, b.norm_feed, of_residual + first * n, passed, to_sum,
                             sums + places.norm_feed);

        for (int64_t i = 0; i < count; i++) {
            const float *own = b.shared ? q : q + (first + i) * n * d, *key = keys + i * m * 2 * d;
            const float *g = to_sum + i * n * d;
            float *back = to_kv + i * m * wider;
            transpose(m, d, key + d, 2 * d, turned, padded);
            for (int64_t head = 0; head < h; head++) {
                const float *share = p + ((first + i) * h + head) * n * padded;
                const int64_t at = head * e;
                product<L, false>(n, padded, e, g + at, d, 1, turned + at * padded, padded, to_share, padded);
                product<L, false>(m, e, n, share, 1, padded, g + at, d, back + d + at, wider);
                for (int64_t r = 0; r < n; r++) {
                    F<L> dot = {};
                    for (int64_t j = 0; j < padded; j += L)
                        dot += load<L>(share + r * padded + j) * load<L>(to_share + r * padded + j);
                    const float mean = sum<L>(dot);
                    for (int64_t j = 0; j < padded; j += L)
                        store<L>(to_share + r * padded + j,
                                 load<L>(share + r * padded + j) * (load<L>(to_share + r * padded + j) - mean) * scale);
                }
                if (b.shared)
                    product<L, true>(n, e, m, to_share, padded, 1, key + at, 2 * d, shared_q + at, wide);
                else
                    product<L, false>(n, e, m, to_share, padded, 1, key + at, 2 * d, to_q + i * n * wide + at, wide);
                product<L, false>(m, e, n, to_share, 1, padded, own + at, d, back + at, wider);
            }
        }
        normalise<false>(below, b.y + first * m * d, b.norm_key, of_y + first * m, normed);
        linear_back(below, 2 * d, normed, w.key_value.data(), to_kv, wider, passed, sums + places.key_value);
        normalise_back<false>(below, b.y + first * m * d, b.norm_key, of_y + first * m, passed, to_y + first * m * d,
                              sums + places.norm_key);
        if (b.shared) {
            for (int64_t i = 0; i < count; i++)
                for (int64_t at = 0; at < n * d; at += L)
                    store<L>(shared_x + at, load<L>(shared_x + at) + load<L>(to_sum + i * n * d + at));
        } else {
            std::memcpy(to_x + first * n * d, to_sum, rows * d * sizeof(float));
            queries_back(rows, b.x + first * n * d, w, of_x + first * n, normed, passed, to_q, to_x + first * n * d,
                         sums);
        }
    }

    void queries_back(int64_t rows, const float *x, const Weights &w, Moments *kept, float *normed, float *passed,
                      const float *to_q, float *to_x, float *sums) const {
        normalise<false>(rows, x, b.norm_query, kept, normed);
        linear_back(rows, d, normed, w.query.data(), to_q, wide, passed, sums + places.query);
        normalise_back<true>(rows, x, b.norm_query, kept, passed, to_x, sums + places.norm_query);
    }
};

template <int L> bool forward_all(const Block &b, float *kept, float *out) {
    const Attention<L> block(b, kept);
    const auto weights = block.transposed();
    if (b.shared) {
        std::vector<float> normed(block.n * block.wide);
        block.queries(block.n, b.x, weights, block.of_x, normed.data(), block.q);
    }
    const int64_t size = block.chunk();
    auto work = [&](int64_t task, std::vector<float> &memory) {
        block.forward(task * size, std::min(size, b.images - task * size), weights, memory, out);
    };
    return each_task(b.threads, block.chunks(), [] { return std::vector<float>(); }, work);
}

template <int L>
bool backward_all(const Block &b, float *kept, const float *out, float *to_x, float *to_y, float *parameters) {
    const Attention<L> block(b, kept);
    const auto weights = block.spaced();
    const int64_t size = block.chunk(), chunks = block.chunks(), groups = std::min(GROUPS, chunks);
    const int64_t all = block.places.all, of_q = b.shared ? block.n * block.wide : 0,
                  of_x = b.shared ? block.n * block.d : 0;
    std::vector<std::vector<float>> sums(groups);
    auto work = [&](int64_t group, std::vector<float> &memory) {
        sums[group].assign(all + of_q + of_x, 0.0f);
        float *own = sums[group].data();
        for (int64_t chunk = group * chunks / groups; chunk < (group + 1) * chunks / groups; chunk++)
            block.backward(chunk * size, std::min(size, b.images - chunk * size), weights, memory, out, to_x, to_y, own,
                           own + all, own + all + of_q);
    };
    if (!each_task(b.threads, groups, [] { return std::vector<float>(); }, work)) return false;
    float *total = sums[0].data();
    for (int64_t group = 1; group < groups; group++)
        for (int64_t i = 0; i < all + of_q + of_x; i++) total[i] += sums[group][i];
    if (b.shared) {
        std::vector<float> memory(2 * block.n * block.wide);
        std::memcpy(to_x, total + all + of_q, of_x * sizeof(float));
        block.queries_back(block.n, b.x, weights, block.of_x, memory.data(), memory.data() + block.n * block.wide,
                           total + all, to_x, total);
    }
    std::memcpy(parameters, total, all * sizeof(float));
    return true;
}

// Vectors of 16 numbers need the registers of AVX512.
#ifdef __AVX512F__
#define WIDE(CALL)                                                                                                     \
    if (b->width / b->heads % 16 == 0) return CALL(16);
#else
#define WIDE(CALL)
#endif
#define CHOOSE(CALL)                                                                                                   \
    WIDE(CALL)                                                                                                         \
    return CALL(8);

int64_t choose_kept(const Block *b) {
#define CALL(L) (Attention<L>::kept_floats(*b))
    CHOOSE(CALL)
#undef CALL
}
bool choose_forward(const Block *b, float *kept, float *out) {
#define CALL(L) (forward_all<L>(*b, kept, out))
    CHOOSE(CALL)
#undef CALL
}
bool choose_backward(const Block *b, float *kept, const float *out, float *to_x, float *to_y, float *parameters) {
#define CALL(L) (backward_all<L>(*b, kept, out, to_x, to_y, parameters))
    CHOOSE(CALL)
#undef CALL
}

} // namespace

extern "C" {

// Floats that `forward` keeps for `backward`.
int64_t kept_floats(const Block *b) { return choose_kept(b); }

// 0, or 1: out of memory.
int32_t attention_forward(const Block *b, float *kept, float *out) {
    return code_of([&] { return choose_forward(b, kept, out); });
}

// From the gradient `out [B, n, d]`: those of x and y, and of the parameters in the order of `Places`.
int32_t attention_backward(const Block *b, float *kept, const float *out, float *to_x, float *to_y, float *parameters) {
    return code_of([&] { return choose_backward(b, kept, out, to_x, to_y, parameters); });
}
}
