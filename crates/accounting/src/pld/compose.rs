//! Composition of many steps by one Fourier transform per rung.
//!
//! The privacy losses of the steps add up, so their masses convolve and their spectra multiply. Before that, every
//! mass is tilted by `e^(lambda l)` and normalised (Esscher's transform), with `lambda` such that the tilted sum is
//! centred near the epsilon in question. All numerical errors are errors of the tilted sum; turning the tilt back
//! multiplies them by at most `e^(Lambda - lambda epsilon)`, a Chernoff bound that is within a small factor of delta
//! itself. So round-off, truncation and wrap-around are *relative* to delta, however small delta is.
//!
//! What can go wrong is bounded and charged, upwards or downwards as needed:
//! - tilted mass outside of the window `[low, high)` wraps around: at most `OUTSIDE` on each side by Chernoff;
//! - round-off, in the sum of absolute values: at most the Euclidean norm of the spectrum's error;
//! - mass beyond the ends of a step's own grid: exactly `lost`, added to delta.

use rayon::prelude::*;
use realfft::{RealFftPlanner, num_complex::Complex64};

use super::{
    dots::{Direction, Law, Polygon},
    ladder::{Climb, Ladder},
};
use crate::{
    AccountingError,
    search::{golden_section, spread},
};

/// The tilted mass that may lie outside of the window, on each side.
const OUTSIDE: f64 = 1e-10;
/// Covers the rounding of the masses themselves, relative to delta.
pub(super) const MASS_ROUNDING: f64 = 1e-7;
/// Longer transforms are refused.
const MAX_LENGTH: f64 = 8.0 * 1024.0 * 1024.0;
/// A generous constant in front of the textbook bound on a transform's relative error, `c u log2(n)`.
const FFT_ERROR: f64 = 4.0 * f64::EPSILON;

/// What the tilt should be centred on.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    Epsilon(f64),
    Delta(f64),
}

/// Which end of the bracket a composition serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Upper,
    Lower,
}

/// The polygons of one rung: at the rung itself, and at the far end of its interval.
pub(super) struct RungPolygons {
    pub near: Polygon,
    pub far: Option<Polygon>,
}

/// A composed privacy loss: `tilted[i]` belongs to loss `offset + (first + i) width`.
pub(super) struct Composed {
    width: f64,
    offset: f64,
    first: i64,
    tilted: Vec<f64>,
    lambda: f64,
    ln_scale: f64,
    /// Mass at infinity.
    lost: f64,
    /// The bound on all errors of the tilted masses together.
    slack: f64,
    side: Side,
}

/// One rung's laws in one direction.
struct RungLaws {
    near: Law,
    far: Option<Law>,
}

/// A composition before the transform: everything about moments.
struct Moments<'a> {
    laws: &'a [RungLaws],
    climbs: &'a [Climb],
    side: Side,
    width: f64,
}

