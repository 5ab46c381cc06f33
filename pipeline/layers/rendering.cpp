// Templates drawn at their poses and composited (`rendering.py`, the form to read), and the gradients, in one kernel.
//
// No layer [B, P, 2, S, S] is made. A template covers a part of the picture only: in each row of pixels the columns
// that lie in it are an interval, because the points sampled move along a line. Elsewhere its opacity is 0, and nothing
// is computed. On the way back the layers of one image at a time are drawn again.
//
// Shapes: B images of S x S pixels, P parts, templates [P, 2, h, w] of intensity and opacity, inverse poses
// [B, P, 2, 3], presences [B, P]. Inside, templates have a border of zeros, so that no corner of a pixel lies outside.
//
// Threads process groups of images. Sums over images are kept for at most 16 groups and added in order, so that the
// result has the same bits for any number of threads.

#include "kernels.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

extern "C" {

// What is drawn. All arrays are contiguous.
struct Scene {
    int64_t images, parts, height, width, size, threads;
    const float *templates, *inverse, *presence;
};
}

namespace {

constexpr int64_t GROUPS = 16; // of images, at most: each has its own sums

// A row of a layer, and where its pixels lie in the template with its border.
struct Row {
    const float *inverse; // (2, 3)
    float y;              // of the row, in [-1, 1]
    int64_t first, last;  // columns inside
};

struct Drawing {
    const Scene &s;
    const int64_t B, P, h, w, S, stride, area; // of templates with their borders
    const float half_w, half_h;
    // [P, 2, h + 2, w + 2] and, so that a place that rounding puts behind the last row can be read and written, a row
    // and two numbers more; [S]
    std::vector<float> templates, ticks;

    explicit Drawing(const Scene &scene)
        : s(scene), B(s.images), P(s.parts), h(s.height), w(s.width), S(s.size), stride(w + 2), area((h + 2) * (w + 2)),
          half_w(0.5f * w), half_h(0.5f * h), templates(P * 2 * area + 2 * (stride + 2)), ticks(S) {
        for (int64_t i = 0; i < S; i++) ticks[i] = (float)(2 * i + 1) / (float)S - 1.0f;
        for (int64_t each = 0; each < 2 * P; each++)
            for (int64_t row = 0; row < h; row++)
                std::memcpy(&templates[each * area + (row + 1) * stride + 1], s.templates + (each * h + row) * w,
                            w * sizeof(float));
    }

    // Column and row in the template with its border of the point that lies at x in this row of the picture.
    inline float across(const Row &row, float x) const {
        return (row.inverse[0] * x + row.inverse[1] * row.y + row.inverse[2]) * half_w + (half_w + 0.5f);
    }
    inline float down(const Row &row, float x) const {
        return (row.inverse[3] * x + row.inverse[4] * row.y + row.inverse[5]) * half_h + (half_h + 0.5f);
    }
    inline bool inside(const Row &row, int64_t column) const {
        const float u = across(row, ticks[column]), v = down(row, ticks[column]);
        return u > 0 && u < w + 1 && v > 0 && v < h + 1;
    }

    // The columns at which start + x slope lies in (0, end): `from`, `to` become smaller, with one more on either side.
    static void narrow(float start, float slope, float end, int64_t S, int64_t &from, int64_t &to) {
        if (slope == 0) {
            if (!(start > 0 && start < end)) to = from;
            return;
        }
        float a = -start / slope, b = (end - start) / slope;
        if (a > b) std::swap(a, b);
        const float first = (a + 1) * 0.5f * S - 1.5f, last = (b + 1) * 0.5f * S + 1.5f;
        if (first > from) from = first < to ? (int64_t)first : to;
        if (last < to) to = last > from ? (int64_t)last : from;
    }

    // Row `row` of part `part` in image `image`.
    Row place(int64_t image, int64_t part, int64_t row) const {
        Row found{s.inverse + (image * P + part) * 6, ticks[row], 0, S};
        narrow(across(found, 0), found.inverse[0] * half_w, w + 1, S, found.first, found.last);
        narrow(down(found, 0), found.inverse[3] * half_h, h + 1, S, found.first, found.last);
        while (found.first < found.last && !inside(found, found.first)) found.first++;
        while (found.first < found.last && !inside(found, found.last - 1)) found.last--;
        return found;
    }

    void forward(int64_t image, float *picture) const {
        std::memset(picture, 0, S * S * sizeof(float));
        for (int64_t part = 0; part < P; part++)
            for (int64_t y = 0; y < S; y++)
                composite(place(image, part, y), part, s.presence[image * P + part], picture + y * S, nullptr, nullptr,
                          nullptr);
    }

