//! Convergence of DP-NSGD and DP-SGD, and the noise of their privacy lemma.
//!
//! The paper assumes (Definition 2.2, Assumptions 2.1 and 2.2) that for all `x`, `y` and records `i`
//!
//! ```text
//! |grad f(x) - grad f(y)| <= (L0 + L1 |grad f(x)|) |x - y|          smoothness
//! |grad l_i(x) - grad f(x)| <= tau0 + tau1 |grad f(x)|, tau1 < 1     deviation
//! f(x_0) - inf f = D_f                                               gap
//! ```
//!
//! Its `sigma` is the standard deviation of the noise on the *mean* gradient, relative to the largest contribution of a record: the noise
//! multiplier divided by the batch size. Its experiments call the multiplier itself `sigma`.
//!
//! # Departures
//! The paper does not state the constants `C` of (5), (6), (9) and (10), so these bounds give no numbers. The proofs have explicit constants.
//! [`Convergence::bound`] is computed from them, with these corrections:
//! - (30) and (42) state the larger of two terms. The sets of steps that they distinguish are random, so only the sum of the terms is
//!   proved. The second term of (30) also lacks a factor 2: the sum over half of the steps is twice the mean over all.
//! - Lemma B.5 bounds `h |grad f|^2` by `|grad f| / (1 - tau1)`, without the factor `2 c` that its own (11) gives. The printed coefficient `c - 1`
//!   subtracts a number from a norm, and is not positive for `c <= 1`. With a quarter of its `alpha_0`, the proof holds with the coefficient
//!   `tau0 c / (2 (c (1 - tau1) + 2 tau0))`.
//! - (35) lacks a factor up to 2: `tau0 + 2 tau0 tau1 / (1 - tau1)` is up to `2 tau0 / (1 - tau1)`.
//!
//! Misprints without consequence: Lemma C.2 drops `L0` from the step size and has `tau1` for `1 - tau1`, as does (31); (28) and (39) have
//! `eta^2` twice; (31) and (43) have `min` for `max`; Lemma D.3 has `c^2` for `c` in the first condition of (33); the proof of Corollary 3.3 has
//! `tau0^3` for `tau0^2` in the floor; (29) and (40) do not minimise the bound unless `D_f = 1`.
//!
//! # References
//! "Normalized/Clipped SGD with Perturbation for Differentially Private Non-Convex Optimization" (anonymous authors, under review at TMLR),
//! Theorems 3.2 and 3.4, Lemma 3.1, Examples 2.3 and 3.1, appendices B to E.

mod privacy;

pub use privacy::{Corollary, LEMMA_C1, LEMMA_C2, LemmaNoise, corollary, lemma_noise};
use sordino_accounting::{NoiseMultiplier, Steps};

use crate::AlgorithmError;

/// The assumptions about the objective.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Objective {
    /// Smoothness at a gradient of 0, `L0`.
    pub l0: f64,
    /// Growth of the smoothness with the gradient, `L1`.
    pub l1: f64,
    /// Deviation of a record's gradient at a gradient of 0, `tau0`.
    pub tau0: f64,
    /// Growth of the deviation with the gradient, `tau1`.
    pub tau1: f64,
    /// The loss at the start minus the lowest loss, `D_f`.
    pub gap: f64,
    /// Number of parameters, `d`.
    pub dimension: f64,
}

impl Objective {
    fn check(&self) -> Result<(), AlgorithmError> {
        require("l0", self.l0, self.l0 >= 0.0 && self.l0.is_finite(), "a finite number of at least 0")?;
        require("l1", self.l1, self.l1 >= 0.0 && self.l1.is_finite(), "a finite number of at least 0")?;
        require("l0 + l1", self.l0 + self.l1, self.l0 + self.l1 > 0.0, "above 0")?;
        require("tau0", self.tau0, self.tau0 > 0.0 && self.tau0.is_finite(), "a finite number above 0")?;
        require("tau1", self.tau1, (0.0..1.0).contains(&self.tau1), "at least 0 and below 1")?;
        require("gap", self.gap, self.gap >= 0.0 && self.gap.is_finite(), "a finite number of at least 0")?;
        require(
            "dimension",
            self.dimension,
            self.dimension >= 1.0 && self.dimension.is_finite(),
            "at least 1",
        )
    }
}

