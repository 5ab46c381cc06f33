// What several kernels are made of: vectors of floats, and threads that share tasks.
//
// Everything is in an unnamed namespace: one process may load the forms of several instruction sets, and none of them
// must call a function of another.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#define INLINE inline __attribute__((always_inline))

namespace {

template <int L> struct Vec;
template <> struct Vec<4> {
    typedef float F __attribute__((vector_size(16)));
    typedef int32_t I __attribute__((vector_size(16)));
};
template <> struct Vec<8> {
    typedef float F __attribute__((vector_size(32)));
    typedef int32_t I __attribute__((vector_size(32)));
};
template <> struct Vec<16> {
    typedef float F __attribute__((vector_size(64)));
    typedef int32_t I __attribute__((vector_size(64)));
};

// A vector of L floats, or of as many integers.
template <int L> using F = typename Vec<L>::F;
template <int L> using I32 = typename Vec<L>::I;

template <int L> INLINE F<L> load(const float *from) {
    F<L> v;
    std::memcpy(&v, from, sizeof v);
    return v;
}
template <int L> INLINE void store(float *to, F<L> v) { std::memcpy(to, &v, sizeof v); }
template <int L> INLINE F<L> broadcast(float x) { return F<L>{} + x; }
template <int L> INLINE F<L> select(I32<L> mask, F<L> yes, F<L> no) {
    return (F<L>)((mask & (I32<L>)yes) | (~mask & (I32<L>)no));
}
template <int L> INLINE F<L> larger(F<L> a, F<L> b) { return select<L>(a > b, a, b); }

// The lower and the upper half of the lanes.
template <int L> INLINE F<L / 2> lower(F<L> v) {
    F<L / 2> half;
    std::memcpy(&half, &v, sizeof half);
    return half;
}
template <int L> INLINE F<L / 2> upper(F<L> v) {
    F<L / 2> half;
    std::memcpy(&half, (const char *)&v + sizeof half, sizeof half);
    return half;
}

template <int L> INLINE float sum(F<L> v) {
    if constexpr (L == 4)
        return (v[0] + v[2]) + (v[1] + v[3]);
    else
        return sum<L / 2>(lower<L>(v) + upper<L>(v));
}
template <int L> INLINE float largest(F<L> v) {
    if constexpr (L == 4) {
        const float even = v[0] > v[2] ? v[0] : v[2], odd = v[1] > v[3] ? v[1] : v[3];
        return even > odd ? even : odd;
    } else
        return largest<L / 2>(larger<L / 2>(lower<L>(v), upper<L>(v)));
}

// exp to about 1 ulp; 0 below -86, and never more than exp(88). Adding 1.5 2^23 rounds to a whole number: no
// -ffast-math here, it deletes that.
template <int L> INLINE F<L> exp(F<L> x) {
    const F<L> magic = broadcast<L>(12582912.0f), top = broadcast<L>(88.0f), bottom = broadcast<L>(-86.0f);
    const I32<L> keep = x > bottom;
    x = select<L>(x > top, top, select<L>(keep, x, bottom));
    const F<L> shifted = x * 1.44269504088896341f + magic, n = shifted - magic;
    F<L> r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    F<L> y = broadcast<L>(1.9875691500e-4f);
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1.0f;
    const I32<L> exponent = ((I32<L>)shifted - (I32<L>)magic) << 23;
    return select<L>(keep, (F<L>)((I32<L>)y + exponent), F<L>{});
}

// `work(task, memory)` for every task, by as many threads as asked for, each with its own `memory = make()`; false if
// one of them ran out of memory.
template <class Make, class Work> bool each_task(int64_t threads, int64_t tasks, Make make, Work work) {
    std::atomic<int64_t> next{0};
    std::atomic<bool> good{true};
    auto run = [&] {
        try {
            auto memory = make();
            for (int64_t task; (task = next++) < tasks;) work(task, memory);
        } catch (const std::bad_alloc &) {
            good = false;
        }
    };
    std::vector<std::thread> others;
    try {
        others.reserve(std::max<int64_t>(std::min(threads, tasks) - 1, 0)); // before any thread could be left behind
        for (int64_t i = 1; i < std::min(threads, tasks); i++) others.emplace_back(run);
    } catch (const std::system_error &) { // the system has no more threads: fewer do the same work
    }
    run();
    for (auto &thread : others) thread.join();
    return good;
}

// As above, without memory: `work(task)`.
template <class Work> bool each_task(int64_t threads, int64_t tasks, Work work) {
    return each_task(threads, tasks, [] { return 0; }, [&](int64_t task, int) { work(task); });
}

// What a kernel's function returns: 0, or 1 if memory ran out, in `work` itself or, where it returns false, in a
// thread.
template <class Work> int32_t code_of(Work work) {
    try {
        return work() ? 0 : 1;
    } catch (const std::bad_alloc &) {
        return 1;
    }
}

} // namespace
