//! Composition of very many steps from their lowest frequencies.
//!
//! A spectrum that is raised to a high power is negligible except at the lowest frequencies. The number of frequencies that are
//! not negligible does not depend on the number of steps, so a billion steps take as long as a million. Three arguments make this
//! rigorous:
//!
//! **The band.** Let `p` be the tilted masses of a step and `r_d = sum_j p_j p_(j+d)`. The spectrum at angle `t` satisfies
//!
//! ```text
//! 1 - |phi(t)|^2 = 4 sum_(d >= 1) r_d sin^2(d t / 2).
//! ```
//!
//! Keep the terms with `d <= D`. For `t <= pi/D`, `sin x >= 2x/pi` makes this at least `(4 t^2/pi^2) sum r_d d^2`. For
//! `pi/D <= t <= pi`, `sum_(d <= D) sin^2(d t/2) = D/2 + 1/4 - sin((D + 1/2) t) / (4 sin(t/2)) >= D/4`, which makes it at least
//! `D min r_d`. With `|phi|^count <= e^(-count (1 - |phi|^2) / 2)` this bounds all frequencies that are left out.
//!
//! **Rounding.** `phi - 1` and the moment minus 1 are sums of small numbers and have a high relative accuracy. If each mass of a
//! step has a relative error of at most `r`, then the likelihood ratios of the normalised tilted distributions `p` and `p'` are
//! within `1 +- 2r`. The divergence of `T` of them is at most `4 r^2 T`, and by Pinsker's inequality the sum of the absolute
//! differences of the composed masses is at most `sqrt(8 T) r`. The error of the moments is at most `2 r T` times the
//! [`drift`](super::polygon::LossDistribution::drift).
//!
//! **Delta.** With `z = e^(i t)`, `a = z e^(-lambda w)`, `b = e^-w` and `s` the distance from epsilon to the next grid point,
//!
//! ```text
//! sum_(m >= 0) a^m (1 - e^-s b^m) = ((1 - e^-s) + a (e^-s - b)) / ((1 - a) (1 - a b)),
//! ```
//!
//! so delta is a sum over frequencies. The sum over `m` extends beyond the window, where copies of the composed mass are at
//! multiples of the window's length. These copies add a geometric series to the error of mass that wraps around, and nothing else.

use rayon::prelude::*;
use realfft::num_complex::Complex64;

use super::{
    compose::{Factor, NEGLIGIBLE, OUTSIDE, Window},
    composed::{NumericalErrors, PrivacyBounds},
    moments::{Side, StepLosses},
    out_of_reach,
    polygon::LossDistribution,
};
use crate::{
    AccountingError,
    number::{real, real_index, real_length},
};

/// The largest number of products of a frequency and a grid point: about a second of work.
const MAX_WORK: f64 = 3e7;
/// The largest number of products for computing the band.
const MAX_BAND_WORK: usize = 10_000_000;
/// The relative rounding error of the contribution of one frequency to delta.
const TERM_ROUNDING: f64 = 1e-13;

/// The masses of a step, tilted and normalised.
pub(super) struct Tilted {
    first: i64,
    mass: Vec<f64>,
}

impl Tilted {
    pub(super) fn new(losses: &LossDistribution, lambda: f64, ln_moment: f64, width: f64) -> Self {
        let tilt = |(index, mass): (i64, &f64)| {
            mass * (lambda * (losses.offset + real_index(index) * width) - ln_moment).exp()
        };
        Self { first: losses.first, mass: (losses.first..).zip(&losses.mass).map(tilt).collect() }
    }

    pub(super) fn masses(&self) -> impl Iterator<Item = (i64, f64)> {
        (self.first..).zip(self.mass.iter().copied())
    }

    fn deviation(&self) -> f64 {
        let mean: f64 = self.masses().map(|(index, mass)| mass * real_index(index)).sum();
        self.masses().map(|(index, mass)| mass * (real_index(index) - mean).powi(2)).sum::<f64>().sqrt()
    }

    /// The angle from which on the `count`-th power of a spectrum that contains this distribution with weight `weight` is proved to be
    /// negligible. `None` if there is no proof, or if it takes too much work.
    fn band(&self, count: f64, weight: f64) -> Option<f64> {
        use std::f64::consts::PI;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let max_lag = (2.0 * self.deviation()).round().max(1.0) as usize;
        if max_lag.saturating_mul(self.mass.len()) > MAX_BAND_WORK {
            return None;
        }
        let products =
            |d: usize| -> f64 { self.mass.iter().zip(self.mass.iter().skip(d)).map(|(a, b)| a * b).sum() };
        let (mut least, mut curvature) = (f64::INFINITY, 0.0);
        for d in 1..=max_lag {
            let product = products(d);
            least = least.min(product);
            curvature += product * real_length(d).powi(2);
        }
        // The exponent is half of the count, with a margin for rounding. `NEGLIGIBLE` is about the squared absolute value.
        let power = 0.499 * count * weight * weight;
        let needed = -0.5 * NEGLIGIBLE.ln();
        let edge = PI / real_length(max_lag);
        let angle = 0.5 * PI * (needed / (power * curvature)).sqrt();
        (power * real_length(max_lag) * least >= needed && angle.is_finite()).then_some(angle.min(edge))
    }