impl Objective {
    /// Equation 27.
    fn normalised_alpha(&self, r: f64) -> f64 {
        let rest = 1.0 - self.tau1;
        self.tau0 * rest / (2.0 * r * rest + 4.0 * self.tau0)
    }

    // Departs from (38): a quarter of it, see the corrections above.
    fn clipped_alpha(&self, c: f64) -> f64 {
        let rest = 1.0 - self.tau1;
        self.tau0 * rest / (4.0 * (c * rest + 2.0 * self.tau0))
    }

    /// `L1 (r + tau0) + L0`.
    fn smoothness(&self, r: f64) -> f64 {
        self.l1 * (r + self.tau0) + self.l0
    }
}

fn require(name: &'static str, got: f64, holds: bool, permitted: &str) -> Result<(), AlgorithmError> {
    if holds {
        return Ok(());
    }
    Err(AlgorithmError::OutOfRange { name, permitted: permitted.to_owned(), got: got.to_string() })
}

/// How the contribution of a record is bounded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Method {
    /// DP-NSGD: weights `1 / (r + |g|)` with this regulariser.
    Normalised(f64),
    /// DP-SGD: weights `min(1, c / |g|)` with this clipping norm.
    Clipped(f64),
}

/// A condition of a theorem.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// The condition, with its numbers.
    pub text: String,
    /// Whether it holds.
    pub holds: bool,
}

impl Condition {
    fn new(holds: bool, text: String) -> Self {
        Self { text, holds }
    }
}

/// What Theorem 3.2 or 3.4 gives for a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Convergence {
    /// The constant step size: (4) or (8).
    pub learning_rate: f64,
    /// The conditions of the theorem.
    pub conditions: Vec<Condition>,
    /// The number of steps from which the step size is small enough: Lemma C.2 or D.2. Infinite if no number of steps is enough.
    pub least_steps: f64,
    /// The two decaying terms of (5) or (9), without their constant `C`, which the paper does not state.
    pub decaying: [f64; 2],
    /// The last term of (5), which does not vanish; 0 for DP-SGD.
    pub floor: f64,
    /// An upper bound on the expected smallest gradient norm, with the constants of the corrected proof, if the conditions hold.
    pub bound: Option<f64>,
    /// The limit of `bound` for many steps at the same noise. It is at least the floor, because the proof is looser than (5).
    pub bound_floor: f64,
}

/// Theorem 3.2 (DP-NSGD) or 3.4 (DP-SGD) for a number of steps and a noise multiplier on batches of an expected size.
///
/// With `L = L1 (r + tau0) + L0`, and `c` in place of `r` for DP-SGD:
///
/// ```text
/// eta = sqrt(2 / (L T d sigma^2))                          DP-NSGD, r > tau0                      (4)
/// eta = sqrt(2 / (L T d c^2 sigma^2))                      DP-SGD, c > 2 tau0 / (1 - tau1)        (8)
/// floor = 8 (r + 2 tau0) tau0^2 / (r (r + tau0) (1 - tau1)^3)                                     (5)
/// ```
///
/// The step size must also be at most a limit (22) or (33) that does not depend on `T`, hence the least number of steps.
///
/// # Errors
/// A number out of range.
///
/// ```
/// use sordino_accounting::{NoiseMultiplier, Steps};
/// use sordino_algorithms::theory::dp_nsgd::{Method, Objective, convergence};
///
/// let objective = Objective { l0: 1.0, l1: 0.0, tau0: 0.1, tau1: 0.0, gap: 2.3, dimension: 1000.0 };
/// let found = convergence(&objective, Method::Normalised(1.0), NoiseMultiplier::new(1.0)?, 1000.0, Steps::new(100_000)?)?;
/// assert!((found.floor - 8.0 * 1.2 * 0.01 / 1.1).abs() < 1e-12);
/// # Ok::<(), sordino_algorithms::AlgorithmError>(())
/// ```
pub fn convergence(
    objective: &Objective,
    method: Method,
    noise_multiplier: NoiseMultiplier,
    batch_size: f64,
    steps: Steps,
) -> Result<Convergence, AlgorithmError> {
    objective.check()?;
    require("batch size", batch_size, batch_size >= 1.0 && batch_size.is_finite(), "at least 1")?;
    let sigma = noise_multiplier.get() / batch_size;
    match method {
        Method::Normalised(r) => {
            require("regulariser", r, r > 0.0 && r.is_finite(), "a finite number above 0")?;
            Ok(normalised(objective, r, sigma, steps.get() as f64))
        }
        Method::Clipped(c) => {
            require("clipping norm", c, c > 0.0 && c.is_finite(), "a finite number above 0")?;
            Ok(clipped(objective, c, sigma, steps.get() as f64))
        }
    }
}

