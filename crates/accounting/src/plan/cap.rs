//! The cost of a limit on the batch size.
//!
//! A capped batch differs from a Poisson batch only if more records are sampled than the cap permits. The probability of that event,
//! times `1 + e^epsilon`, is added to delta.

use super::{Plan, Sampling};
use crate::{AccountingError, Delta, Epsilon, binomial, number::real};

impl Plan {
    /// `sum_t tau_t` over capped steps, with `tau = Pr[Bin(N + 1, q) > cap]`: a bound on the probability that any batch exceeds its cap.
    fn cap_excess(&self) -> f64 {
        self.entries
            .iter()
            .filter_map(|e| match e.sampling {
                Sampling::Poisson { rate, cap: Some(cap) } => {
                    let exceeded = binomial::upper_tail(cap.population + 1, rate.get(), cap.max_batch_size);
                    Some(real(e.steps.get()) * exceeded)
                }
                _ => None,
            })
            .sum()
    }

    /// The cost of capped batches, which is added to delta at `epsilon`: `sum_t tau_t (1 + e^epsilon)`.
    pub fn cap_cost(&self, epsilon: Epsilon) -> f64 {
        self.cap_excess() * (1.0 + epsilon.get().exp())
    }

    /// Solves `delta_uncapped(epsilon) + cap_cost(epsilon) <= delta`, given the epsilon without caps as a function of delta.
    ///
    /// Both summands are public numbers, so every way to split delta that satisfies the inequality is valid. The loop approaches the
    /// split with the smallest epsilon.
    ///
    /// # Errors
    /// The cost of the caps alone exceeds delta at every epsilon that the loop tries.
    pub(crate) fn with_cap<T>(
        &self,
        delta: Delta,
        upper: impl Fn(&T) -> Epsilon,
        uncapped: impl Fn(Delta) -> Result<T, AccountingError>,
    ) -> Result<T, AccountingError> {
        if self.cap_excess() <= 0.0 {
            return uncapped(delta);
        }
        let too_tight = || AccountingError::NoSolution {
            what: "epsilon",
            reason: format!(
                "batches exceed max_batch_size too often, which alone costs more than delta = {delta}"
            ),
        };
        let mut rest = delta;
        for _ in 0..8 {
            let answer = uncapped(rest)?;
            let cap_cost = self.cap_cost(upper(&answer));
            if rest.get() + cap_cost <= delta.get() {
                return Ok(answer);
            }
            // Slightly more than the cost is reserved, because epsilon and the cost grow as `rest` falls.
            rest = Delta::new((delta.get() - 1.01 * cap_cost).min(rest.get() * 0.999_999))
                .map_err(|_| too_tight())?;
        }
        Err(too_tight())
    }
}
