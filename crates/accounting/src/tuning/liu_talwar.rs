//! Liu and Talwar's search: train random candidates, stop at random, and release the best.

use crate::{
    Accountant, AccountingError, Delta, Epsilon, NoiseMultiplier, Plan, SamplingRate, Steps,
    calibrate::{self, Budget},
    number::real,
    tuning::{Runs, out_of_range},
};

/// A search by random stopping: each run trains a candidate drawn at random, and after each run the search ends with probability `gamma`, at
/// the latest after `T = ceil(ln(1/delta_2) / gamma)` runs. Only the best run is released.
///
/// If each run is `(epsilon_1, delta_1)`-DP, the search is `(epsilon', delta')`-DP with
///
/// ```text
/// epsilon' = 3 epsilon_1 + 3 sqrt(2 delta_1)
/// delta'   = 3 sqrt(2 delta_1) T + delta_2
/// ```
///
/// # Guarantees
/// The conditions of the [module](super) apply. A grid search, which trains every candidate once, is not this search: it is priced by
/// [`sequential_epsilon`](super::sequential_epsilon).
///
/// The theorem is used as the DC-SGD paper quotes it. Papernot and Steinke's theorem also applies, because without the limit of `T` runs the
/// number of runs is geometric. It gives [`geometric_epsilon`](Self::geometric_epsilon), which is smaller for the plans of training.
///
/// # References
/// Liu and Talwar, "Private Selection from Private Candidates" (2019), as quoted in the DC-SGD paper's Theorem 1; its section VI-B for
/// `delta_2` and `gamma`, after Mohapatra et al. (2022).
///
/// ```
/// use sordino_accounting::{Accountant, Delta, Epsilon, SamplingRate, Steps, calibrate::Budget, tuning::LiuTalwar};
///
/// let search = LiuTalwar::of_candidates(10)?;
/// let budget = Budget { epsilon: Epsilon::new(8.0)?, delta: Delta::new(1e-5)? };
/// let one_run = search.one_run(budget)?;
/// assert!((one_run.epsilon.get() - 8.0 / 3.0).abs() < 1e-6 && one_run.delta.get() < 1e-16);
/// # Ok::<(), sordino_accounting::AccountingError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LiuTalwar {
    gamma: f64,
    delta_2: f64,
}

impl LiuTalwar {
    /// The search of the DC-SGD paper over `G` candidates: `gamma = 1 / (2 G)`, hence `2 G` runs on average, and `delta_2 = 1e-20`.
    ///
    /// # Errors
    /// There is no candidate, or there are more than a million.
    pub fn of_candidates(candidates: u64) -> Result<Self, AccountingError> {
        if !(1..=1_000_000).contains(&candidates) {
            let (range, hint) =
                ("from 1 to 1000000", "this is the number of combinations of settings that are tried");
            return Err(out_of_range("candidates", range, real(candidates), hint));
        }
        Self::new(2.0 * real(candidates), 1e-20)
    }

    /// A search with `1 / gamma` runs on average.
    ///
    /// # Errors
    /// The mean is below 1, or `delta_2` is not in (0, 1).
    pub fn new(mean_runs: f64, delta_2: f64) -> Result<Self, AccountingError> {
        if !(mean_runs.is_finite() && mean_runs >= 1.0) {
            let (what, range) = ("mean number of runs", "a finite number of at least 1");
            return Err(out_of_range(what, range, mean_runs, "try 20"));
        }
        if !(delta_2 > 0.0 && delta_2 < 1.0) {
            return Err(out_of_range(
                "delta_2",
                "above 0 and below 1",
                delta_2,
                "the DC-SGD paper uses 1e-20",
            ));
        }
        Ok(Self { gamma: 1.0 / mean_runs, delta_2 })
    }

    /// The expected number of runs without the limit.
    pub fn mean_runs(&self) -> f64 {
        1.0 / self.gamma
    }

    /// The largest number of runs, `T`.
    pub fn most_runs(&self) -> f64 {
        (-self.delta_2.ln() / self.gamma).ceil()
    }