/// The step size condition, `eta <= limit`. `T eta^2` does not depend on `T`, so the condition holds for every `T >= T eta^2 / limit^2`. If the
/// regulariser or the clipping norm is too small, the limit is not positive; a separate condition states this.
fn step_size_condition(eta: f64, limit: f64, steps: f64, equation: &str) -> (Condition, f64) {
    if !(limit > 0.0) {
        let text =
            format!("learning rate {eta:.4e} small enough ({equation}): no learning rate is small enough");
        return (Condition::new(false, text), f64::INFINITY);
    }
    let least = (steps * (eta / limit).powi(2)).ceil();
    let text = format!("learning rate {eta:.4e} <= {limit:.4e} ({equation}), which needs {least:.4e} steps");
    (Condition::new(eta <= limit, text), least)
}

fn normalised(o: &Objective, r: f64, sigma: f64, steps: f64) -> Convergence {
    let (noise, rest) = (o.dimension * sigma * sigma, 1.0 - o.tau1);
    let smoothness = o.smoothness(r);
    let eta = (2.0 / (smoothness * steps * noise)).sqrt();
    let alpha = o.normalised_alpha(r);
    // Division by 0 gives infinity: no limit.
    let limit = (alpha / 4.0) * ((r - o.tau0) / o.l0).min(rest / o.l1).min(4.0 / (6.0 * o.l1 * noise));
    let (small, least_steps) = step_size_condition(eta, limit, steps, "equation 22");
    let above = Condition::new(r > o.tau0, format!("regulariser {r} > tau0 = {}", o.tau0));
    let bias = 4.0 * o.tau0.powi(3) / (r * (r + o.tau0) * rest.powi(3));
    let second = 3.0 * (o.l0 * rest + o.l1 * o.tau0) * o.tau0.powi(2) / (2.0 * r * r * rest.powi(3));
    let delta = (o.gap + 1.0) * (smoothness * noise / (2.0 * steps)).sqrt() + eta * second;
    let bound = |delta: f64| {
        4.0 * (r + 2.0 * o.tau0) / o.tau0 * delta + (8.0 * (r + 2.0 * o.tau0) / (3.0 * rest) * delta).sqrt()
    };
    let holds = above.holds && small.holds;
    Convergence {
        learning_rate: eta,
        conditions: vec![above, small],
        least_steps,
        decaying: [
            ((o.gap + 1.0).powi(2) * r.powi(3) * noise / steps).powf(0.25),
            (1.0 / (steps * r.powi(3) * noise)).powf(0.25),
        ],
        floor: bias_floor(o, r),
        bound: holds.then(|| bound(delta + bias)),
        bound_floor: bound(bias),
    }
}

/// The term of (5) that does not vanish with the number of steps: `8 (r + 2 tau0) tau0^2 / (r (r + tau0) (1 - tau1)^3)`.
pub fn bias_floor(o: &Objective, regulariser: f64) -> f64 {
    let r = regulariser;
    8.0 * (r + 2.0 * o.tau0) * o.tau0.powi(2) / (r * (r + o.tau0) * (1.0 - o.tau1).powi(3))
}