    // Lay a row of a part over `picture`; keep its colour, its opacity (without presence), and what was below, if
    // asked.
    void composite(const Row &row, int64_t part, float presence, float *__restrict picture, float *__restrict colours,
                   float *__restrict opacities, float *__restrict below) const {
        const float *__restrict colour = &templates[part * 2 * area], *__restrict opacity = colour + area;
        const float *__restrict xs = ticks.data();
        for (int64_t i = row.first; i < row.last; i++) {
            const float u = across(row, xs[i]), v = down(row, xs[i]);
            const int32_t left = (int32_t)u, top = (int32_t)v, at = top * (int32_t)stride + left;
            const float fu = u - left, fv = v - top;
            const float *c = colour + at, *a = opacity + at;
            const float c_top = c[0] + fu * (c[1] - c[0]), c_bottom = c[stride] + fu * (c[stride + 1] - c[stride]);
            const float a_top = a[0] + fu * (a[1] - a[0]), a_bottom = a[stride] + fu * (a[stride + 1] - a[stride]);
            const float drawn = c_top + fv * (c_bottom - c_top), alpha = a_top + fv * (a_bottom - a_top);
            if (colours) {
                colours[i] = drawn;
                opacities[i] = alpha;
                below[i] = picture[i];
            }
            picture[i] += presence * alpha * (drawn - picture[i]);
        }
    }

    int64_t memory() const { return (3 * P + 2) * S * S + 10 * S; }

    // Gradients of one image; `to_templates [P, h + 2, w + 2, 2]` is added to.
    void backward(int64_t image, const float *gradient, float *own, float *to_templates, float *to_inverse,
                  float *to_presence) const {
        const int64_t pixels = S * S;
        float *colours = own, *opacities = colours + P * pixels, *below = opacities + P * pixels,
              *picture = below + P * pixels, *g = picture + pixels, *columns = g + pixels;
        std::vector<Row> rows(P * S);
        std::memset(picture, 0, pixels * sizeof(float));
        for (int64_t part = 0; part < P; part++)
            for (int64_t y = 0; y < S; y++) {
                const int64_t at = part * pixels + y * S;
                rows[part * S + y] = place(image, part, y);
                composite(rows[part * S + y], part, s.presence[image * P + part], picture + y * S, colours + at,
                          opacities + at, below + at);
            }
        std::memcpy(g, gradient, pixels * sizeof(float));
        for (int64_t part = P - 1; part >= 0; part--) {
            std::memset(columns, 0, 5 * S * sizeof(float));
            for (int64_t y = 0; y < S; y++) {
                const int64_t at = part * pixels + y * S;
                back(rows[part * S + y], part, s.presence[image * P + part], colours + at, opacities + at, below + at,
                     g + y * S, columns, to_templates + part * 2 * area);
            }
            float found[6] = {}, presence = 0;
            const float *u = columns, *uy = u + S, *v = uy + S, *vy = v + S, *of_presence = vy + S;
            for (int64_t i = 0; i < S; i++) {
                found[0] += u[i] * ticks[i];
                found[1] += uy[i];
                found[2] += u[i];
                found[3] += v[i] * ticks[i];
                found[4] += vy[i];
                found[5] += v[i];
                presence += of_presence[i];
            }
            for (int i = 0; i < 6; i++) to_inverse[(image * P + part) * 6 + i] = found[i] * (i < 3 ? half_w : half_h);
            to_presence[image * P + part] = presence;
        }
    }

