//! The privacy lemma of the DP-NSGD paper, and its corollaries on privacy and utility.

use sordino_accounting::{Steps, calibrate::Budget};

use super::{Condition, Method, Objective, require};
use crate::AlgorithmError;

/// The noise of Lemma 3.1.
#[derive(Debug, Clone, PartialEq)]
pub struct LemmaNoise {
    /// `c2 sqrt(T ln(1/delta)) B / (N epsilon)`: the lemma's `sigma` times the batch size.
    pub noise_multiplier: f64,
    /// The conditions of the lemma, and those of the theorem that it uses.
    pub conditions: Vec<Condition>,
}

/// The constant `c1` of Lemma 3.1 that follows from appendix E: `7 ln 10`.
pub const LEMMA_C1: f64 = 7.0 * std::f64::consts::LN_10;

/// The constant `c2` of Lemma 3.1 that follows from appendix E: `sqrt(56)`.
pub const LEMMA_C2: f64 = 7.483_314_773_547_883;

/// The noise that Lemma 3.1 states for a budget, with explicit constants.
///
/// Appendix E needs an order `alpha` with, for `gamma = B/N` and the multiplier `z`,
///
/// ```text
/// 7 T gamma^2 alpha / z^2 <= epsilon / 2,   exp(-(alpha - 1) epsilon / 2) <= delta,   alpha <= z^2 ln(1/gamma) / 2.
/// ```
///
/// For `epsilon <= 2 ln(1/delta)`, the order `alpha = 4 ln(1/delta) / epsilon` satisfies the second. The first is then `z >= sqrt(56) gamma
/// sqrt(T ln(1/delta)) / epsilon`, and with equality the third is `epsilon <= 7 gamma^2 T ln(1/gamma)`, which follows from `epsilon <= 7 ln(10)
/// gamma^2 T` and `gamma < 0.1`.
///
/// # Guarantees
/// None by itself. The lemma omits two conditions of the theorem that it uses (Bun et al. 2018, Theorem 11). They are listed here. It also
/// uses sensitivity 1, although that of the paper's relation, replacing a record, is 2. So it holds at most for added or removed records. The
/// accountants give the exact price of the noise.
///
/// # Errors
/// Numbers out of range.
pub fn lemma_noise(
    budget: Budget,
    records: f64,
    batch_size: f64,
    steps: Steps,
) -> Result<LemmaNoise, AlgorithmError> {
    require("records", records, records >= 1.0 && records.is_finite(), "at least 1")?;
    require(
        "batch size",
        batch_size,
        batch_size >= 1.0 && batch_size <= records,
        "from 1 to the number of records",
    )?;
    let (epsilon, log, steps) = (budget.epsilon.get(), -budget.delta.get().ln(), steps.get() as f64);
    require("epsilon", epsilon, epsilon > 0.0, "above 0")?;
    require("delta", budget.delta.get(), log > 0.0 && log.is_finite(), "above 0 and below 1")?;
    let gamma = batch_size / records;
    let z = LEMMA_C2 * gamma * (steps * log).sqrt() / epsilon;
    let rho = 0.5 / (z * z);
    let most = LEMMA_C1 * gamma * gamma * steps;
    let room = 3.0 * rho * (2.0 - rho.log2());
    let conditions = vec![
        Condition::new(gamma < 0.1, format!("batch size below a tenth of the records: {gamma:.4} < 0.1")),
        Condition::new(epsilon <= most, format!("epsilon {epsilon} <= c1 (B/N)^2 T = {most:.4}")),
        Condition::new(
            epsilon <= 2.0 * log,
            format!("epsilon {epsilon} <= 2 ln(1/delta) = {:.4}", 2.0 * log),
        ),
        Condition::new(rho <= 0.1, format!("not in the paper: 1 / (2 z^2) = {rho:.4} <= 0.1")),
        Condition::new(
            -gamma.ln() >= room,
            format!(
                "not in the paper: ln(N/B) = {:.4} >= 3 rho (2 + log2(1/rho)) = {room:.4}, rho = 1 / (2 z^2)",
                (1.0 / gamma).ln()
            ),
        ),
    ];
    Ok(LemmaNoise { noise_multiplier: z, conditions })
}

/// What Corollary 3.3 or 3.5 states about a run with the noise of [`lemma_noise`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Corollary {
    /// `(d r^3 ln(1/delta) / (N epsilon)^2)^(1/4)`, the decaying term of (6) or (10) without its constant `C'`, which the paper does not state.
    pub decaying: f64,
    /// `N^2 epsilon^2 / (r^3 d ln(1/delta))`, the order of the smallest number of steps; the paper does not state the constant.
    pub order_of_steps: f64,
    /// The smallest number of records with which the step size meets the limits that depend on the noise.
    pub least_records: f64,
    /// The smallest number of steps with which the step size meets the other limits: (31) or (43), with `max` in place of `min`. Infinite for a
    /// regulariser up to `tau0`.
    pub least_steps: f64,
}

/// Corollary 3.3 (DP-NSGD) or 3.5 (DP-SGD), with the explicit constant of [`lemma_noise`]. For DP-SGD, `c` takes the place of `r`.
///
/// With `sigma = c2 sqrt(T ln(1/delta)) / (N epsilon)`, the step size is `N epsilon / (c2 T) sqrt(2 / (L d ln(1/delta)))`, divided by `c` for DP-SGD.
/// The limits (22) and (33) that depend on the noise become
///
/// ```text
/// N >= 6 c2 L1 / (epsilon alpha_0) sqrt(2 d ln(1/delta) / L)
/// ```
///
/// for both algorithms (Lemma D.3 has a superfluous factor `c`). The other limits become a smallest number of steps.
///
/// # Errors
/// Numbers out of range.
pub fn corollary(
    objective: &Objective,
    method: Method,
    budget: Budget,
    records: f64,
) -> Result<Corollary, AlgorithmError> {
    objective.check()?;
    require("records", records, records >= 1.0 && records.is_finite(), "at least 1")?;
    let (o, epsilon, log) = (objective, budget.epsilon.get(), -budget.delta.get().ln());
    require("epsilon", epsilon, epsilon > 0.0, "above 0")?;
    let rest = 1.0 - o.tau1;
    let (size, alpha, scale, limit) = match method {
        Method::Normalised(r) => {
            (r, o.normalised_alpha(r), 1.0, 0.25 * ((r - o.tau0) / o.l0).min(rest / o.l1))
        }
        Method::Clipped(c) => {
            let local = o.l0 * rest + 2.0 * o.l1 * o.tau0;
            (c, o.clipped_alpha(c), c, (rest / (2.0 * local)).min(o.tau0 * rest / (4.0 * c * local)))
        }
    };
    require("regulariser or clipping norm", size, size > 0.0 && size.is_finite(), "a finite number above 0")?;
    let smoothness = o.smoothness(size);
    let order = (records * epsilon).powi(2) / (size.powi(3) * o.dimension * log);
    Ok(Corollary {
        decaying: (size.powi(3) * o.dimension * log / (records * epsilon).powi(2)).powf(0.25),
        order_of_steps: order,
        least_records: 6.0 * LEMMA_C2 * o.l1 / (epsilon * alpha)
            * (2.0 * o.dimension * log / smoothness).sqrt(),
        least_steps: records * epsilon / (scale * LEMMA_C2) * (2.0 / (smoothness * o.dimension * log)).sqrt()
            / (alpha * limit.max(0.0)),
    })
}