    /// `3 sqrt(2 delta_1)` for a total delta.
    fn slack(&self, delta: Delta) -> Result<f64, AccountingError> {
        if !(delta.get() > self.delta_2) {
            let range = "above delta_2, the probability that the search reaches its limit";
            let hint = "give a larger delta, or a smaller delta_2";
            return Err(out_of_range("delta of the search", range, delta.get(), hint));
        }
        Ok((delta.get() - self.delta_2) / self.most_runs())
    }

    /// The probability that the search reaches its limit of runs, at most.
    pub fn delta_2(&self) -> f64 {
        self.delta_2
    }

    /// The delta of one run, `delta_1`.
    ///
    /// # Errors
    /// Delta is not above `delta_2`.
    pub fn one_run_delta(&self, delta: Delta) -> Result<Delta, AccountingError> {
        let root = self.slack(delta)? / 3.0;
        // Rounded down, so that the total delta is not exceeded.
        Delta::new(0.5 * root * root * (1.0 - 1e-12))
    }

    /// The epsilon of the search, if each run follows this plan or a cheaper one.
    ///
    /// # Errors
    /// Delta is not above `delta_2`, or the accountant cannot price the plan at the very small `delta_1`.
    pub fn epsilon(
        &self,
        plan: &Plan,
        accountant: Accountant,
        delta: Delta,
    ) -> Result<Epsilon, AccountingError> {
        let one_run = accountant.price(plan, self.one_run_delta(delta)?)?;
        Epsilon::new(3.0 * one_run.epsilon.get() + self.slack(delta)?)
    }

    /// The budget of one run within the budget of the search: the inverse of [`epsilon`](Self::epsilon).
    ///
    /// # Errors
    /// The budget is too small for any run.
    pub fn one_run(&self, search: Budget) -> Result<Budget, AccountingError> {
        // Rounded down, so that the total epsilon is not exceeded.
        let epsilon = (search.epsilon.get() - self.slack(search.delta)?) / 3.0 * (1.0 - 1e-12);
        if !(epsilon > 0.0) {
            return Err(AccountingError::NoSolution {
                what: "budget of one run",
                reason: format!("the search itself costs epsilon = {:e}", self.slack(search.delta)?),
            });
        }
        Ok(Budget { epsilon: Epsilon::new(epsilon)?, delta: self.one_run_delta(search.delta)? })
    }

    /// The smallest noise multiplier of DP-SGD with which the search is within its budget.
    ///
    /// # Errors
    /// No multiplier meets the budget.
    pub fn noise_multiplier(
        &self,
        search: Budget,
        rate: SamplingRate,
        steps: Steps,
        accountant: Accountant,
    ) -> Result<NoiseMultiplier, AccountingError> {
        Ok(calibrate::noise_multiplier(self.one_run(search)?, rate, steps, accountant)?.value)
    }

