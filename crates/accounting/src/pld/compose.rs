//! Composition of many steps by one Fourier transform per rung.
//!
//! The privacy losses of the steps add up, so their distributions convolve and their spectra multiply. Before that, every
//! distribution is tilted by `e^(lambda l)` and normalised (the Esscher transform), with `lambda` such that the tilted sum is
//! centred near the epsilon in question. All numerical errors are errors of the tilted sum. A unit of tilted mass at or above
//! epsilon counts at most `e^(Lambda - lambda epsilon)` times the overshoot of `moments.rs`, which is the Renyi bound on delta.
//! The errors are therefore *relative* to delta, however small delta is.
//!
//! The transform is cyclic: it represents losses modulo the length `W` of a window that begins at or just below the epsilon in
//! question. The following errors are bounded; they are added to delta for the upper bound and subtracted from it for the lower bound:
//! - tilted mass above the window, which is at most `OUTSIDE` by Chernoff's bound, wraps around into the window;
//! - mass below the window wraps around by at least `W` upwards, where it counts at most `e^(-lambda W)` in total;
//! - the sum of the absolute round-off errors is at most the Euclidean norm of the error of the spectrum;
//! - mass beyond the ends of a step's own grid is `lost`: it counts as delta.
//!
//! With very many steps only the lowest frequencies matter, and these are computed one by one (`low_frequencies.rs`).

use rayon::prelude::*;
use realfft::{RealFftPlanner, num_complex::Complex64};

use super::{
    composed::{Composed, NumericalErrors, PrivacyBounds},
    ladder::{Ladder, StepGroup},
    low_frequencies::{self, Tilted},
    moments::{Polygons, Side, StepLosses, Target, Tilt, ln_overshoot},
    out_of_reach,
    polygon::{Direction, LossDistribution},
};
use crate::{
    AccountingError, Bracket,
    number::{real_index, real_length, signed},
};

/// The largest permitted tilted mass above the window.
pub(super) const OUTSIDE: f64 = 1e-9;
/// How much mass from below the window may add to delta, relative to delta, as a logarithm.
const LN_WRAPPED: f64 = -18.0;
/// Transforms that are longer than this, over all rungs together, are replaced by `low_frequencies` where possible.
const LONG: f64 = 1024.0 * 1024.0;
/// Transforms that are longer than this, over all rungs together, are refused.
const MAX_LENGTH: f64 = 16.0 * 1024.0 * 1024.0;
/// The constant `c u`, generously chosen, of the textbook bound `c u log2(n)` on the relative error of a transform.
const FFT_ERROR: f64 = 4.0 * f64::EPSILON;
/// Spectral values with a squared absolute value below this count as zero.
pub(super) const NEGLIGIBLE: f64 = 1e-60;

/// The lower and the upper bound in one direction.
pub(super) fn bracket(
    ladder: &Ladder,
    upper: &Polygons,
    lower: &Polygons,
    direction: Direction,
    target: Target,
) -> Result<Bracket<f64>, AccountingError> {
    let steps = |polygons, side| StepLosses::new(polygons, &ladder.step_groups, direction, side);
    let (upper, lower) = (steps(upper, Side::Upper), steps(lower, Side::Lower));
    let tilt = upper.coarsened().tilt(target, LN_WRAPPED, OUTSIDE);
    let (lower, upper) = rayon::join(|| bound(&lower, tilt, target), || bound(&upper, tilt, target));
    Ok(Bracket { lower: lower?, upper: upper? })
}

/// Upper bounds on delta at these ascending epsilons in one direction, from one composition that is centred at the middle one.
pub(super) fn upper_deltas(
    ladder: &Ladder,
    upper: &Polygons,
    direction: Direction,
    epsilons: &[f64],
) -> Result<Vec<f64>, AccountingError> {
    let Some(first) = epsilons.first() else { return Ok(Vec::new()) };
    let steps = StepLosses::new(upper, &ladder.step_groups, direction, Side::Upper);
    let middle = Target::Epsilon(epsilons[epsilons.len() / 2]);
    let composed = compose(&steps, steps.coarsened().tilt(middle, LN_WRAPPED, OUTSIDE), *first)?;
    Ok(epsilons.iter().map(|epsilon| composed.delta(*epsilon)).collect())
}