    /// The spectrum minus 1 at a frequency, and the sum of the absolute values of its terms.
    fn spectrum_minus_one(&self, frequency: i64, period: i64) -> (Complex64, f64) {
        let (mut sum, mut size) = (Complex64::ZERO, 0.0);
        for (index, mass) in self.masses() {
            let (s, c) = half_angle(frequency, index, period).sin_cos();
            sum += Complex64::new(-2.0 * s * s, -2.0 * s * c) * mass;
            size += 2.0 * s.abs() * mass;
        }
        (sum, size)
    }
}

/// `pi frequency index / period`, reduced to `[-pi/2, pi/2]` by exact integer arithmetic.
#[expect(clippy::cast_possible_truncation, reason = "a remainder")]
fn half_angle(frequency: i64, index: i64, period: i64) -> f64 {
    let turns = (i128::from(frequency) * i128::from(index)).rem_euclid(i128::from(period)) as i64;
    let turns = if 2 * turns > period { turns - period } else { turns };
    std::f64::consts::PI * real_index(turns) / real_index(period)
}

/// A composed privacy loss on the grid `offset + j width`, represented by its lowest frequencies.
struct LowFrequencies {
    errors: NumericalErrors,
    floor: f64,
    high: f64,
    width: f64,
    offset: f64,
    period: i64,
    values: Vec<Complex64>,
}

/// The composition by low frequencies, or `None` where a whole transform is faster.
pub(super) fn compose(
    steps: &StepLosses<'_>,
    window: &Window,
    rungs: &[(Tilted, Option<Tilted>)],
    factors: &[Factor],
) -> Option<Result<impl PrivacyBounds + use<>, AccountingError>> {
    // The rounding of the curves of groups of records has not been measured.
    if steps.has_record_groups {
        return None;
    }
    let most = factors.iter().max_by_key(|factor| factor.count)?;
    let (tilted, weight) = match &rungs[most.rung] {
        (_, Some(far)) if most.far > most.near => (far, most.far),
        (near, _) => (near, most.near),
    };
    let angle = tilted.band(real(most.count), weight)?;
    #[expect(clippy::cast_possible_truncation, reason = "at most 2^50")]
    let period = window.points.ceil() as i64;
    let frequencies = angle * real_index(period) / (2.0 * std::f64::consts::PI) + 2.0;
    let points: usize =
        rungs.iter().map(|(near, far)| near.mass.len() + far.as_ref().map_or(0, |far| far.mass.len())).sum();
    let (work, transform) =
        (frequencies * real_length(points + factors.len()), real_index(period) * real_length(rungs.len()));
    if !(work <= MAX_WORK && work < transform && 2.0 * frequencies < real_index(period)) {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "at most MAX_WORK")]
    let spectrum: Vec<(Complex64, f64)> = (0..frequencies as i64)
        .into_par_iter()
        .map(|frequency| product(rungs, factors, frequency, period))
        .collect();
    let round_off = (2.0 * spectrum.iter().map(|(_, error)| error * error).sum::<f64>()).sqrt();
    if !(round_off.is_finite() && spectrum.iter().all(|(value, _)| value.is_finite())) {
        return Some(Err(out_of_reach("its spectrum is not finite".to_owned())));
    }
    let relative = rounding_of_masses(steps);
    let slack = round_off
        + real_index(period).sqrt() * NEGLIGIBLE.sqrt()
        + (8.0 * steps.count()).sqrt() * relative
        + OUTSIDE;
    let rounding = 1e-7 + rounding_of_moments(steps, window.lambda, relative);
    let mut errors = window.errors(steps, real_index(period), rounding, slack);
    // The sum over all copies of the composed mass, which are a window's length apart.
    let copies = 1.0 / (1.0 - errors.wrapped);
    errors.wrapped *= copies;
    errors.slack *= copies;
    Some(Ok(LowFrequencies {
        errors,
        floor: window.floor,
        high: window.high,
        width: steps.width,
        offset: window.offset,
        period,
        values: spectrum.into_iter().map(|(value, _)| value).collect(),
    }))
}

