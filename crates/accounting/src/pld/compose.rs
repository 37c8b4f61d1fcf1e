//! Composition of many steps by one Fourier transform per rung.
//!
//! The privacy losses of the steps add up, so their masses convolve and their spectra multiply. Before that, every
//! mass is tilted by `e^(lambda l)` and normalised (Esscher's transform), with `lambda` such that the tilted sum is
//! centred near the epsilon in question. All numerical errors are errors of the tilted sum. A unit of tilted mass at or
//! above epsilon is worth at most `e^(Lambda - lambda epsilon)` times the overshoot of `moments.rs`, which is the Renyi
//! bound on delta. So errors are *relative* to delta, however small delta is.
//!
//! The transform is cyclic: it sees losses modulo the window's length `W`, and the window begins at or just below the
//! epsilon in question. What can go wrong is bounded and charged, upwards or downwards as needed:
//! - tilted mass above the window, at most `OUTSIDE` by Chernoff's bound, comes back inside of it;
//! - mass below the window comes back at least `W` higher, where it is worth at most `e^(-lambda W)` in all;
//! - round-off is, in the sum of absolute values, at most the Euclidean norm of the spectrum's error;
//! - mass beyond the ends of a step's own grid is `lost`: it counts as delta.

use rayon::prelude::*;
use realfft::{RealFftPlanner, num_complex::Complex64};

use super::{
    composed::Composed,
    dots::{Direction, Law},
    ladder::Ladder,
    moments::{Polygons, Side, Steps, Target, Tilt, float, ln_overshoot},
    out_of_reach,
};
use crate::{AccountingError, Bracket};

/// The tilted mass that may lie above the window.
const OUTSIDE: f64 = 1e-9;
/// What mass from below the window may add to delta, relative to delta, as a logarithm.
const LN_WRAPPED: f64 = -18.0;
/// Longer transforms, over all rungs together, are refused.
const MAX_LENGTH: f64 = 16.0 * 1024.0 * 1024.0;
/// A generous constant in front of the textbook bound on a transform's relative error, `c u log2(n)`.
const FFT_ERROR: f64 = 4.0 * f64::EPSILON;
/// Spectral values below this are zero for all purposes.
const NEGLIGIBLE: f64 = 1e-60;

/// Both sides' answers in one direction.
pub(super) fn bracket(
    ladder: &Ladder,
    upper: &Polygons,
    lower: &Polygons,
    direction: Direction,
    target: Target,
) -> Result<Bracket<f64>, AccountingError> {
    let steps = |polygons, side| Steps::new(polygons, &ladder.climbs, direction, side);
    let (upper, lower) = (steps(upper, Side::Upper), steps(lower, Side::Lower));
    let tilt = upper.sketch().tilt(target, LN_WRAPPED, OUTSIDE);
    let (lower, upper) = rayon::join(|| answer(&lower, tilt, target), || answer(&upper, tilt, target));
    Ok(Bracket { lower: lower?, upper: upper? })
}

fn answer(steps: &Steps<'_>, tilt: Tilt, target: Target) -> Result<f64, AccountingError> {
    match target {
        Target::Epsilon(epsilon) => Ok(compose(steps, tilt, epsilon)?.delta(epsilon)),
        Target::Delta(delta) => {
            // The answer lies below Renyi's bound, mostly by a few over lambda: the window begins a little lower.
            for margin in [6.0, 20.0, 100.0, f64::INFINITY] {
                let floor = (tilt.renyi_bound - margin / tilt.lambda).max(0.0);
                if let Some(epsilon) = compose(steps, tilt, floor)?.epsilon(delta) {
                    return Ok(epsilon);
                }
            }
            Err(out_of_reach(format!("delta = {delta} is below what its grid leaves out")))
        }
    }
}

