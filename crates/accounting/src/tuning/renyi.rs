//! Papernot and Steinke's theorems: the Renyi divergence of a selection.
//!
//! Let `eps(l)` be the Renyi divergence of one run at order `l`. That of the whole selection is
//!
//! ```text
//! truncated negative binomial (eta > -1, gamma):
//!   eps'(l) = eps(l) + (1+eta) min_{l'} [ (1 - 1/l') eps(l') + ln(1/gamma)/l' ] + ln(E[K])/(l-1)
//! Poisson (mean m):
//!   eps'(l) = eps(l) + m d + ln(m)/(l-1),     where each run is (e, d)-DP with e^e = 1 + 1/(l-1).
//! ```

use super::Runs;
use crate::{
    AccountingError, Delta, Epsilon,
    rdp::{self, Order},
    search::minimum,
};

/// The epsilon of the selection from the Renyi divergence and the privacy profile of a single run.
pub(super) fn epsilon(
    divergence: impl Fn(f64) -> f64,
    profile: impl Fn(f64) -> f64,
    runs: Runs,
    delta: Delta,
) -> Result<Epsilon, AccountingError> {
    match runs {
        Runs::TruncatedNegativeBinomial { eta, gamma } => {
            let repeated = |order: f64| (1.0 - 1.0 / order) * divergence(order) - gamma.ln() / order;
            let (_, repeated) = minimum(|excess| repeated(1.0 + excess), 10.0, 1e-3);
            rdp::minimise(|order| {
                let selected =
                    divergence(order.get()) + (1.0 + eta) * repeated + runs.mean().ln() / (order.get() - 1.0);
                rdp::to_epsilon(order, selected, delta)
            })
        }
        Runs::Poisson { mean } => rdp::minimise(|order: Order| {
            let d = profile((1.0 / (order.get() - 1.0)).ln_1p());
            // For a mean below 1 the logarithm is negative. It must not lower the bound.
            let selected = divergence(order.get()) + mean * d + mean.ln().max(0.0) / (order.get() - 1.0);
            rdp::to_epsilon(order, selected, delta)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Plan;

    /// dp_accounting 0.6.0 with its default orders. It also computes the profile from Renyi divergences.
    #[test]
    fn matches_repeat_and_select() {
        let base = Plan::of_numbers(1.0, 0.01, 1000);
        let delta = Delta::new(1e-5).unwrap();
        let curve = rdp::RenyiDivergence::of(&base).unwrap();
        let profile = |e: f64| {
            let ln_delta = |excess: f64| {
                let alpha = 1.0 + excess;
                excess * (curve.at(alpha) - e + (-1.0 / alpha).ln_1p()) - alpha.ln()
            };
            minimum(ln_delta, 10.0, 1e-3).1.exp().min(1.0)
        };
        for (mean, expected) in [(10.0, 4.329_497_68), (100.0, 16.396_757_1)] {
            let runs = Runs::poisson(mean).unwrap();
            let got = epsilon(|order| curve.at(order), profile, runs, delta).unwrap().get();
            assert!((got / expected - 1.0).abs() < 5e-3 && got <= expected * 1.001, "{mean}: {got}");
            let exact = super::super::epsilon(std::slice::from_ref(&base), runs, delta).unwrap().get();
            assert!(exact < got, "{mean}: {exact} {got}");
        }
    }

    /// Papernot and Steinke, Corollary 3: pure epsilon-DP becomes (2 + eta) epsilon.
    #[test]
    fn pure_privacy_costs_two_plus_eta() {
        for (eta, expected) in [(5.0, 7.0), (0.0, 2.0)] {
            let runs = Runs::negative_binomial(eta, 1000.0).unwrap();
            let got = epsilon(|_| 1.0, |_| 1.0, runs, Delta::new(1e-10).unwrap()).unwrap().get();
            assert!((got - expected).abs() < 1e-4, "{eta}: {got}");
        }
    }
}
