//! Standard normal numbers: the ziggurat of Marsaglia and Tsang (2000), with the tail of Marsaglia (1964).
//!
//! The region below the curve `f(x) = exp(-x^2 / 2)`, `x >= 0`, is covered by 256 layers of equal area `v`. Layer `i >= 1` is the rectangle up to
//! the width `x_i`, between the heights `f(x_i)` and `f(x_{i+1})`. Layer 0 is the rectangle below `f(r)` up to the width `r = x_1`, together with
//! the tail beyond `r`. A point is drawn uniformly in a random layer and kept if it is below the curve. Then its abscissa is normal. If the
//! abscissa is below `x_{i+1}`, the point is certainly below the curve. This holds for 98.5 % of all points. Such a point needs one random word: eight
//! bits for the layer and 53 for the abscissa with its sign.

use std::sync::LazyLock;

use rand_chacha::rand_core::Rng;

use crate::sampling::uniform;

const LAYERS: usize = 256;

/// Where the tail begins, `r`: the value with which the highest of 256 layers ends at the height 1.
const TAIL: f64 = 3.654_152_885_361_009;

/// The number of random words that are drawn at once.
const WORDS: usize = 256;

/// The edges of the layers.
struct Layers {
    /// The widths, in descending order. That of layer 0 is `v / f(r)`, so that its tail is chosen with the right probability. The last is 0.
    widths: [f64; LAYERS + 1],
    /// The heights `f(x_i)` of the lower edges of the layers from 1 on, and the height 1. The first is not used.
    heights: [f64; LAYERS + 1],
}

static LAYER_EDGES: LazyLock<Layers> = LazyLock::new(Layers::new);

impl Layers {
    fn new() -> Self {
        // Layer 0: the rectangle and the tail.
        let tail = (std::f64::consts::PI / 2.0).sqrt() * libm::erfc(TAIL / std::f64::consts::SQRT_2);
        let area = TAIL * curve(TAIL) + tail;
        let (mut widths, mut heights) = ([0.0; LAYERS + 1], [1.0; LAYERS + 1]);
        widths[0] = area / curve(TAIL);
        widths[1] = TAIL;
        for layer in 1..LAYERS {
            heights[layer] = curve(widths[layer]);
            if layer + 1 < LAYERS {
                // The height of the next layer is f(x_{i+1}) = f(x_i) + v / x_i.
                widths[layer + 1] = (-2.0 * libm::log(heights[layer] + area / widths[layer])).sqrt();
            }
        }
        Self { widths, heights }
    }
}

/// The density of the normal distribution, relative to its maximum. `libm` gives the same result on every processor.
fn curve(x: f64) -> f64 {
    libm::exp(-0.5 * x * x)
}

/// Calls `f` with each element and a standard normal number of its own.
pub(crate) fn for_each_with_normal<T>(
    elements: impl ExactSizeIterator<Item = T>,
    rng: &mut impl Rng,
    mut f: impl FnMut(T, f64),
) {
    let edges = &*LAYER_EDGES;
    let mut words = [0; 8 * WORDS];
    let mut elements = elements;
    while elements.len() > 0 {
        let drawn = &mut words[..8 * elements.len().min(WORDS)];
        rng.fill_bytes(drawn);
        for (word, element) in drawn.chunks_exact(8).zip(&mut elements) {
            let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
            f(element, edges.normal(word, rng));
        }
    }
}

impl Layers {
    /// The normal number of a random word. If the point is not clearly below the curve, more words are drawn.
    #[inline(always)]
    fn normal(&self, word: u64, rng: &mut impl Rng) -> f64 {
        let (layer, x) = self.point(word);
        if x.abs() < self.widths[layer + 1] { x } else { self.beyond(layer, x, rng) }
    }

    /// The layer and the abscissa of a point, uniform between minus and plus the width of the layer.
    #[inline(always)]
    fn point(&self, word: u64) -> (usize, f64) {
        let layer = (word & 0xff) as usize;
        #[expect(
            clippy::cast_possible_wrap,
            clippy::cast_precision_loss,
            reason = "53 bits with a sign, exactly"
        )]
        let fraction = ((word as i64 >> 11) as f64 + 0.5) * 2.0_f64.powi(-52);
        (layer, fraction * self.widths[layer])
    }

    /// The normal number of a point that may be above the curve.
    #[cold]
    fn beyond(&self, mut layer: usize, mut x: f64, rng: &mut impl Rng) -> f64 {
        loop {
            if x.abs() < self.widths[layer + 1] {
                return x;
            }
            if layer == 0 {
                return tail(|| uniform(rng)).copysign(x);
            }
            let (low, high) = (self.heights[layer], self.heights[layer + 1]);
            if low + (high - low) * uniform(rng) < curve(x) {
                return x;
            }
            (layer, x) = self.point(rng.next_u64());
        }
    }
}

