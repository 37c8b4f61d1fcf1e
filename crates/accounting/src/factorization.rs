//! Banded Toeplitz factorizations: the coefficients of correlated noise with the least error in the model.
//!
//! With coefficients `c_0, ..., c_(b-1)`, step `t` of `n` releases `u_t = sum_j c_j x_(t-j) + s N(0, 1)`. Dividing by the coefficients as a
//! power series, `x~_t = (u_t - sum_(j>=1) c_j x~_(t-j)) / c_0`, gives back the sums `x_t` with noise `C^-1 z`, where `C` is the banded lower
//! triangular Toeplitz matrix of the coefficients. A model that has taken `t` steps has used `sum_(s<=t) r_(t-s) x~_s`, where `r_k = 1`
//! for plain SGD (prefix sums) and `r_k = 1 + m + ... + m^k` with momentum `m`. With `w = C^-1 r`, the noise in this sum has the variance
//! `s^2 sum_(k<=t) w_k^2`. The noise is proportional to the sensitivity, `s = z |c|_2`, so the mean squared error over all steps is `z^2 L(c)`,
//!
//! ```text
//! L(c) = |c|^2 (1/n) sum_(k=0..n-1) (n - k) w_k^2.
//! ```
//!
//! **References.** Choquette-Choo et al. 2023, "(Amplified) Banded Matrix Factorization: A unified approach to private training"
//! (arXiv 2306.08153); McKenna 2024, "Scaling up the Banded Matrix Factorization Mechanism for Differentially Private ML"
//! (arXiv 2405.15913).

use std::collections::VecDeque;

use crate::number::{real, real_length};

/// The coefficients of a run are optimised for at most this product of the number of steps and the number of coefficients.
const MOST_PRODUCTS: u64 = 1 << 22;
/// The coefficients of a run are optimised for at most this many steps.
const MOST_STEPS: u64 = 1 << 16;
/// The number of pairs of differences (of points and of gradients) from which L-BFGS estimates the curvature.
const PAIRS: usize = 24;
/// The search ends after this many directions.
const MOST_DIRECTIONS: usize = 300;
/// The search ends when the slope along the next direction, relative to `L`, is smaller than this.
const LEAST_SLOPE: f64 = 1e-12;

/// The weighted sums of noisy gradients that determine a model: its optimizer sets the weights.
///
/// For Nesterov's momentum, the workload of heavy-ball momentum with the same coefficient is a close approximation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Workload {
    momentum: f64,
}

impl Workload {
    /// Prefix sums: SGD without momentum.
    pub const PREFIX_SUMS: Self = Self { momentum: 0.0 };

    /// SGD with this momentum, which is limited to [0, 0.9999]. A NaN counts as 0.
    pub fn momentum(momentum: f64) -> Self {
        Self { momentum: if momentum > 0.0 { momentum.min(0.9999) } else { 0.0 } }
    }

    /// `w = C^-1 r`, one element after another.
    fn response(self, coefficients: &[f64]) -> Quotient {
        let (first, later) = coefficients
            .split_first()
            .map_or((1.0, Vec::new()), |(first, later)| (*first, later.iter().rev().copied().collect()));
        Quotient { first, later, momentum: self.momentum, share: 0.0, recent: Vec::new() }
    }

    /// `L(c)`: the mean squared error of the model over this many steps, in units of the squared noise multiplier. It is infinite if
    /// the noise grows without bound.
    ///
    /// Once `w` has converged, a formula gives the sum of the remaining terms, so very long runs take no more time.
    ///
    /// ```
    /// use sordino_accounting::factorization::Workload;
    ///
    /// // Independent noise: prefix sums have the mean squared error (n + 1) / 2.
    /// assert_eq!(Workload::PREFIX_SUMS.mean_squared_error(&[1.0], 100), 50.5);
    /// ```
    pub fn mean_squared_error(self, coefficients: &[f64], steps: u64) -> f64 {
        let (mut sum, mut last, mut equal) = (0.0, f64::NAN, 0);
        for (number, w) in (0..steps).zip(self.response(coefficients)) {
            let left = real(steps - number);
            // If the terms of the workload are constant, then `w` is constant after as many equal terms as there are coefficients.
            equal = if (w - last).abs() <= 1e-15 * w.abs() { equal + 1 } else { 0 };
            if equal > coefficients.len() + 64 && self.has_converged(number) {
                sum += 0.5 * left * (left + 1.0) * w * w;
                break;
            }
            sum += left * w * w;
            last = w;
        }
        let error = squared_norm(coefficients) * sum / real(steps);
        if error.is_nan() { f64::INFINITY } else { error }
    }