fn bound(steps: &StepLosses<'_>, tilt: Tilt, target: Target) -> Result<f64, AccountingError> {
    match target {
        Target::Epsilon(epsilon) => Ok(compose(steps, tilt, epsilon)?.delta(epsilon)),
        Target::Delta(delta) => {
            // Epsilon is below the Renyi bound, usually by a few units of 1 / lambda. The window begins below it by a margin.
            for margin in [6.0, 20.0, 100.0, f64::INFINITY] {
                let floor = (tilt.renyi_bound - margin / tilt.lambda).max(0.0);
                if let Some(epsilon) = compose(steps, tilt, floor)?.epsilon(delta) {
                    return Ok(epsilon);
                }
            }
            Err(out_of_reach(format!("delta = {delta} is smaller than the mass outside its grid")))
        }
    }
}

/// The window in which the composed loss is evaluated, and its tilt.
pub(super) struct Window {
    pub lambda: f64,
    /// The logarithms of the moments of every rung, near and far.
    pub ln_moments: Vec<(f64, f64)>,
    pub ln_scale: f64,
    pub floor: f64,
    /// A loss that the tilted sum exceeds with probability at most `OUTSIDE`.
    pub high: f64,
    /// The smallest permitted number of grid points.
    pub points: f64,
    /// The sum of the offsets of all steps: the loss of the grid point with index 0.
    pub offset: f64,
}

impl Window {
    fn new(steps: &StepLosses<'_>, tilt: Tilt, floor: f64) -> Result<Self, AccountingError> {
        let lambda = tilt.lambda;
        let ln_moments = steps.ln_moments(lambda);
        let ln_scale: f64 =
            steps.step_groups.iter().map(|group| group.steps() * steps.ln_blended(group, &ln_moments)).sum();
        let high = steps.chernoff_quantile(lambda, tilt.chernoff_tilt, OUTSIDE);
        let points = (high - floor).max(tilt.fall / lambda) / steps.width + 3.0;
        let offset =
            steps.step_groups.iter().map(|group| group.steps() * steps.rungs[group.rung].near.offset).sum();
        // The number of grid points must be exact in floating point.
        if !(high.is_finite() && points <= 2_f64.powi(50) && ln_scale.is_finite()) {
            return Err(out_of_reach(format!("it would need {points:.1e} grid points")));
        }
        Ok(Self { lambda, ln_moments, ln_scale, floor, high, points, offset })
    }

    /// The numerical errors of a transform of this length.
    pub(super) fn errors(
        &self,
        steps: &StepLosses<'_>,
        length: f64,
        rounding: f64,
        slack: f64,
    ) -> NumericalErrors {
        let lost = steps.step_groups.iter().map(|group| {
            let rung = &steps.rungs[group.rung];
            let s = group.blend(steps.side);
            group.steps() * ((1.0 - s) * rung.near.lost + s * rung.far.as_ref().map_or(0.0, |far| far.lost))
        });
        NumericalErrors {
            lambda: self.lambda,
            ln_scale: self.ln_scale,
            overshoot: ln_overshoot(self.lambda).exp(),
            rounding,
            lost: lost.sum(),
            wrapped: (-self.lambda * (length - 2.0) * steps.width).exp(),
            slack,
            side: steps.side,
        }
    }

    fn tilted(&self, steps: &StepLosses<'_>) -> Vec<(Tilted, Option<Tilted>)> {
        let tilted =
            |losses: &LossDistribution, ln_moment| Tilted::new(losses, self.lambda, ln_moment, steps.width);
        let rungs = steps.rungs.iter().zip(&self.ln_moments);
        rungs
            .map(|(rung, &(near, far))| {
                (tilted(&rung.near, near), rung.far.as_ref().map(|losses| tilted(losses, far)))
            })
            .collect()
    }

    fn factors(&self, steps: &StepLosses<'_>) -> Vec<Factor> {
        let factor = |group: &StepGroup| {
            // Tilting changes the weights of a mixture: the weight of each part is its share of the moment.
            let (near, far) = self.ln_moments[group.rung];
            let whole = steps.ln_blended(group, &self.ln_moments);
            let s = group.blend(steps.side);
            let far = if s > 0.0 { s * (far - whole).exp() } else { 0.0 };
            Factor { rung: group.rung, near: (1.0 - s) * (near - whole).exp(), far, count: group.count }
        };
        steps.step_groups.iter().map(factor).collect()
    }
}