fn compose(steps: &Steps<'_>, tilt: Tilt, floor: f64) -> Result<Composed, AccountingError> {
    let Steps { width, side, .. } = *steps;
    let lambda = tilt.lambda;
    let ln_moments = steps.ln_moments(lambda);
    let ln_scale: f64 =
        steps.climbs.iter().map(|climb| climb.steps() * steps.ln_blended(climb, &ln_moments)).sum();
    let high = steps.reach(lambda, tilt.reaching_tilt, OUTSIDE);
    let extent = (high - floor).max(tilt.fall / lambda);
    #[expect(clippy::cast_precision_loss, reason = "a number of rungs")]
    let rungs = steps.laws.len() as f64;
    let points = extent / width + 3.0;
    if !(high.is_finite() && points * rungs <= MAX_LENGTH && ln_scale.is_finite()) {
        return Err(out_of_reach(format!(
            "it would need to compose {:.1e} grid points, and has at most {MAX_LENGTH:.1e}",
            points * rungs
        )));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most MAX_LENGTH")]
    let length = fast_length(points.ceil() as usize);
    // Marks count from the sum of all steps' offsets.
    let offset: f64 =
        steps.climbs.iter().map(|climb| climb.steps() * steps.laws[climb.rung].near.offset).sum();
    #[expect(clippy::cast_possible_truncation, reason = "losses are limited, and so are grids")]
    let first = ((floor - offset) / width).floor() as i64;

    let fft = RealFftPlanner::<f64>::new().plan_fft_forward(length);
    let transform = |law: &Law, ln_moment: f64| -> Spectrum {
        let mut input = fft.make_input_vec();
        for (mark, mass) in (law.first..).zip(&law.mass) {
            let exponent = lambda * (law.offset + float(mark) * width) - ln_moment;
            input[cyclic(mark, length)] += mass * exponent.exp();
        }
        let norm = input.iter().map(|x| x * x).sum::<f64>().sqrt();
        let mut values = fft.make_output_vec();
        fft.process(&mut input, &mut values).expect("buffers made by the same plan");
        Spectrum { values, norm }
    };
    let spectra: Vec<(Spectrum, Option<Spectrum>)> = steps
        .laws
        .par_iter()
        .zip(&ln_moments)
        .map(|(rung, &(near, far))| {
            (transform(&rung.near, near), rung.far.as_ref().map(|law| transform(law, far)))
        })
        .collect();
    let factors: Vec<Factor> = steps
        .climbs
        .iter()
        .map(|climb| {
            // Tilting changes the weights of a mixture: each part weighs its share of the moment.
            let (near, far) = ln_moments[climb.rung];
            let whole = steps.ln_blended(climb, &ln_moments);
            let s = climb.blend(side);
            let far = if s > 0.0 { s * (far - whole).exp() } else { 0.0 };
            Factor { rung: climb.rung, near: (1.0 - s) * (near - whole).exp(), far, count: climb.count }
        })
        .collect();
    let mut product = multiply(&spectra, &factors, length / 2 + 1);
    let norms = spectra.iter().flat_map(|(near, far)| std::iter::once(near).chain(far)).map(|s| s.norm);
    let count: f64 = steps.climbs.iter().map(super::ladder::Climb::steps).sum();
    // Each step's moment is a sum of rounded masses: its relative error is at most their number times the unit round-off.
    let rounding = 1e-7 + count * (steps.longest() + 1000.0) * f64::EPSILON;
    let slack = round_off(length, count, norms.fold(0.0, f64::max), &product) + OUTSIDE;

    // The spectrum of a real signal is real at its two ends; rounding must not say otherwise.
    product[0].im = 0.0;
    product[length / 2].im = 0.0;
    let inverse = RealFftPlanner::<f64>::new().plan_fft_inverse(length);
    let mut tilted = inverse.make_output_vec();
    inverse.process(&mut product, &mut tilted).expect("buffers made by the same plan");
    tilted.rotate_left(cyclic(first, length));
    #[expect(clippy::cast_precision_loss, reason = "at most MAX_LENGTH")]
    let scale = 1.0 / length as f64;
    let total = scale * tilted.iter().sum::<f64>();
    tilted.iter_mut().for_each(|p| *p = (*p * scale).max(0.0));
    // A tilted mass is 1 in all. Anything else, NaN above all, is a failure and must not be mistaken for an answer.
    if !((total - 1.0).abs() <= 1e-6 + slack) {
        return Err(out_of_reach(format!("its composed mass is {total} instead of 1")));
    }

    let lost = steps.climbs.iter().map(|climb| {
        let rung = &steps.laws[climb.rung];
        let s = climb.blend(side);
        climb.steps() * ((1.0 - s) * rung.near.lost + s * rung.far.as_ref().map_or(0.0, |law| law.lost))
    });
    #[expect(clippy::cast_precision_loss, reason = "at most MAX_LENGTH")]
    let wrapped = (-lambda * (length - 2) as f64 * width).exp();
    Ok(Composed {
        floor,
        width,
        offset,
        first,
        lambda,
        ln_scale,
        overshoot: ln_overshoot(lambda).exp(),
        rounding,
        lost: lost.sum(),
        wrapped,
        slack,
        side,
        tilted,
    })
}

/// A mark's place in a cyclic transform.
#[expect(clippy::cast_possible_wrap, clippy::cast_possible_truncation, reason = "a remainder")]
fn cyclic(mark: i64, length: usize) -> usize {
    mark.rem_euclid(length as i64) as usize
}

/// A bound on the sum of absolute errors of the composed tilted masses. By Cauchy and Parseval it is at most the
/// Euclidean norm of the spectrum's error: each of `steps` factors is off by its transform's error and multiplied by
/// numbers of at most 1, and the way back adds its own.
#[expect(clippy::cast_precision_loss, reason = "at most MAX_LENGTH")]
fn round_off(length: usize, steps: f64, largest_input_norm: f64, product: &[Complex64]) -> f64 {
    let log_length = (length as f64).log2();
    // Half of the spectrum stands for its mirror image too.
    let product_norm = (2.0 * product.iter().map(Complex64::norm_sqr).sum::<f64>()).sqrt();
    let forward = FFT_ERROR * log_length * (length as f64).sqrt() * largest_input_norm * steps;
    let multiplication = 2.0 * FFT_ERROR * steps * product_norm;
    let backward = FFT_ERROR * log_length * product_norm;
    forward + multiplication + backward
}

struct Spectrum {
    values: Vec<Complex64>,
    norm: f64,
}

/// `(near A + far B)^count` for a rung's two spectra `A` and `B`.
struct Factor {
    rung: usize,
    near: f64,
    far: f64,
    count: u64,
}

/// The product of all factors, frequency by frequency, in blocks that stay in cache. No factor exceeds 1, so a block
/// whose values have become negligible stays so.
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

/// `base^exponent` by squaring; bases are at most 1, so a negligible one stays so.
fn power(mut base: Complex64, mut exponent: u64) -> Complex64 {
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