/// The product of all factors at one frequency, and a bound on its absolute error.
fn product(
    rungs: &[(Tilted, Option<Tilted>)],
    factors: &[Factor],
    frequency: i64,
    period: i64,
) -> (Complex64, f64) {
    let spectra: Vec<_> = rungs
        .iter()
        .map(|(near, far)| {
            let points = near.mass.len().max(far.as_ref().map_or(0, |far| far.mass.len()));
            (
                near.spectrum_minus_one(frequency, period),
                far.as_ref().map(|far| far.spectrum_minus_one(frequency, period)),
                points,
            )
        })
        .collect();
    let mut logarithm = Complex64::ZERO;
    // For each factor: the absolute error of all its steps, and the absolute value of a single step.
    let mut errors = Vec::with_capacity(factors.len());
    for factor in factors {
        let ((near, near_size), far, points) = &spectra[factor.rung];
        let (far, far_size) = far.unwrap_or_default();
        let excess = near * factor.near + far * factor.far;
        let size = near_size * factor.near + far_size * factor.far;
        let (count, points) = (real(factor.count), real_length(*points));
        let whole = Complex64::ONE + excess;
        // ln(1 + excess), accurate where the excess is small.
        let ln =
            Complex64::new(0.5 * (2.0 * excess.re + excess.norm_sqr()).ln_1p(), excess.im.atan2(whole.re));
        logarithm += ln * count;
        errors.push((2.0 * count * (points + 32.0) * f64::EPSILON * size, whole.norm()));
    }
    let value = Complex64::from_polar(logarithm.re.exp(), logarithm.im);
    // The error of one factor is multiplied by all other factors, which are at most 1 in absolute value.
    let error = errors.iter().map(|(error, own)| error * if *own > 1e-3 { value.norm() / own } else { 1.0 });
    (value, error.sum::<f64>() + 16.0 * f64::EPSILON * value.norm())
}

/// The relative error of the masses of a step. Masses are second differences of a curve, so their rounding errors grow with the square
/// of the number of cells. For small `mu` the curve is itself a difference; for `mu` below 1e-3 it is a series (`gaussian.rs`). The
/// constants are about twice the errors that were measured for chords, against a computation with 60 digits.
fn rounding_of_masses(steps: &StepLosses<'_>) -> f64 {
    let ill = 0.5 + 0.1 * (1.0 / steps.least_mu).min(1e3);
    1e-10 + real_index(steps.longest()).powi(2) * ill * f64::EPSILON
}

/// The relative error of the product of the moments of all steps.
fn rounding_of_moments(steps: &StepLosses<'_>, lambda: f64, relative: f64) -> f64 {
    let plain = (real_index(steps.longest()) + 1000.0) * f64::EPSILON;
    let drifts: Vec<Option<f64>> = steps
        .rungs
        .iter()
        .map(|rung| {
            let near = rung.near.drift(lambda, steps.width)?;
            let far = rung.far.as_ref().map_or(Some(0.0), |far| far.drift(lambda, steps.width))?;
            Some(near.max(far))
        })
        .collect();
    let one = |rung: usize| drifts[rung].map_or(plain, |drift| plain.min(2.0 * relative * drift));
    steps.step_groups.iter().map(|group| group.steps() * one(group.rung)).sum()
}

impl LowFrequencies {
    /// Delta at `epsilon` and a bound on its rounding error, both relative to the weight at `epsilon`.
    #[expect(clippy::cast_possible_truncation, reason = "losses are limited, and so are grids")]
    fn relative_delta(&self, epsilon: f64) -> (f64, f64) {
        let Self { width, offset, period, .. } = *self;
        let index = ((epsilon - offset) / width).ceil() as i64;
        let gap = (offset + real_index(index) * width - epsilon).clamp(0.0, width);
        let (lambda, rest) = (self.errors.lambda, width - gap);
        let (mut sum, mut size) = (0.0, 0.0);
        for (frequency, value) in (0..).zip(&self.values) {
            let (s, c) = half_angle(frequency, 1, period).sin_cos();
            let turn = Complex64::new(-2.0 * s * s, 2.0 * s * c);
            // e^(-x) z - 1, without cancellation.
            let decayed_minus_one = |x: f64| turn * (-x).exp() + (-x).exp_m1();
            let a = decayed_minus_one(lambda * width);
            let numerator = (a + 1.0) * (-(-rest).exp_m1() * (-gap).exp()) - (-gap).exp_m1();
            let kernel = numerator / (a * decayed_minus_one((1.0 + lambda) * width));
            let phase = Complex64::from_polar(1.0, 2.0 * half_angle(frequency, index, period));
            let part = (value * phase * kernel).re * if frequency == 0 { 1.0 } else { 2.0 };
            sum += part;
            size += 2.0 * value.norm() * kernel.norm();
        }
        let scale = (-lambda * gap).exp() / real_index(period);
        (sum * scale, TERM_ROUNDING * size * scale)
    }