fn clipped(o: &Objective, c: f64, sigma: f64, steps: f64) -> Convergence {
    let (noise, rest) = (o.dimension * sigma * sigma, 1.0 - o.tau1);
    let smoothness = o.smoothness(c);
    let eta = (2.0 / (smoothness * steps * noise * c * c)).sqrt();
    let alpha = o.clipped_alpha(c);
    let local = o.l0 * rest + 2.0 * o.l1 * o.tau0;
    let limit = alpha
        * (1.0 / (6.0 * o.l1 * c * noise)).min(rest / (2.0 * local)).min(o.tau0 * rest / (4.0 * c * local));
    let (small, least_steps) = step_size_condition(eta, limit, steps, "equation 33, with a quarter of (38)");
    let least = 2.0 * o.tau0 / rest;
    let above = Condition::new(c > least, format!("clipping norm {c} > 2 tau0 / (1 - tau1) = {least}"));
    let second = 6.0 * local * o.tau0.powi(2) / rest.powi(3);
    let delta = (o.gap + 1.0) * (smoothness * noise * c * c / (2.0 * steps)).sqrt() + eta * second;
    let holds = above.holds && small.holds;
    Convergence {
        learning_rate: eta,
        conditions: vec![above, small],
        least_steps,
        decaying: [
            ((o.gap + 1.0).powi(2) * c.powi(3) * noise / steps).powf(0.25),
            (1.0 / (steps * c * c * (c + o.tau0) * noise)).powf(0.25),
        ],
        floor: 0.0,
        bound: holds.then(|| 4.0 * (c + 2.0 * o.tau0) / (o.tau0 * c) * delta + (4.0 * delta).sqrt()),
        bound_floor: 0.0,
    }
}

/// The deviation of a linear model with squared loss (Example 2.3).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinearDeviation {
    /// `C_w (C_w |x*| + C_v)`.
    pub tau0: f64,
    /// `C_w^2 / lambda_min`.
    pub tau1: f64,
}

/// Example 2.3: responses `|v| <= C_v`, predictors `|w| <= C_w`, the solution's norm `|x*|`, and the smallest eigenvalue of `E[w w']`.
///
/// # Edge cases
/// `tau1` is never below 1: the trace of `E[w w']` is at most `C_w^2`, so the smallest of its `d` eigenvalues is at most `C_w^2 / d`, and
/// `tau1 >= d`. Assumption 2.2 and the theorems need `tau1 < 1`. So they do not apply to the paper's own example.
///
/// # Errors
/// A number that is not positive, or an eigenvalue above `C_w^2`.
pub fn linear_deviation(
    response: f64,
    predictors: f64,
    solution: f64,
    least_eigenvalue: f64,
) -> Result<LinearDeviation, AlgorithmError> {
    let positive =
        |name, value: f64| require(name, value, value > 0.0 && value.is_finite(), "a finite number above 0");
    positive("largest response", response)?;
    positive("largest norm of predictors", predictors)?;
    require(
        "norm of the solution",
        solution,
        solution >= 0.0 && solution.is_finite(),
        "a finite number of at least 0",
    )?;
    let most = predictors * predictors;
    let permitted = format!("above 0 and at most the square of the predictors' norm, {most}");
    require(
        "least eigenvalue",
        least_eigenvalue,
        least_eigenvalue > 0.0 && least_eigenvalue <= most,
        &permitted,
    )?;
    Ok(LinearDeviation {
        tau0: predictors * (predictors * solution + response),
        tau1: most / least_eigenvalue,
    })
}

/// Example 3.1: the descent of DP-NSGD per unit of learning rate, `E[h <grad f, g>]`, at a gradient of norm `s < tau0 / 2`, if a record deviates by
/// `tau0` along the gradient with probability 1/3 and by `-tau0/2` with probability 2/3.
///
/// ```text
/// (s^3 + (3 r + tau0/2) s^2 - tau0^2 s / 2) / (3 (r + tau0 + s) (r + tau0/2 - s))
/// ```
///
/// It is negative below a norm of about `tau0^2 / (6 r)`: there, normalised steps increase the loss.
pub fn example_descent(s: f64, regulariser: f64, tau0: f64) -> f64 {
    let r = regulariser;
    let above = s.powi(3) + (3.0 * r + tau0 / 2.0) * s * s - tau0 * tau0 * s / 2.0;
    above / (3.0 * (r + tau0 + s) * (r + tau0 / 2.0 - s))
}

#[cfg(test)]
mod tests;
