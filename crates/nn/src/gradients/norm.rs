//! Norms of sums of outer products, from dot products between positions.

use crate::kernels::{Matrix, dots, gram, vector};
use crate::layers::Scratch;

/// The factors `b` of a gradient `sum_t b_t a_t^T`.
#[derive(Clone, Copy)]
pub(crate) enum Right<'a> {
    /// Rows of floats.
    Rows(Matrix<'a>),
    /// Unit vectors: the only entry of `b_t` is a 1 at `tokens[t]`. The gradient of an embedding has these.
    Tokens {
        tokens: &'a [u32],
        /// The length of a vector.
        vocabulary: usize,
    },
}

impl Right<'_> {
    fn width(&self) -> usize {
        match self {
            Right::Rows(rows) => rows.width,
            Right::Tokens { vocabulary, .. } => *vocabulary,
        }
    }

    fn norm(&self, row: usize) -> f64 {
        match self {
            Right::Rows(rows) => vector::squared_norm(rows.row(row)).sqrt(),
            Right::Tokens { .. } => 1.0,
        }
    }

    /// `out[t * count + s] = b_t . b_s`.
    fn gram(&self, out: &mut [f32]) {
        match self {
            Right::Rows(rows) => gram(*rows, out),
            Right::Tokens { .. } => self.dots(*self, out),
        }
    }

    /// `out[t * right's count + s] = b_t . right_s`.
    fn dots(&self, right: Right<'_>, out: &mut [f32]) {
        match (*self, right) {
            (Right::Rows(left), Right::Rows(right)) => dots(left, right, out),
            (Right::Rows(rows), Right::Tokens { tokens, .. }) => {
                for (t, out) in out.chunks_exact_mut(tokens.len()).take(rows.count).enumerate() {
                    out.iter_mut().zip(tokens).for_each(|(out, token)| *out = rows.row(t)[*token as usize]);
                }
            }
            (Right::Tokens { tokens, .. }, Right::Rows(rows)) => {
                for (token, out) in tokens.iter().zip(out.chunks_exact_mut(rows.count)) {
                    out.iter_mut().enumerate().for_each(|(s, out)| *out = rows.row(s)[*token as usize]);
                }
            }
            (Right::Tokens { tokens, .. }, Right::Tokens { tokens: others, .. }) => {
                for (token, out) in tokens.iter().zip(out.chunks_exact_mut(others.len())) {
                    out.iter_mut()
                        .zip(others)
                        .for_each(|(out, other)| *out = f32::from(u8::from(token == other)));
                }
            }
        }
    }
}

/// `|sum_t b_t a_t^T|^2 = sum over pairs of positions of (a_t . a_s)(b_t . b_s)`, over the positions of all parts, with an allowance for
/// rounding that makes it an upper bound.
///
/// The terms of the sum may cancel: positions whose output gradients point in opposite directions leave a gradient far
/// smaller than `M = sum_t |a_t| |b_t|`. A dot product of `d` floats in sixteen lanes is off by at most
/// `rounding(d) |x| |y|`, so the sum over all pairs is off by at most `(rounding(inputs) + rounding(outputs) + 16 u) M^2`,
/// with the unit `u = 2^-24`; where products underflow, by `d` of the least floats `m = 2^-149` more, which makes
/// `m (inputs (sum_t |b_t|)^2 + outputs (sum_t |a_t|)^2 + T^2)`. This is added: a norm that is too small would break a clipping
/// bound. For `T` positions with unrelated directions, it is of the order of `10^-6 T` relative to the squared norm.
///
/// The weighted sum adds the `T` products of a record up in single precision: `T` additions, the scaling of a factor, and the products where
/// they are not fused with the additions, each off by at most `u M`. So `(T + 2) u M` is added to the norm, which then bounds what the
/// record actually adds, with its rounding.
///
/// Infinite if a row is [too large](GREATEST_FACTOR), or if the sum overflows in single precision.
pub(crate) fn norm_of_outer(parts: &[(Matrix<'_>, Right<'_>)], scratch: &mut Scratch) -> f64 {
    let (mut total, mut magnitude, mut left, mut right) = (0.0, 0.0, 0.0, 0.0);
    for (p, (a, b)) in parts.iter().enumerate() {
        for row in 0..a.count {
            let (a, b) = (vector::squared_norm(a.row(row)).sqrt(), b.norm(row));
            if a.max(b) > GREATEST_FACTOR {
                return f64::INFINITY;
            }
            (magnitude, left, right) = (magnitude + a * b, left + a, right + b);
        }
        for (q, (c, d)) in parts.iter().enumerate().skip(p) {
            let pairs = a.count * c.count;
            scratch.third.reserve(pairs);
            scratch.fourth.reserve(pairs);
            let twice = if p == q {
                gram(*a, &mut scratch.third);
                b.gram(&mut scratch.fourth);
                1.0
            } else {
                dots(*a, *c, &mut scratch.third);
                b.dots(*d, &mut scratch.fourth);
                2.0
            };
            total += twice * vector::dot(&scratch.third[..pairs], &scratch.fourth[..pairs]);
        }
    }
    // Single precision has overflowed, possibly to minus infinity, which must not be treated as a small negative number.
    if !total.is_finite() {
        return f64::INFINITY;
    }
    let (inputs, outputs) = parts.first().map_or((0, 0), |(a, b)| (a.width, b.width()));
    let rounded = (rounding(inputs) + rounding(outputs) + 16.0 * UNIT) * magnitude * magnitude;
    let rows = parts.iter().map(|(a, _)| a.count).sum::<usize>() as f64;
    let underflown = LEAST * (inputs as f64 * right * right + outputs as f64 * left * left + rows * rows);
    // The exact value is at least 0; a NaN must stay a NaN.
    let squared = if total < 0.0 { rounded + underflown } else { total + rounded + underflown };
    (squared.sqrt() + (rows + 2.0) * UNIT * magnitude).powi(2)
}

/// A record with a greater factor counts as not finite. Factors are multiplied by weights, one of them alone, in single precision: a large one
/// could overflow under a weight above 1, although the gradient (its product with a tiny one) is moderate; or it could
/// magnify the rounding of a tiny factor.
pub(super) const GREATEST_FACTOR: f64 = 1e18;

/// Half of the distance from 1 to the next float.
const UNIT: f64 = 1.0 / (1 << 24) as f64;

/// The least positive float, `2^-149`.
const LEAST: f64 = 1.5e-45;

/// The largest error of a dot product of this length, relative to the product of the norms: additions within a lane, over the
/// lanes, and of the remainder.
fn rounding(width: usize) -> f64 {
    (width / 16 + width % 16 + 5) as f64 * UNIT
}