    /// Whether all further terms of the workload are equal to this one, in double precision.
    fn has_converged(self, number: u64) -> bool {
        // m^k < 2^-53 (1 - m) for k ln(1/m) >= 53 ln 2 + ln(1 / (1 - m)), and ln(1/m) >= 1 - m.
        real(number) * (1.0 - self.momentum) >= 50.0
    }

    /// The `band` coefficients with the least mean squared error over this many steps, scaled to `|c|_2 = 1`.
    ///
    /// `L` does not depend on the scale of `c`, so `c_0 = 1` during the search, which begins at the truncated square root of prefix sums
    /// and follows quasi-Newton directions (L-BFGS). A gradient takes `O(n b)`. For runs with more than 2^16
    /// steps, or 2^22 products of steps and coefficients, the coefficients are optimised for fewer steps (at least 4 times the band). Their error over all
    /// steps is then a little above the least: by less than 1 % at 300,000 steps and a band of 16, and by 4 % at 20,000 steps and a band of 512.
    ///
    /// Only additions, multiplications, divisions and square roots are used, so the result is the same on all machines.
    ///
    /// **Edge cases.** A band of 0 is treated as 1. A band that exceeds the number of steps is permitted.
    pub fn optimal_coefficients(self, band: usize, steps: u64) -> Vec<f64> {
        let band = band.max(1);
        let most = (MOST_PRODUCTS / band as u64).min(MOST_STEPS).max(4 * band as u64);
        let steps = steps.clamp(1, most);
        let mut found = square_root(band);
        // Shorter runs first: their searches take less time, and their result is a good starting point for the last search.
        for shorter in [64, 8, 1] {
            let steps = usize::try_from(steps / shorter).unwrap_or(usize::MAX);
            if shorter == 1 || steps > 4 * band {
                found = minimised(&Objective { workload: self, steps }, found);
            }
        }
        let norm = squared_norm(&found).sqrt();
        found.iter_mut().for_each(|c| *c /= norm);
        found
    }
}

/// The standard deviation of the noise in each `x~_t`, in units of the noise of a release: `sqrt(sum_(k<=t) v_k^2)`, where `v` is the first
/// column of `C^-1`. The list has one value for each step, or ends earlier if the values have converged.
pub fn noise_growth(coefficients: &[f64], steps: u64) -> Vec<f64> {
    let (mut squares, mut equal, mut growth) = (0.0_f64, 0, Vec::new());
    // The first column of `C^-1` consists of the differences of consecutive elements of `C^-1` applied to a vector of ones.
    let mut before = 0.0;
    for w in Workload::PREFIX_SUMS.response(coefficients).take(usize::try_from(steps).unwrap_or(usize::MAX)) {
        let v = w - before;
        squares += v * v;
        growth.push(squares.sqrt());
        equal = if v * v <= 1e-15 * squares { equal + 1 } else { 0 };
        if equal > coefficients.len() + 64 {
            break;
        }
        before = w;
    }
    growth
}

/// The coefficients of the square root of `1 / (1 - x)`, truncated: `c_0 = 1`, `c_k = c_(k-1) (2k - 1) / (2k)`. Their error for prefix sums is 5
/// to 30 % above the least.
///
/// **References.** Fichtenberger, Henzinger and Upadhyay 2023; Kalinin and Lampert 2024 (arXiv 2405.13763).
pub fn square_root(band: usize) -> Vec<f64> {
    let next = |(k, c): &(usize, f64)| Some((k + 1, c * real_length(2 * k + 1) / real_length(2 * k + 2)));
    std::iter::successors(Some((0, 1.0)), next).take(band).map(|(_, c)| c).collect()
}

fn squared_norm(vector: &[f64]) -> f64 {
    vector.iter().map(|x| x * x).sum()
}

/// The inner product, with four partial sums.
fn product(a: &[f64], b: &[f64]) -> f64 {
    let (whole_a, rest_a) = a.as_chunks::<4>();
    let (whole_b, rest_b) = b.as_chunks::<4>();
    let mut parts = [0.0; 4];
    for (a, b) in whole_a.iter().zip(whole_b) {
        for (part, (a, b)) in parts.iter_mut().zip(a.iter().zip(b)) {
            *part += a * b;
        }
    }
    let rest: f64 = rest_a.iter().zip(rest_b).map(|(a, b)| a * b).sum();
    (parts[0] + parts[1]) + (parts[2] + parts[3]) + rest
}