    // The gradients of one row of a layer: `g` becomes that of what is below; `columns [10, S]` are sums by column,
    // over rows, of the gradients along u, along u times y, along v, along v times y, and of presence; then work space.
    void back(const Row &row, int64_t part, float presence, const float *__restrict colours,
              const float *__restrict opacities, const float *__restrict below, float *__restrict g,
              float *__restrict columns, float *__restrict to_template) const {
        const float *__restrict colour = &templates[part * 2 * area], *__restrict opacity = colour + area;
        const float *__restrict xs = ticks.data();
        float *__restrict sum_u = columns, *__restrict sum_uy = sum_u + S, *__restrict sum_v = sum_uy + S,
                          *__restrict sum_vy = sum_v + S, *__restrict sum_p = sum_vy + S,
                          *__restrict places = sum_p + S, *__restrict right = places + S, *__restrict lower = right + S,
                          *__restrict to_colour = lower + S, *__restrict to_opacity = to_colour + S;
        const float y = row.y;
        for (int64_t i = row.first; i < row.last; i++) {
            const float u = across(row, xs[i]), v = down(row, xs[i]);
            const int32_t left = (int32_t)u, top = (int32_t)v, at = top * (int32_t)stride + left;
            const float fu = u - left, fv = v - top;
            const float *c = colour + at, *a = opacity + at;
            const float alpha = presence * opacities[i], through = g[i];
            const float of_colour = through * alpha, of_alpha = through * (colours[i] - below[i]);
            const float of_opacity = of_alpha * presence;
            g[i] = through * (1 - alpha);
            const float along_u = of_colour * ((c[1] - c[0]) + fv * ((c[stride + 1] - c[stride]) - (c[1] - c[0]))) +
                                  of_opacity * ((a[1] - a[0]) + fv * ((a[stride + 1] - a[stride]) - (a[1] - a[0])));
            const float along_v =
                of_colour * ((c[stride] - c[0]) + fu * ((c[stride + 1] - c[1]) - (c[stride] - c[0]))) +
                of_opacity * ((a[stride] - a[0]) + fu * ((a[stride + 1] - a[1]) - (a[stride] - a[0])));
            sum_u[i] += along_u;
            sum_uy[i] += along_u * y;
            sum_v[i] += along_v;
            sum_vy[i] += along_v * y;
            sum_p[i] += of_alpha * opacities[i];
            ((int32_t *)places)[i] = at;
            right[i] = fu;
            lower[i] = fv;
            to_colour[i] = of_colour;
            to_opacity[i] = of_opacity;
        }
        // Neighbours share pixels of the template: one after another.
        for (int64_t i = row.first; i < row.last; i++) {
            float *at = to_template + 2 * ((const int32_t *)places)[i];
            const float u = right[i], v = lower[i];
            const F<4> both = {to_colour[i], to_opacity[i], to_colour[i], to_opacity[i]};
            const F<4> spread = both * F<4>{1 - u, 1 - u, u, u};
            float *under = at + 2 * stride;
            const F<4> top = load<4>(at) + spread * (1 - v), bottom = load<4>(under) + spread * v;
            store<4>(at, top);
            store<4>(under, bottom);
        }
    }
};

bool forward_all(const Scene &s, float *pictures) {
    const Drawing drawing(s);
    const int64_t groups = std::min(GROUPS, s.images);
    return each_task(s.threads, groups, [&](int64_t group) {
        for (int64_t image = group * s.images / groups; image < (group + 1) * s.images / groups; image++)
            drawing.forward(image, pictures + image * s.size * s.size);
    });
}

bool backward_all(const Scene &s, const float *gradient, float *to_templates, float *to_inverse, float *to_presence) {
    const Drawing drawing(s);
    const int64_t groups = std::min(GROUPS, s.images), all = drawing.templates.size();
    std::vector<std::vector<float>> sums(groups);
    const bool good = each_task(s.threads, groups, [&](int64_t group) {
        std::vector<float> own(drawing.memory());
        sums[group].assign(all, 0.0f);
        for (int64_t image = group * s.images / groups; image < (group + 1) * s.images / groups; image++)
            drawing.backward(image, gradient + image * s.size * s.size, own.data(), sums[group].data(), to_inverse,
                             to_presence);
    });
    if (!good) return false;
    float *total = sums[0].data();
    for (int64_t group = 1; group < groups; group++)
        for (int64_t i = 0; i < all; i++) total[i] += sums[group][i];
    for (int64_t each = 0; each < 2 * s.parts; each++)
        for (int64_t row = 0; row < s.height; row++)
            for (int64_t column = 0; column < s.width; column++) {
                const int64_t place = each / 2 * drawing.area + (row + 1) * drawing.stride + column + 1;
                to_templates[(each * s.height + row) * s.width + column] = total[2 * place + each % 2];
            }
    return true;
}

} // namespace

extern "C" {

// 0, or 1: out of memory. `pictures [B, S, S]`.
int32_t render_forward(const Scene *s, float *pictures) {
    return code_of([&] { return forward_all(*s, pictures); });
}

// From the pictures' gradient: those of templates, inverse poses and presences.
int32_t render_backward(const Scene *s, const float *gradient, float *to_templates, float *to_inverse,
                        float *to_presence) {
    return code_of([&] { return backward_all(*s, gradient, to_templates, to_inverse, to_presence); });
}
}