    /// The bound on delta. A NaN is replaced by the trivial bound.
    fn bound(&self, epsilon: f64) -> f64 {
        let weight = self.errors.weight(epsilon);
        let (delta, error) = self.relative_delta(epsilon);
        let (error, trivial) = match self.errors.side {
            Side::Upper => (error, f64::INFINITY),
            Side::Lower => (-error, f64::NEG_INFINITY),
        };
        let bound = self.errors.with_errors(weight * (delta + error), weight);
        if bound.is_nan() { trivial } else { bound }
    }
}

impl PrivacyBounds for LowFrequencies {
    fn delta(&self, epsilon: f64) -> f64 {
        self.bound(epsilon).clamp(0.0, 1.0)
    }

    /// The largest epsilon at which the bound on delta exceeds `delta`: found by strides from above, then by bisection.
    fn epsilon(&self, delta: f64) -> Option<f64> {
        const STRIDES: i64 = 64;
        let stride = (self.high - self.floor) / real_index(STRIDES);
        let mut above = self.high;
        if !(self.bound(above) <= delta) {
            return None;
        }
        for left in (0..STRIDES).rev() {
            let epsilon = self.floor + real_index(left) * stride;
            if self.bound(epsilon) > delta {
                return Some(self.errors.crossing(epsilon, above, delta, |epsilon| self.bound(epsilon)));
            }
            above = epsilon;
        }
        (self.floor <= 0.0).then_some(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            compose::{compose_both, power},
            discretisation::{Discretisation, first_width},
            moments::Target,
            pair::Pair,
            polygon::Direction,
        },
        *,
    };

    fn discretise(mu: f64, rate: f64, count: u64, target: Target) -> Discretisation {
        let pairs = [(Pair { rate, mu, group: 1 }, count)];
        Discretisation::new(&pairs, first_width(&pairs), 0.02, target).unwrap()
    }

    #[test]
    fn low_frequencies_agree_with_a_whole_transform() {
        for (mu, rate, count) in [(0.01, 0.3, 1_000_000), (0.05, 0.02, 300_000), (0.2, 0.001, 10_000_000)] {
            let target = Target::Delta(1e-6);
            let discretised = discretise(mu, rate, count, target);
            for direction in [Direction::Remove, Direction::Add] {
                for (polygons, side) in [(&discretised.upper, Side::Upper), (&discretised.lower, Side::Lower)]
                {
                    let steps = StepLosses::new(polygons, &discretised.ladder.step_groups, direction, side);
                    let (low, whole) = compose_both(&steps, target);
                    for delta in [1e-3, 1e-6] {
                        let (a, b) = (low.epsilon(delta).unwrap(), whole.epsilon(delta).unwrap());
                        assert!((a - b).abs() < 1e-4 * b, "{mu} {rate} {side:?} {delta}: {a} {b}");
                        let (c, d) = (low.delta(a), whole.delta(a));
                        assert!((c - d).abs() < 5e-3 * d, "{mu} {rate} {side:?} {delta}: {c} {d}");
                    }
                }
            }
        }
    }

    #[test]
    fn frequencies_outside_of_the_band_are_negligible() {
        let bell =
            |x: i64| (-0.5 * real_index(x).powi(2) / 300.0).exp() / (600.0 * std::f64::consts::PI).sqrt();
        let lopsided = |x: i64| if x < 0 { 0.0 } else { 0.05 * 0.95_f64.powf(real_index(x)) };
        for shape in [&bell as &dyn Fn(i64) -> f64, &lopsided] {
            let tilted = Tilted { first: -400, mass: (-400..=400).map(shape).collect() };
            for count in [3000_u64, 1_000_000] {
                let angle = tilted.band(real(count), 1.0).unwrap();
                let period = 100_000;
                let start = angle * real_index(period) / (2.0 * std::f64::consts::PI);
                #[expect(clippy::cast_possible_truncation, reason = "a frequency")]
                for frequency in (start.ceil() as i64..=period / 2).step_by(7) {
                    let phi = Complex64::ONE + tilted.spectrum_minus_one(frequency, period).0;
                    assert!(power(phi, count).norm_sqr() <= NEGLIGIBLE, "{count} {frequency}");
                }
                // The band is only a few times as wide as that of a Gaussian.
                assert!(angle * tilted.deviation() * real(count).sqrt() < 50.0, "{angle}");
            }
        }
    }
}