/// The elements of `C^-1 r`: `w_k = (r_k - sum_(j>=1) c_j w_(k-j)) / c_0`.
struct Quotient {
    first: f64,
    /// `c_(b-1), ..., c_1`.
    later: Vec<f64>,
    momentum: f64,
    /// The last element of the workload.
    share: f64,
    /// The last elements, the newest last.
    recent: Vec<f64>,
}

impl Iterator for Quotient {
    type Item = f64;

    fn next(&mut self) -> Option<f64> {
        self.share = 1.0 + self.momentum * self.share;
        let count = self.recent.len().min(self.later.len());
        let earlier =
            product(&self.later[self.later.len() - count..], &self.recent[self.recent.len() - count..]);
        let w = (self.share - earlier) / self.first;
        if self.recent.len() > 2 * self.later.len() + 1000 {
            self.recent.drain(..self.recent.len() - self.later.len());
        }
        self.recent.push(w);
        Some(w)
    }
}

/// `L` over this many steps, as a function of coefficients with `c_0 = 1`.
struct Objective {
    workload: Workload,
    steps: usize,
}

impl Objective {
    fn value(&self, c: &[f64]) -> f64 {
        self.workload.mean_squared_error(c, self.steps as u64)
    }

    /// The gradient of `ln L` with respect to `c_1, ..., c_(b-1)`; 0 for `c_0`.
    ///
    /// With `g_k = 2 w_k (n - k) / n`, backward substitution `l_k = (g_k - sum_(j>=1) c_j l_(k+j)) / c_0` gives the gradient of the sum
    /// without `|c|^2`: `- sum_k l_k w_(k-j)`.
    fn gradient(&self, c: &[f64]) -> Vec<f64> {
        let (n, band) = (self.steps, c.len());
        let w: Vec<f64> = self.workload.response(c).take(n).collect();
        let weight = |k: usize| real_length(n - k) / real_length(n);
        let mut l = vec![0.0; n + band];
        for k in (0..n).rev() {
            let later = product(&c[1..], &l[k + 1..k + band]);
            l[k] = (2.0 * w[k] * weight(k) - later) / c[0];
        }
        let error: f64 = w.iter().enumerate().map(|(k, w)| weight(k) * w * w).sum();
        let norm = squared_norm(c);
        let slope = |j: usize| 2.0 * c[j] / norm - product(&l[j.min(n)..n], &w[..n - j.min(n)]) / error;
        std::iter::once(0.0).chain((1..band).map(slope)).collect()
    }
}

/// L-BFGS with a line search that halves the step until `L` has decreased sufficiently.
fn minimised(objective: &Objective, start: Vec<f64>) -> Vec<f64> {
    let (mut at, mut value, mut gradient) =
        (start.clone(), objective.value(&start), objective.gradient(&start));
    // Differences of points and of gradients, and one over their product.
    let mut pairs: VecDeque<(Vec<f64>, Vec<f64>, f64)> = VecDeque::new();
    for _ in 0..MOST_DIRECTIONS {
        let mut direction = newton_direction(&gradient, &pairs);
        let mut slope = product(&direction, &gradient);
        if !(slope < 0.0) {
            pairs.clear();
            direction = gradient.iter().map(|g| -g).collect();
            slope = -squared_norm(&gradient);
        }
        if !(slope < -LEAST_SLOPE) {
            break;
        }
        let mut length = if pairs.is_empty() { (0.01 / slope.abs()).sqrt().min(1.0) } else { 1.0 };
        let accepted = (0..40).find_map(|_| {
            let next: Vec<f64> = at.iter().zip(&direction).map(|(x, d)| x + length * d).collect();
            let found = objective.value(&next);
            // The logarithm of `L` has this slope, and `ln(1 + x) <= x`.
            let enough = found <= value * (1.0 + 1e-4 * length * slope);
            length *= 0.5;
            enough.then_some((next, found))
        });
        let Some((next, found)) = accepted else { break };
        let new_gradient = objective.gradient(&next);
        let step: Vec<f64> = next.iter().zip(&at).map(|(a, b)| a - b).collect();
        let change: Vec<f64> = new_gradient.iter().zip(&gradient).map(|(a, b)| a - b).collect();
        let curvature = product(&step, &change);
        if curvature > 1e-12 * (squared_norm(&step) * squared_norm(&change)).sqrt() {
            pairs.push_back((step, change, 1.0 / curvature));
            if pairs.len() > PAIRS {
                pairs.pop_front();
            }
        }
        (at, value, gradient) = (next, found, new_gradient);
    }
    at
}

