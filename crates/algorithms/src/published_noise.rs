//! The noise that papers claim to be enough for an epsilon: one function for each published formula.
//!
//! Every function returns standard deviations of noise on a *mean* over a batch. For the noise on a sum, multiply by the batch size. The
//! verdict of each algorithm states whether its claim holds.
//!
//! # References
//! Zhang et al. 2023 (DiceSGD); the DP-C4 paper (under double-blind review), appendix D.

use serde::{Deserialize, Serialize};
use sordino_accounting::calibrate::Budget;

use crate::{RunFacts, anchors::Anchoring, plans::log_inverse};

/// The noise on a part of a step, by the formula of a paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedNoise {
    /// The paper's symbol, such as `sigma_1`.
    pub symbol: String,
    /// Its value, as the paper defines it: the standard deviation on the mean (DiceSGD), the same divided by the clipping norm (the DP-C4
    /// paper), or the standard deviation on the sum (dynamic DP-SGD).
    pub sigma: f64,
    /// The standard deviation on the sum, divided by the clipping norm.
    pub noise_multiplier: f64,
}

impl PublishedNoise {
    pub(crate) fn new(symbol: &str, sigma: f64, noise_multiplier: f64) -> Self {
        Self { symbol: symbol.to_owned(), sigma, noise_multiplier }
    }
}

/// Where the noise of a sound algorithm comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoiseChoice {
    /// The least noise that the budget allows, or the user's multiplier.
    #[default]
    Exact,
    /// The noise of the DP-C4 paper for a claimed epsilon.
    DpC4Paper,
}

/// `sigma_1^2 = 32 T (C_1^2 + 2 C^2) ln(1/delta) / (N epsilon)^2`: Theorem 3.8 of DiceSGD.
///
/// The theorem has `min(C, G')` for `C`, where `G'` depends on bounds of the gradients, which are not known. Section C.4 has `C_1 = C_2 = C`
/// and so `3 C^2`. For other `C_2` without the theorem's thresholds, `C_2` takes the place of `C`, which is Sordino's generalisation.
pub(crate) fn dice(facts: &RunFacts, claim: Budget, first: f64, second: f64) -> f64 {
    let (steps, records) = (facts.steps.get() as f64, facts.records as f64);
    let squares = first * first + 2.0 * second * second;
    (32.0 * steps * squares * log_inverse(claim.delta)).sqrt() / (records * claim.epsilon.get())
}

/// `sigma^2 = 4 T (2 ln(1/delta) + epsilon) / (|S| epsilon)^2`, in units of the clipping norm: Theorem 3 and equation 68 of the DP-C4 paper,
/// which uses it for DP-SGD.
///
/// It has no amplification by sampling and uses the sensitivity of replacing a record.
pub(crate) fn dp_c4_unit(facts: &RunFacts, claim: Budget) -> f64 {
    let (epsilon, steps) = (claim.epsilon.get(), facts.steps.get() as f64);
    (4.0 * steps * (2.0 * log_inverse(claim.delta) + epsilon)).sqrt() / (facts.expected_batch_size * epsilon)
}

/// `(sigma_1, sigma_2)` of DP-C4 and DP-C4+, for differences and anchors: equations 69 and 71.
pub(crate) fn dp_c4(facts: &RunFacts, claim: Budget, anchoring: &Anchoring) -> [f64; 2] {
    let anchors = anchor_cost(facts, anchoring);
    let shares = match anchoring.routine {
        1 | 2 => least_sum(1.0, anchors),
        _ => least_sum(1.0 - anchoring.probability, anchors),
    };
    shares.map(|share| share.sqrt() * dp_c4_unit(facts, claim))
}

/// `(sigma_1, sigma_2, sigma_3)` of DP-SVRG, for the two sums over the batch and for anchors: equation 73.
///
/// The paper states only the sum of the three squares. Here it is divided as the paper divides that of DP-C4 (equation 64), with equal noise
/// for the two sums over the batch.
pub(crate) fn dp_svrg(facts: &RunFacts, claim: Budget, anchoring: &Anchoring) -> [f64; 3] {
    let anchors = anchor_cost(facts, anchoring);
    let [batch, anchor] = match anchoring.routine {
        1 | 2 => least_sum(1.0, 2.0 * anchors),
        _ => least_sum(2.0 * (1.0 - anchoring.probability), anchors),
    };
    [0.5 * batch, 0.5 * batch, anchor].map(|share| share.sqrt() * dp_c4_unit(facts, claim))
}

/// `sigma sqrt(C_1^2 + C_2^2)`: the noise of DiceSGD in Algorithm 5 of the DP-C4 paper.
pub(crate) fn dp_c4_dice(facts: &RunFacts, claim: Budget, first: f64, second: f64) -> f64 {
    dp_c4_unit(facts, claim) * first.hypot(second)
}

/// `p / theta`, with `theta = (|D| / |S|)^2`: the cost of an anchor's release in a step, in units of the cost of a batch's release with equal noise.
fn anchor_cost(facts: &RunFacts, anchoring: &Anchoring) -> f64 {
    anchoring.probability * (facts.expected_batch_size / anchoring.batch).powi(2)
}