/// A standard normal number beyond [`TAIL`] (Marsaglia 1964): `TAIL + a` with `a` exponential of rate `TAIL`, kept with
/// probability `exp(-a^2 / 2)`. The uniform numbers have 53 significant bits however small they are, so there are no gaps far from zero.
fn tail(mut uniform: impl FnMut() -> f64) -> f64 {
    loop {
        let (beyond, exponential) = (-libm::log(uniform()) / TAIL, -libm::log(uniform()));
        if 2.0 * exponential >= beyond * beyond {
            return TAIL + beyond;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Randomness, randomness::GivenWords};

    fn cumulative(x: f64) -> f64 {
        0.5 * libm::erfc(-x / std::f64::consts::SQRT_2)
    }

    fn normals(count: usize, seed: u64) -> Vec<f64> {
        let mut rng = Randomness::seeded(seed).streams().number(0);
        let mut values = Vec::new();
        for_each_with_normal(0..count, &mut rng, |_, normal| values.push(normal));
        values
    }

    /// All layers have the same area, and the highest ends at the height 1.
    #[test]
    fn the_layers_have_equal_areas() {
        let Layers { widths, heights } = &*LAYER_EDGES;
        let area = widths[0] * curve(TAIL);
        assert!(widths.is_sorted_by(|a, b| a > b) && widths[LAYERS] == 0.0 && heights[LAYERS] == 1.0);
        for layer in 1..LAYERS {
            let own = widths[layer] * (heights[layer + 1] - heights[layer]);
            assert!((own / area - 1.0).abs() < 1e-12, "layer {layer}: {own} of {area}");
        }
        assert!((area - 0.004_928_673_233_974_655).abs() < 1e-15);
    }

    /// Fixed seed. 400 intervals of equal probability: chi-square with 399 degrees of freedom exceeds 399 + 5 sqrt(798) with probability 3e-6.
    /// If points that may be above the curve were always kept, or never, chi-square would be larger by thousands.
    #[test]
    fn numbers_are_normal() {
        let (intervals, count) = (400, 4_000_000);
        let mut counts = vec![0.0; intervals];
        let values = normals(count, 11);
        for value in &values {
            counts[((cumulative(*value) * intervals as f64) as usize).min(intervals - 1)] += 1.0;
        }
        let expected = count as f64 / intervals as f64;
        let chi_square: f64 = counts.iter().map(|count| (count - expected).powi(2) / expected).sum();
        let freedom = (intervals - 1) as f64;
        assert!(chi_square < freedom + 5.0 * (2.0 * freedom).sqrt(), "{chi_square}");
        // Moments 1 to 4: the variances of these means are 1, 2, 15 and 96 over the number.
        for (power, moment, variance) in [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)] {
            let mean = values.iter().map(|value| value.powi(power)).sum::<f64>() / count as f64;
            assert!((mean - moment).abs() < 5.0 * (variance / count as f64).sqrt(), "{power}: {mean}");
        }
    }

    /// Numbers beyond the layers have the distribution of a normal tail. The seed is fixed; the probability of a false alarm is 1.3e-4.
    #[test]
    fn the_tail_is_normal() {
        let mut rng = Randomness::seeded(8).streams().number(0);
        let mut values: Vec<f64> = (0..200_000).map(|_| tail(|| uniform(&mut rng))).collect();
        values.sort_unstable_by(f64::total_cmp);
        let n = values.len() as f64;
        let distance = values.iter().enumerate().fold(0.0_f64, |worst, (i, v)| {
            let expected = 1.0 - cumulative(-v) / cumulative(-TAIL);
            worst.max((expected - i as f64 / n).abs()).max(((i + 1) as f64 / n - expected).abs())
        });
        assert!(distance < 2.2 / n.sqrt(), "{distance}");
    }

    /// From logarithms of multiples of 2^-52, neighbouring numbers beyond 9.6 standard deviations would be further apart than 2^-22.
    #[test]
    fn the_tail_has_no_gaps() {
        let far = |uniform: f64| {
            let mut draws = [uniform, 1e-300].into_iter();
            tail(|| draws.next().unwrap())
        };
        for distance in [4.0_f64, 6.0, 9.6, 12.0, 20.0] {
            let uniform = (-TAIL * (distance - TAIL)).exp();
            let (here, next) = (far(uniform), far(uniform.next_up()));
            assert!((here - distance).abs() < 1e-9 && (here - next).abs() < 2.0_f64.powi(-45), "{distance}");
        }
        // The first word selects layer 0 and an abscissa near its width. The next four are two uniform numbers: about 2^-44, with these digits, and
        // about 2^-65.
        let drawn = |digits: u64| {
            let mut found = 0.0;
            let words = vec![i64::MAX as u64 & !0xff, 1 << 20, digits, 0, 1 << 63, 0];
            for_each_with_normal([()].into_iter(), &mut GivenWords(words.into_iter()), |(), normal| {
                found = normal
            });
            found
        };
        assert!((drawn(0) - 12.0).abs() < 0.1 && drawn(0) != drawn(1 << 60));
        assert!((drawn(0) - drawn(1 << 20)).abs() < 2.0_f64.powi(-40) && drawn(0) != drawn(1 << 20));
    }
}