/// The step to the minimum of a quadratic function with these pairs of differences (the two-loop recursion).
fn newton_direction(gradient: &[f64], pairs: &VecDeque<(Vec<f64>, Vec<f64>, f64)>) -> Vec<f64> {
    let mut direction: Vec<f64> = gradient.iter().map(|g| -g).collect();
    let mut shares = Vec::new();
    for (step, change, inverse) in pairs.iter().rev() {
        let share = inverse * product(step, &direction);
        direction.iter_mut().zip(change).for_each(|(d, y)| *d -= share * y);
        shares.push(share);
    }
    if let Some((_, change, inverse)) = pairs.back() {
        let scale = 1.0 / (inverse * squared_norm(change));
        direction.iter_mut().for_each(|d| *d *= scale);
    }
    for ((step, change, inverse), share) in pairs.iter().zip(shares.into_iter().rev()) {
        let other = inverse * product(change, &direction);
        direction.iter_mut().zip(step).for_each(|(d, s)| *d += (share - other) * s);
    }
    direction
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `L` from dense matrices: the mean over all steps of the squared norms of the rows of `A C^-1`, times the squared norm of a column of `C`.
    fn dense(coefficients: &[f64], n: usize, momentum: f64) -> f64 {
        let entry = |t: usize, s: usize| {
            t.checked_sub(s).and_then(|age| coefficients.get(age)).copied().unwrap_or(0.0)
        };
        // A column of the inverse, by forward substitution.
        let column = |first: usize| -> Vec<f64> {
            let mut column = vec![0.0; first];
            for row in first..n {
                let known: f64 = column.iter().enumerate().map(|(k, value)| entry(row, k) * value).sum();
                column.push((if row == first { 1.0 } else { 0.0 } - known) / entry(row, row));
            }
            column
        };
        // `1 + m + ... + m^(t - s)`, term by term.
        let workload = |t: usize, s: usize| {
            std::iter::successors(Some(1.0), |power| Some(power * momentum)).take(t + 1 - s).sum::<f64>()
        };
        let mut squares = 0.0;
        for column in (0..n).map(column) {
            for t in 0..n {
                let value: f64 = (0..=t).map(|s| workload(t, s) * column[s]).sum();
                squares += value * value;
            }
        }
        squared_norm(coefficients) * squares / real_length(n)
    }

    #[test]
    fn the_error_is_that_of_dense_matrices() {
        for coefficients in [&[1.0][..], &[0.8, 0.6], &[1.0, 0.5, 0.4, 0.1], &[0.3, -0.2, 0.1]] {
            for (n, momentum) in [(1, 0.0), (2, 0.9), (17, 0.0), (40, 0.5), (40, 0.95)] {
                let (fast, slow) = (
                    Workload::momentum(momentum).mean_squared_error(coefficients, n as u64),
                    dense(coefficients, n, momentum),
                );
                assert!((fast / slow - 1.0).abs() < 1e-12, "{coefficients:?} {n} {momentum}: {fast} {slow}");
            }
        }
    }

    #[test]
    fn long_runs_are_summed_by_a_formula() {
        for (band, momentum) in [(1, 0.0), (4, 0.0), (16, 0.9), (3, 0.99)] {
            let workload = Workload::momentum(momentum);
            let coefficients = workload.optimal_coefficients(band, 300);
            let n = 200_000;
            let terms = workload.response(&coefficients).take(n).enumerate();
            let whole: f64 = terms.map(|(k, w)| real_length(n - k) * w * w).sum::<f64>() / real_length(n);
            let found = workload.mean_squared_error(&coefficients, n as u64);
            assert!((found / whole - 1.0).abs() < 1e-10, "{band} {momentum}: {found} {whole}");
        }
        // Noise that grows without bound.
        assert_eq!(Workload::PREFIX_SUMS.mean_squared_error(&[0.5, 1.0], 1 << 20), f64::INFINITY);
    }

    #[test]
    fn gradients_are_those_of_finite_differences() {
        for (steps, momentum) in [(3, 0.0), (30, 0.0), (30, 0.9)] {
            let objective = Objective { workload: Workload::momentum(momentum), steps };
            let c = [1.0, 0.6, 0.3, -0.1, 0.2];
            let gradient = objective.gradient(&c);
            for j in 1..c.len() {
                let at = |shift: f64| {
                    let mut c = c;
                    c[j] += shift;
                    objective.value(&c).ln()
                };
                let slope = (at(1e-5) - at(-1e-5)) / 2e-5;
                assert!(
                    (gradient[j] - slope).abs() < 1e-7,
                    "{steps} {momentum} {j}: {} {slope}",
                    gradient[j]
                );
            }
        }
    }

    /// Computed independently with numpy and BFGS: the least error, the error of the truncated square root, and the optimal coefficients
    /// with norm 1.
    #[test]
    fn optimal_coefficients_are_the_golden_ones() {
        let eight = [0.500501, 0.386787, 0.356328, 0.338041, 0.3234, 0.309293, 0.293119, 0.269229];
        let sixteen = [
            0.474588, 0.316328, 0.278612, 0.259592, 0.247177, 0.23788, 0.230287, 0.223696, 0.217697,
            0.212015, 0.206429, 0.200725, 0.194648, 0.187821, 0.179558, 0.168177,
        ];
        for (n, least, root, golden) in [
            (100, 26.848109, 28.611728, &[0.795597, 0.605827][..]),
            (1000, 253.456644, 278.611173, &[0.750153, 0.661264]),
            (1000, 130.667781, 156.786826, &[0.587019, 0.503511, 0.468188, 0.427417]),
            (1000, 69.749930, 88.853789, &eight),
            (1000, 39.415317, 50.942067, &sixteen),
        ] {
            let band = golden.len();
            let found = Workload::PREFIX_SUMS.optimal_coefficients(band, n);
            let error = |c: &[f64]| Workload::PREFIX_SUMS.mean_squared_error(c, n);
            assert!((error(&found) - least).abs() < 1e-5, "{band}: {} {least}", error(&found));
            assert!((error(&square_root(band)) - root).abs() < 1e-5, "{band}");
            assert!((squared_norm(&found) - 1.0).abs() < 1e-12);
            for (found, golden) in found.iter().zip(golden) {
                assert!((found - golden).abs() < 2e-5, "{band}: {found} {golden}");
            }
        }
    }

    /// Dividing by the coefficients must not amplify noise or rounding errors from step to step.
    #[test]
    fn optimal_inverses_are_bounded_far_beyond_their_run() {
        for momentum in [0.0, 0.9] {
            for (band, steps) in [(2, 10), (3, 1000), (8, 100), (16, 5000), (64, 1000), (100, 120)] {
                let coefficients = Workload::momentum(momentum).optimal_coefficients(band, steps);
                let response = Workload::PREFIX_SUMS.response(&coefficients);
                let mut before = 0.0;
                let (mut gain, mut most) = (0.0, 0.0_f64);
                for w in response.take(100_000) {
                    gain += f64::abs(w - before);
                    most = most.max(w.abs());
                    before = w;
                }
                let name = format!("band {band}, {steps} steps, momentum {momentum}");
                assert!(coefficients[0] > 0.0 && most <= 1.0 / coefficients[0] + 1e-9, "{name}: {most}");
                assert!(gain < 50.0 / coefficients[0], "{name}: {gain}");
                let growth = noise_growth(&coefficients, 100_000);
                assert!(growth.len() < 100_000 && growth[growth.len() - 1] < 5.0 / coefficients[0], "{name}");
            }
        }
    }

    /// Optimising the coefficients of a long run for fewer steps increases the error only a little.
    #[test]
    fn coefficients_for_fewer_steps_are_good_for_more() {
        for (band, momentum) in [(4, 0.0), (16, 0.0), (4, 0.9)] {
            let workload = Workload::momentum(momentum);
            let steps = 4 * MOST_STEPS;
            let short = workload.optimal_coefficients(band, steps);
            let objective = Objective { workload, steps: usize::try_from(steps).unwrap() };
            let full = minimised(&objective, square_root(band));
            let ratio =
                workload.mean_squared_error(&short, steps) / workload.mean_squared_error(&full, steps);
            assert!((1.0 - 1e-9..1.005).contains(&ratio), "{band}: {ratio}");
        }
    }

    #[test]
    fn edge_cases() {
        for workload in [Workload::PREFIX_SUMS, Workload::momentum(f64::NAN), Workload::momentum(-1.0)] {
            assert_eq!(workload.optimal_coefficients(0, 10), [1.0]);
            assert_eq!(workload.optimal_coefficients(1, 0), [1.0]);
        }
        assert!(Workload::momentum(5.0).mean_squared_error(&[1.0], 100).is_finite());
        // A band that exceeds the number of steps: the last coefficients are not used, and become 0.
        let long = Workload::PREFIX_SUMS.optimal_coefficients(6, 3);
        assert!(long[3..].iter().all(|c| c.abs() < 1e-4), "{long:?}");
        assert_eq!(noise_growth(&[0.5], 3), [2.0; 3]);
    }
}