/// The variances with the least sum where `a / v_1 + b / v_2 = 1`: equations 64 to 67. Their sum is `(sqrt(a) + sqrt(b))^2`.
fn least_sum(a: f64, b: f64) -> [f64; 2] {
    let mixed = (a * b).sqrt();
    [a + mixed, b + mixed]
}

#[cfg(test)]
mod tests {
    use sordino_accounting::{Delta, Epsilon, Steps};

    use super::*;
    use crate::test_facts;

    /// The setting of the DP-C4 paper on Mushroom: four fifths of 8,124 records, batches of 256, 50 epochs, epsilon 1 and delta 1e-5.
    fn mushroom() -> RunFacts {
        let claim = claim();
        RunFacts {
            records: 6499,
            expected_batch_size: 256.0,
            steps: Steps::new(1269).unwrap(),
            claim: Some(claim),
            ..test_facts()
        }
    }

    fn claim() -> Budget {
        Budget { epsilon: Epsilon::new(1.0).unwrap(), delta: Delta::new(1e-5).unwrap() }
    }

    fn close(found: f64, expected: f64, relative: f64) {
        assert!((found / expected - 1.0).abs() < relative, "{found} where {expected} is expected");
    }

    #[test]
    fn the_noise_of_dice_is_that_of_theorem_3_8() {
        let facts = mushroom();
        // sqrt(96 * 1269 * ln(1e5)) * 256 / 6499
        close(dice(&facts, claim(), 1.0, 1.0) * 256.0, 46.65, 1e-4);
        // The form of section C.4, sqrt(96 T log(1 / delta)) C / (N epsilon).
        let automatic = (96.0 * 1269.0 * 1e5_f64.ln()).sqrt() * 0.3 / 6499.0;
        close(dice(&facts, claim(), 0.3, 0.3), automatic, 1e-12);
        // The theorem's C_1^2 + 2 C^2.
        let theorem = (32.0 * 1269.0 * (0.09 + 2.0 * 0.25) * 1e5_f64.ln()).sqrt() / 6499.0;
        close(dice(&facts, claim(), 0.3, 0.5), theorem, 1e-12);
    }

    #[test]
    fn the_noise_of_dp_sgd_in_the_dp_c4_paper_is_that_of_equation_68() {
        let facts = mushroom();
        let squared = 4.0 * 1269.0 * (2.0 * 1e5_f64.ln() + 1.0) / (256.0_f64.powi(2));
        close(dp_c4_unit(&facts, claim()).powi(2), squared, 1e-12);
        // The square root is 1.364 on the mean, and 349 on the sum.
        close(dp_c4_unit(&facts, claim()) * 256.0, 349.2, 1e-3);
        close(dp_c4_dice(&facts, claim(), 0.6, 0.8), squared.sqrt(), 1e-12);
    }

    /// Equations 70, 72 and 73, for several probabilities and anchor batches.
    #[test]
    fn the_squares_of_the_noise_add_up_to_the_closed_forms_of_the_paper() {
        let facts = mushroom();
        let unit = dp_c4_unit(&facts, claim()).powi(2);
        for (batch, p) in [(4096.0, 0.125), (4096.0, 0.5), (512.0, 1.0), (6499.0, 0.01), (256.0, 0.3)] {
            let theta = (batch / 256.0_f64).powi(2);
            for routine in 1..=4 {
                let anchoring = Anchoring { batch, probability: p, routine };
                let c4: f64 = dp_c4(&facts, claim(), &anchoring).iter().map(|sigma| sigma * sigma).sum();
                let svrg: f64 = dp_svrg(&facts, claim(), &anchoring).iter().map(|sigma| sigma * sigma).sum();
                let (equation_70_or_72, equation_73) = match routine {
                    1 | 2 => ((1.0 + (p / theta).sqrt()).powi(2), (1.0 + (2.0 * p / theta).sqrt()).powi(2)),
                    _ => (
                        ((p / theta).sqrt() + (1.0 - p).sqrt()).powi(2),
                        ((2.0 * (1.0 - p)).sqrt() + (p / theta).sqrt()).powi(2),
                    ),
                };
                close(c4, equation_70_or_72 * unit, 1e-12);
                close(svrg, equation_73 * unit, 1e-12);
            }
        }
    }

    /// Theorem 3, as it is printed for each part.
    #[test]
    fn each_part_of_the_noise_of_dp_c4_is_that_of_theorem_3() {
        let (facts, p) = (mushroom(), 0.125_f64);
        let (unit, theta) = (dp_c4_unit(&facts, claim()).powi(2), 256.0);
        for (routine, first, second) in [
            (1, 1.0 + (p / theta).sqrt(), p / theta + (p / theta).sqrt()),
            (4, 1.0 - p + (p * (1.0 - p) / theta).sqrt(), p / theta + (p * (1.0 - p) / theta).sqrt()),
        ] {
            let anchoring = Anchoring { batch: 4096.0, probability: p, routine };
            let [one, two] = dp_c4(&facts, claim(), &anchoring);
            close(one * one, first * unit, 1e-12);
            close(two * two, second * unit, 1e-12);
        }
    }
}