fn compose(
    steps: &StepLosses<'_>,
    tilt: Tilt,
    floor: f64,
) -> Result<Box<dyn PrivacyBounds>, AccountingError> {
    let window = Window::new(steps, tilt, floor)?;
    let (tilted, factors) = (window.tilted(steps), window.factors(steps));
    let long = window.points * real_length(tilted.len()) > LONG;
    let low = if long { low_frequencies::compose(steps, &window, &tilted, &factors) } else { None };
    match low {
        Some(low) => Ok(Box::new(low?)),
        None => Ok(Box::new(transform(steps, &window, &tilted, &factors)?)),
    }
}

fn transform(
    steps: &StepLosses<'_>,
    window: &Window,
    rungs: &[(Tilted, Option<Tilted>)],
    factors: &[Factor],
) -> Result<Composed, AccountingError> {
    let (width, points, offset, floor) = (steps.width, window.points, window.offset, window.floor);
    let rung_count = real_length(rungs.len());
    if !(points * rung_count <= MAX_LENGTH) {
        return Err(out_of_reach(format!(
            "it would need to compose {:.1e} grid points; the limit is {MAX_LENGTH:.1e}",
            points * rung_count
        )));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most MAX_LENGTH")]
    let length = fast_length(points.ceil() as usize);
    #[expect(clippy::cast_possible_truncation, reason = "losses are limited, and so are grids")]
    let first = ((floor - offset) / width).floor() as i64;

    let fft = RealFftPlanner::<f64>::new().plan_fft_forward(length);
    let spectrum = |tilted: &Tilted| -> Spectrum {
        let mut input = fft.make_input_vec();
        for (index, mass) in tilted.masses() {
            input[cyclic(index, length)] += mass;
        }
        let norm = input.iter().map(|x| x * x).sum::<f64>().sqrt();
        let mut values = fft.make_output_vec();
        fft.process(&mut input, &mut values).expect("buffers made by the same plan");
        Spectrum { values, norm }
    };
    let spectra: Vec<(Spectrum, Option<Spectrum>)> =
        rungs.par_iter().map(|(near, far)| (spectrum(near), far.as_ref().map(spectrum))).collect();
    let mut product = multiply(&spectra, factors, length / 2 + 1);
    let norms = spectra.iter().flat_map(|(near, far)| std::iter::once(near).chain(far)).map(|s| s.norm);
    // The moment of a step is a sum of rounded masses. Its relative error is at most their number times the unit round-off.
    let rounding = 1e-7 + steps.count() * (real_index(steps.longest()) + 1000.0) * f64::EPSILON;
    let slack = round_off(length, steps.count(), norms.fold(0.0, f64::max), &product) + OUTSIDE;

    // The spectrum of a real signal is real at its two ends. Rounding errors there are removed.
    product[0].im = 0.0;
    product[length / 2].im = 0.0;
    let inverse = RealFftPlanner::<f64>::new().plan_fft_inverse(length);
    let mut tilted = inverse.make_output_vec();
    inverse.process(&mut product, &mut tilted).expect("buffers made by the same plan");
    tilted.rotate_left(cyclic(first, length));
    let float_length = real_length(length);
    let total = tilted.iter().sum::<f64>() / float_length;
    tilted.iter_mut().for_each(|p| *p = (*p / float_length).max(0.0));
    // The total tilted mass must be 1. Anything else, such as NaN, is a numerical failure.
    if !((total - 1.0).abs() <= 1e-6 + slack) {
        return Err(out_of_reach(format!("its composed mass is {total} instead of 1")));
    }
    let errors = window.errors(steps, float_length, rounding, slack);
    Ok(Composed { errors, floor, width, offset, first, tilted })
}

/// The position of a grid point in a cyclic transform.
#[expect(clippy::cast_possible_truncation, reason = "a remainder is below the length")]
fn cyclic(index: i64, length: usize) -> usize {
    index.rem_euclid(signed(length)) as usize
}

/// A bound on the sum of the absolute errors of the composed tilted masses. By the Cauchy-Schwarz inequality and Parseval's theorem it
/// is at most the Euclidean norm of the error of the spectrum. Each of `steps` factors has the error of its transform and is multiplied
/// by numbers of at most 1; the inverse transform adds an error of its own.
fn round_off(length: usize, steps: f64, largest_input_norm: f64, product: &[Complex64]) -> f64 {
    let log_length = real_length(length).log2();
    // The other half of the spectrum is its mirror image.
    let product_norm = (2.0 * product.iter().map(Complex64::norm_sqr).sum::<f64>()).sqrt();
    let forward = FFT_ERROR * log_length * real_length(length).sqrt() * largest_input_norm * steps;
    let multiplication = 2.0 * FFT_ERROR * steps * product_norm;
    let backward = FFT_ERROR * log_length * product_norm;
    forward + multiplication + backward
}

struct Spectrum {
    values: Vec<Complex64>,
    norm: f64,
}

/// The factor `(near A + far B)^count`, where `A` and `B` are the two spectra of a rung.
pub(super) struct Factor {
    pub rung: usize,
    pub near: f64,
    pub far: f64,
    pub count: u64,
}

/// The product of all factors at every frequency, computed in blocks that fit in the cache. No factor exceeds 1 in absolute value, so
/// a block whose values have become negligible remains negligible.
fn multiply(spectra: &[(Spectrum, Option<Spectrum>)], factors: &[Factor], length: usize) -> Vec<Complex64> {
    const BLOCK: usize = 256;
    let mut product = vec![Complex64::new(1.0, 0.0); length];
    product.par_chunks_mut(BLOCK).enumerate().for_each(|(block, out)| {
        let range = block * BLOCK..block * BLOCK + out.len();
        for (i, factor) in factors.iter().enumerate() {
            let (near, far) = &spectra[factor.rung];
            let near = &near.values[range.clone()];
            match far {
                Some(far) if factor.far > 0.0 => {
                    let far = &far.values[range.clone()];
                    for ((out, a), b) in out.iter_mut().zip(near).zip(far) {
                        *out *= power(a * factor.near + b * factor.far, factor.count);
                    }
                }
                _ => out.iter_mut().zip(near).for_each(|(out, a)| *out *= power(*a, factor.count)),
            }
            if i % 16 == 15 && out.iter().all(|value| value.norm_sqr() < NEGLIGIBLE) {
                out.fill(Complex64::ZERO);
                return;
            }
        }
    });
    product
}

/// `base^exponent` by squaring. Bases are at most 1 in absolute value, so a negligible one remains negligible.
pub(super) fn power(mut base: Complex64, mut exponent: u64) -> Complex64 {
    if exponent == 1 {
        return base;
    }
    let mut result = Complex64::ONE;
    while exponent > 0 {
        if base.norm_sqr() < NEGLIGIBLE {
            return Complex64::ZERO;
        }
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

/// The smallest even length of at least `n` with no prime factor above 3.
fn fast_length(n: usize) -> usize {
    let smooth = |mut m: usize| {
        for p in [2, 3] {
            while m.is_multiple_of(p) {
                m /= p;
            }
        }
        m == 1
    };
    (n.max(2)..).find(|&m| m % 2 == 0 && smooth(m)).expect("powers of two are smooth")
}

/// The same composition by low frequencies and by a whole transform.
#[cfg(test)]
pub(super) fn compose_both(
    steps: &StepLosses<'_>,
    target: Target,
) -> (impl PrivacyBounds + use<>, impl PrivacyBounds + use<>) {
    let tilt = steps.coarsened().tilt(target, LN_WRAPPED, OUTSIDE);
    let window = Window::new(steps, tilt, 0.0).unwrap();
    let (tilted, factors) = (window.tilted(steps), window.factors(steps));
    let low = low_frequencies::compose(steps, &window, &tilted, &factors).expect("this is faster").unwrap();
    (low, transform(steps, &window, &tilted, &factors).unwrap())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_lengths_are_even_and_smooth() {
        assert_eq!([1, 2, 7, 11, 31, 1025].map(fast_length), [2, 2, 8, 12, 32, 1152]);
    }

    #[test]
    fn power_matches_repeated_multiplication() {
        let base = Complex64::new(0.6, -0.3);
        let naive = (0..13).fold(Complex64::ONE, |acc, _| acc * base);
        assert!((power(base, 13) - naive).norm() < 1e-15);
        assert_eq!(power(base, 0), Complex64::ONE);
        assert_eq!(power(base, 1_000_000), Complex64::ZERO);
    }
}