    /// The epsilon of the same search by the bounds for a geometric number of runs ([`Trial::price`](super::Trial::price)).
    ///
    /// Without the limit of `T` runs, let the search be `(epsilon, delta_0)`-DP. The limit changes the probability of any set of outputs by at most
    /// `(1 - gamma)^T <= delta_2`, on each of two neighbouring data sets, so that with it
    ///
    /// ```text
    /// P(S) <= e^epsilon (P'(S) + delta_2) + delta_0 + delta_2,   hence   delta = delta_0 + (1 + e^epsilon) delta_2.
    /// ```
    ///
    /// # Errors
    /// The limit uses up all of delta, or the plan has no Renyi divergence.
    pub fn geometric_epsilon(&self, plan: &Plan, delta: Delta) -> Result<Epsilon, AccountingError> {
        let runs = Runs::TruncatedNegativeBinomial { eta: 1.0, gamma: self.gamma };
        // The share of delta for the limit: almost 0 if that is enough.
        for share in [1e-6, 1e-3, 0.1, 0.5] {
            let unlimited = Delta::new(delta.get() * (1.0 - share))?;
            let epsilon = super::epsilon(std::slice::from_ref(plan), runs, unlimited)?;
            if unlimited.get() + (1.0 + epsilon.get().exp()) * self.delta_2 <= delta.get() {
                return Ok(epsilon);
            }
        }
        let reason = format!("the limit of {} runs uses up all of delta", self.most_runs());
        Err(AccountingError::NoSolution { what: "epsilon of the search", reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(epsilon: f64) -> Budget {
        Budget { epsilon: Epsilon::new(epsilon).unwrap(), delta: Delta::new(1e-5).unwrap() }
    }

    #[test]
    fn the_papers_search_has_its_constants() {
        // ln(1e20) = 46.0517; G = 10 gives T = 921.03 runs.
        let search = LiuTalwar::of_candidates(10).unwrap();
        assert_eq!((search.mean_runs(), search.most_runs()), (20.0, 922.0));
        let one_run = search.one_run(budget(2.0)).unwrap();
        // delta_1 = (1e-5 / (3 * 922))^2 / 2.
        assert!((one_run.delta.get() / 6.535_5e-18 - 1.0).abs() < 1e-4, "{}", one_run.delta);
        assert!((one_run.epsilon.get() - 2.0 / 3.0).abs() < 1e-8);
    }

    #[test]
    fn the_inverse_leads_back_to_the_budget() {
        let (rate, steps) = (SamplingRate::new(256.0 / 60_000.0).unwrap(), Steps::new(2350).unwrap());
        for candidates in [1, 10, 90] {
            let search = LiuTalwar::of_candidates(candidates).unwrap();
            for accountant in [Accountant::Rdp, Accountant::Pld] {
                let z = search.noise_multiplier(budget(4.0), rate, steps, accountant).unwrap();
                let spent = search
                    .epsilon(&Plan::dp_sgd(z, rate, steps), accountant, budget(4.0).delta)
                    .unwrap()
                    .get();
                assert!(spent <= 4.0 && spent > 0.998 * 4.0, "{candidates} {accountant}: {spent}");
            }
        }
    }

    /// The theorem for a geometric number of runs gives a smaller epsilon for every plan of this test.
    #[test]
    fn another_theorem_proves_a_smaller_epsilon_for_the_same_search() {
        for (z, q, steps) in
            [(0.6, 0.005, 2350), (1.0, 256.0 / 50_000.0, 3900), (4.0, 0.1, 500), (20.0, 1.0, 10)]
        {
            let plan = Plan::of_numbers(z, q, steps);
            for candidates in [1, 10, 1000] {
                let search = LiuTalwar::of_candidates(candidates).unwrap();
                let delta = Delta::new(1e-5).unwrap();
                let quoted = search.epsilon(&plan, Accountant::Rdp, delta).unwrap();
                let other = search.geometric_epsilon(&plan, delta).unwrap();
                assert!(other < quoted, "{z} {q} {candidates}: {other} and {quoted}");
            }
        }
    }

    #[test]
    fn more_candidates_cost_more() {
        let plan = Plan::of_numbers(1.0, 0.01, 1000);
        let cost = |g| {
            LiuTalwar::of_candidates(g)
                .unwrap()
                .epsilon(&plan, Accountant::Rdp, Delta::new(1e-5).unwrap())
                .unwrap()
        };
        assert!(cost(1) < cost(10) && cost(10) < cost(1000));
    }

    #[test]
    fn impossible_searches_are_refused() {
        assert!(LiuTalwar::of_candidates(0).is_err() && LiuTalwar::of_candidates(2_000_000).is_err());
        assert!(LiuTalwar::new(0.5, 1e-20).is_err() && LiuTalwar::new(f64::NAN, 1e-20).is_err());
        assert!(LiuTalwar::new(2.0, 0.0).is_err() && LiuTalwar::new(2.0, f64::NAN).is_err());
        let search = LiuTalwar::new(2.0, 1e-4).unwrap();
        assert!(search.one_run(budget(1.0)).is_err());
        let plan = Plan::of_numbers(1.0, 0.01, 100);
        assert!(search.geometric_epsilon(&plan, budget(1.0).delta).is_err());
        // A part of delta is left for the limit.
        let (rare, often) = (LiuTalwar::new(20.0, 1e-20).unwrap(), LiuTalwar::new(20.0, 1e-7).unwrap());
        let cost = |search: LiuTalwar| search.geometric_epsilon(&plan, budget(1.0).delta).unwrap();
        assert!(cost(often) > cost(rare));
        assert!(LiuTalwar::of_candidates(1).unwrap().one_run(budget(0.0)).is_err());
    }
}