fn blend(climb: &Climb, side: Side) -> f64 {
    match side {
        Side::Upper => climb.blend_high,
        Side::Lower => climb.blend_low,
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts and grid indices are far below 2^53")]
fn float(index: i64) -> f64 {
    index as f64
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn count(climb: &Climb) -> f64 {
    climb.count as f64
}

impl Law {
    /// `ln sum_i mass_i e^(lambda l_i)`, from `decay[k] = e^(-|lambda| k width)`: relative to the largest term, so that
    /// nothing overflows.
    fn ln_moment(&self, lambda: f64, width: f64, decay: &[f64]) -> f64 {
        let last = self.first + length(&self.mass) - 1;
        let (sum, top): (f64, i64) = if lambda > 0.0 {
            (self.mass.iter().rev().zip(decay).map(|(p, e)| p * e).sum(), last)
        } else {
            (self.mass.iter().zip(decay).map(|(p, e)| p * e).sum(), self.first)
        };
        sum.ln() + lambda * (self.offset + float(top) * width)
    }
}

fn length(values: &[f64]) -> i64 {
    i64::try_from(values.len()).expect("a length")
}

impl Moments<'_> {
    fn decay(&self, lambda: f64) -> Vec<f64> {
        let laws = self.laws.iter().flat_map(|rung| std::iter::once(&rung.near).chain(&rung.far));
        let longest = laws.map(|law| length(&law.mass)).max().unwrap_or(0);
        (0..longest).map(|k| (-lambda.abs() * float(k) * self.width).exp()).collect()
    }

    /// The logarithm of every law's moment, rung by rung.
    fn ln_moments(&self, lambda: f64) -> Vec<(f64, f64)> {
        let decay = self.decay(lambda);
        let at = |law: &Law| law.ln_moment(lambda, self.width, &decay);
        self.laws.iter().map(|rung| (at(&rung.near), rung.far.as_ref().map_or(f64::NEG_INFINITY, at))).collect()
    }

    /// `Lambda(lambda)`, the logarithm of the composed loss' moment.
    fn total(&self, lambda: f64) -> f64 {
        let moments = self.ln_moments(lambda);
        self.climbs.iter().map(|climb| count(climb) * self.ln_blended(climb, &moments)).sum()
    }

    fn ln_blended(&self, climb: &Climb, moments: &[(f64, f64)]) -> f64 {
        let (near, far) = moments[climb.rung];
        let s = blend(climb, self.side);
        if s <= 0.0 { near } else { near + (s * (far - near).exp_m1()).ln_1p() }
    }

    /// The tilt that centres the sum on the target.
    fn best_tilt(&self, target: Target) -> f64 {
        // The optimum of a Gaussian with the same variance is the right order of magnitude.
        let variance = self.variance(0.0, 1e-5 / self.width);
        let steepness = match target {
            Target::Delta(delta) => (-2.0 * delta.ln()).sqrt(),
            Target::Epsilon(epsilon) => (epsilon / variance.sqrt()).max(1.0),
        };
        let guess = steepness / variance.sqrt();
        let bound = |ln_lambda: f64| {
            let lambda = ln_lambda.exp();
            match target {
                Target::Delta(delta) => (self.total(lambda) - delta.ln()) / lambda,
                Target::Epsilon(epsilon) => self.total(lambda) - lambda * epsilon,
            }
        };
        golden_section(bound, spread(guess * 1e-3), spread(guess * 30.0), 0.05).0.exp()
    }

    /// The variance of the loss under a tilt, from a second difference.
    fn variance(&self, lambda: f64, step: f64) -> f64 {
        let ends = self.total(lambda + step) + self.total(lambda - step);
        ((ends - 2.0 * self.total(lambda)) / (step * step)).max(1e-30)
    }

    /// Ends of a window that holds all but `OUTSIDE` of the tilted mass on either side, by Chernoff's bound
    /// `Pr[S >= s] <= e^(Lambda(lambda + t) - Lambda(lambda) - t s)`.
    fn window(&self, lambda: f64, ln_scale: f64) -> (f64, f64) {
        let outside = -OUTSIDE.ln();
        // The best tilt for a Gaussian, and smaller ones for heavier tails.
        let best = (2.0 * outside / self.variance(lambda, 0.01 * lambda)).sqrt();
        let tilts = [1.0, 0.6, 0.3, 0.15, 0.05].map(|factor| factor * best);
        let reach = |t: f64| (self.total(lambda + t) - ln_scale + outside) / t;
        let high = tilts.iter().map(|&t| reach(t)).fold(f64::INFINITY, f64::min);
        let low = tilts.iter().map(|&t| reach(-t)).filter(|v| v.is_finite()).fold(f64::NEG_INFINITY, f64::max);
        (low, high)
    }
}

/// Composes all steps of a ladder in one direction.
pub(super) fn compose(
    ladder: &Ladder,
    polygons: &[RungPolygons],
    width: f64,
    direction: Direction,
    side: Side,
    target: Target,
) -> Result<Composed, AccountingError> {
    let laws: Vec<RungLaws> = polygons
        .iter()
        .map(|p| RungLaws { near: p.near.law(direction), far: p.far.as_ref().map(|far| far.law(direction)) })
        .collect();
    let moments = Moments { laws: &laws, climbs: &ladder.climbs, side, width };
    let lambda = moments.best_tilt(target);
    let ln_moments = moments.ln_moments(lambda);
    let ln_scale = moments.total(lambda);
    let (low, high) = moments.window(lambda, ln_scale);
    // The window is in marks: the offsets of all steps are set aside.
    let offset: f64 = ladder.climbs.iter().map(|climb| count(climb) * laws[climb.rung].near.offset).sum();
    let length = (high - low) / width + 2.0;
    if !(length <= MAX_LENGTH && ln_scale.is_finite()) {
        return Err(AccountingError::OutOfReach {
            accountant: super::NAME,
            reason: format!("it would need a grid of {length:.1e} points, and has at most {MAX_LENGTH:.1e}"),
            instead: "use --accountant rdp, which answers here with a looser bound",
        });
    }
    #[expect(clippy::cast_possible_truncation, reason = "at most MAX_LENGTH grid points from zero")]
    let first = ((low - offset) / width).floor() as i64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most MAX_LENGTH")]
    let length = fast_length(length.ceil() as usize);

    let fft = RealFftPlanner::<f64>::new().plan_fft_forward(length);
    let transform = |law: &Law, ln_moment: f64| -> Spectrum {
        let mut input = fft.make_input_vec();
        for (i, p) in (law.first..).zip(&law.mass) {
            let tilted = p * (lambda * (law.offset + float(i) * width) - ln_moment).exp();
            #[expect(clippy::cast_possible_wrap, clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "a remainder")]
            let slot = i.rem_euclid(length as i64) as usize;
            input[slot] += tilted;
        }
        let norm = input.iter().map(|x| x * x).sum::<f64>().sqrt();
        let mut values = fft.make_output_vec();
        fft.process(&mut input, &mut values).expect("buffers made by the same plan");
        Spectrum { values, norm }
    };
    let spectra: Vec<(Spectrum, Option<Spectrum>)> = laws
        .par_iter()
        .zip(&ln_moments)
        .map(|(rung, &(near, far))| (transform(&rung.near, near), rung.far.as_ref().map(|law| transform(law, far))))
        .collect();

    // Tilting changes the weights of a mixture: the far part weighs s M_far / M, the near part the rest.
    let factors: Vec<Factor> = ladder
        .climbs
        .iter()
        .map(|climb| {
            let (near, far) = ln_moments[climb.rung];
            let s = blend(climb, side);
            let weight = if s > 0.0 { s * (far - moments.ln_blended(climb, &ln_moments)).exp() } else { 0.0 };
            debug_assert!(near.is_finite());
            Factor { rung: climb.rung, weight, count: climb.count }
        })
        .collect();
    let mut product = multiply(&spectra, &factors, length / 2 + 1);

    let log_length = f64::from(usize::BITS - length.leading_zeros());
    #[expect(clippy::cast_precision_loss, reason = "at most MAX_LENGTH")]
    let root = (length as f64).sqrt();
    let steps: f64 = ladder.climbs.iter().map(count).sum();
    let input_norm = spectra.iter().flat_map(|(a, b)| std::iter::once(a).chain(b)).map(|s| s.norm).fold(0.0, f64::max);
    // Each half of the spectrum stands for its mirror image too.
    let product_norm = (2.0 * product.iter().map(Complex64::norm_sqr).sum::<f64>()).sqrt();
    let round_off = FFT_ERROR * log_length * (steps * root * input_norm + product_norm) + 8.0 * f64::EPSILON * steps * product_norm;

    let inverse = RealFftPlanner::<f64>::new().plan_fft_inverse(length);
    // The spectrum of a real signal is real at its two ends; rounding must not say otherwise.
    product[0].im = 0.0;
    if length % 2 == 0 {
        product[length / 2].im = 0.0;
    }
    let mut cyclic = inverse.make_output_vec();
    inverse.process(&mut product, &mut cyclic).expect("buffers made by the same plan");
    #[expect(clippy::cast_possible_wrap, clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "a remainder")]
    let start = first.rem_euclid(length as i64) as usize;
    cyclic.rotate_left(start);
    #[expect(clippy::cast_precision_loss, reason = "at most MAX_LENGTH")]
    let scale = 1.0 / length as f64;
    let tilted = cyclic.into_iter().map(|p| (p * scale).max(0.0)).collect();

    let lost = |climb: &Climb| {
        let rung = &laws[climb.rung];
        let s = blend(climb, side);
        let far = rung.far.as_ref().map_or(0.0, |law| law.lost);
        count(climb) * ((1.0 - s) * rung.near.lost + s * far)
    };
    let lost = ladder.climbs.iter().map(lost).sum();
    Ok(Composed { width, offset, first, tilted, lambda, ln_scale, lost, slack: round_off + 2.0 * OUTSIDE, side })
}

struct Spectrum {
    values: Vec<Complex64>,
    norm: f64,
}

/// `((1 - weight) near + weight far)^count`.
struct Factor {
    rung: usize,
    weight: f64,
    count: u64,
}

/// The product of all factors, frequency by frequency, in blocks that stay in cache.
fn multiply(spectra: &[(Spectrum, Option<Spectrum>)], factors: &[Factor], length: usize) -> Vec<Complex64> {
    const BLOCK: usize = 512;
    let mut product = vec![Complex64::new(1.0, 0.0); length];
    product.par_chunks_mut(BLOCK).enumerate().for_each(|(block, out)| {
        let range = block * BLOCK..block * BLOCK + out.len();
        for factor in factors {
            let (near, far) = &spectra[factor.rung];
            let near = &near.values[range.clone()];
            match far {
                Some(far) if factor.weight > 0.0 => {
                    let far = &far.values[range.clone()];
                    for ((out, a), b) in out.iter_mut().zip(near).zip(far) {
                        *out *= power(a + (b - a) * factor.weight, factor.count);
                    }
                }
                _ => out.iter_mut().zip(near).for_each(|(out, a)| *out *= power(*a, factor.count)),
            }
        }
    });
    product
}

/// `base^exponent` by squaring.
fn power(mut base: Complex64, mut exponent: u64) -> Complex64 {
    if exponent == 1 {
        return base;
    }
    let mut result = Complex64::new(1.0, 0.0);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

/// The smallest even length of at least `n` with no prime factor above 5.
fn fast_length(n: usize) -> usize {
    let smooth = |mut m: usize| {
        for p in [2, 3, 5] {
            while m % p == 0 {
                m /= p;
            }
        }
        m == 1
    };
    (n.max(2)..).find(|&m| m % 2 == 0 && smooth(m)).expect("powers of two are smooth")
}

impl Composed {
    #[expect(clippy::cast_possible_wrap, reason = "an index of a vector")]
    fn loss(&self, index: usize) -> f64 {
        self.offset + float(self.first + index as i64) * self.width
    }

    /// What one unit of tilted mass at this loss is worth.
    fn worth(&self, loss: f64) -> f64 {
        (self.ln_scale - self.lambda * loss).exp()
    }

    /// Delta from sums over all losses above epsilon: `sum p`, and `sum p e^-l`; with every error charged.
    fn charged(&self, epsilon: f64, mass: f64, discounted: f64) -> f64 {
        let plain = (mass - epsilon.exp() * discounted).max(0.0);
        let errors = self.worth(epsilon) * self.slack;
        match self.side {
            Side::Upper => (plain + errors) * (1.0 + MASS_ROUNDING) + self.lost,
            Side::Lower => (plain - errors) * (1.0 - MASS_ROUNDING),
        }
    }

    /// A bound on delta at `epsilon >= 0`, from this composition's side.
    pub(super) fn delta(&self, epsilon: f64) -> f64 {
        let (mut mass, mut discounted) = (0.0, 0.0);
        for (i, p) in self.tilted.iter().enumerate().rev() {
            let loss = self.loss(i);
            if loss <= epsilon {
                break;
            }
            let p = p * self.worth(loss);
            mass += p;
            discounted += p * (-loss).exp();
        }
        self.charged(epsilon, mass, discounted).clamp(0.0, 1.0)
    }

    /// A bound on the epsilon at `delta`, from this composition's side: the largest epsilon at which the bound on delta
    /// still exceeds `delta`. None if even an epsilon at the end of the window is not enough.
    pub(super) fn epsilon(&self, delta: f64) -> Option<f64> {
        let (mut mass, mut discounted) = (0.0, 0.0);
        let mut above = None;
        for (i, p) in self.tilted.iter().enumerate().rev() {
            let loss = self.loss(i);
            if loss < 0.0 || self.charged(loss, mass, discounted) > delta {
                // The bound crosses delta between this loss and the one above it.
                let high = above?;
                return Some(self.crossing(loss.max(0.0), high, mass, discounted, delta));
            }
            above = Some(loss);
            let p = p * self.worth(loss);
            mass += p;
            discounted += p * (-loss).exp();
        }
        // The window lies above zero and delta is never reached: what is below the window is in the slack.
        above.map(|high| self.crossing(0.0, high, mass, discounted, delta))
    }

    /// The epsilon in `[low, high]` at which the bound falls to `delta`, to the safe side.
    fn crossing(&self, mut low: f64, mut high: f64, mass: f64, discounted: f64, delta: f64) -> f64 {
        let exceeds = |epsilon| self.charged(epsilon, mass, discounted) > delta;
        if !exceeds(low) {
            return low;
        }
        for _ in 0..60 {
            let mid = 0.5 * (low + high);
            if exceeds(mid) { low = mid } else { high = mid }
        }
        match self.side {
            Side::Upper => high,
            Side::Lower => low,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_lengths_are_even_and_smooth() {
        assert_eq!([1, 2, 7, 11, 31, 1025].map(fast_length), [2, 2, 8, 12, 32, 1080]);
    }

    #[test]
    fn power_matches_repeated_multiplication() {
        let base = Complex64::new(0.6, -0.3);
        let naive = (0..13).fold(Complex64::new(1.0, 0.0), |acc, _| acc * base);
        assert!((power(base, 13) - naive).norm() < 1e-15);
        assert_eq!(power(base, 0), Complex64::new(1.0, 0.0));
    }
}
