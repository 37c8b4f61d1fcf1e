//! The price of a search from the cost of one of its trials.

use super::{
    Runs,
    curve::{Curve, pure_divergence},
    out_of_range, renyi,
    selection::Selection,
};
use crate::{
    Accountant, AccountingError, Delta, Epsilon, Plan,
    calibrate::Budget,
    rdp::{self, RenyiDivergence},
};

/// What one trial of a search may reveal about one record.
#[derive(Debug, Clone)]
pub struct Trial(Cost);

#[derive(Debug, Clone)]
enum Cost {
    Plans(Vec<Plan>),
    Pure(Epsilon),
}

/// The price of a search. Each epsilon is a proved upper bound at the same delta.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// From the privacy profile of a trial; none if it is not known.
    pub profile: Option<Epsilon>,
    /// From the Renyi divergence of a trial; none if it is not known.
    pub renyi: Option<Epsilon>,
    least: Epsilon,
}

impl Price {
    /// The lower bound of the two.
    pub const fn epsilon(&self) -> Epsilon {
        self.least
    }

    /// The accountant of the lower bound: privacy loss distributions or Renyi divergences.
    pub fn accountant(&self) -> Accountant {
        if self.profile == Some(self.least) { Accountant::Pld } else { Accountant::Rdp }
    }
}

impl Trial {
    /// A trial that follows one of these plans, drawn at random.
    ///
    /// # Errors
    /// There is no plan, or the plans are priced under different relations.
    pub fn of(plans: &[Plan]) -> Result<Self, AccountingError> {
        let [first, ..] = plans else {
            let reason = "there are no candidates".to_owned();
            return Err(AccountingError::NoSolution { what: "epsilon", reason });
        };
        if let Some(other) = plans.iter().find(|plan| plan.relation() != first.relation()) {
            return Err(AccountingError::Unsupported {
                accountant: "tuning",
                entry: format!("a candidate of {} steps", other.steps()),
                reason: "the candidates are priced under different relations".to_owned(),
                instead: "use candidates with a single kind of sampling",
            });
        }
        let mut different: Vec<Plan> = Vec::new();
        for plan in plans {
            if !different.contains(plan) {
                different.push(plan.clone());
            }
        }
        Ok(Self(Cost::Plans(different)))
    }

    /// A trial that is `(epsilon, 0)`-DP, for example a count with Laplace noise.
    pub const fn pure(epsilon: Epsilon) -> Self {
        Self(Cost::Pure(epsilon))
    }

    /// The price of a search with this number of trials.
    ///
    /// # Errors
    /// Neither of the two bounds is known: see [`pld::epsilon`](crate::pld::epsilon) and [`rdp::epsilon`].
    pub fn price(&self, runs: Runs, delta: Delta) -> Result<Price, AccountingError> {
        let curve = self.curve(runs, delta);
        let profile = curve
            .as_ref()
            .ok()
            .and_then(|curve| Selection::new(curve, runs).epsilon(delta))
            .and_then(|epsilon| Epsilon::new(epsilon).ok());
        let d = |epsilon: f64| curve.as_ref().map_or(1.0, |curve| curve.delta(epsilon));
        let renyi = self.renyi(d, runs, delta);
        let least = match (profile, &renyi) {
            (Some(profile), Ok(renyi)) => {
                if profile <= *renyi {
                    profile
                } else {
                    *renyi
                }
            }
            (Some(profile), Err(_)) => profile,
            (None, Ok(renyi)) => *renyi,
            (None, Err(_)) => return Err(curve.err().or(renyi.err()).unwrap_or_else(|| unreachable!())),
        };
        Ok(Price { profile, renyi: renyi.ok(), least })
    }

    /// The privacy profile, down to a delta that does not matter.
    fn curve(&self, runs: Runs, delta: Delta) -> Result<Curve, AccountingError> {
        let plans = match &self.0 {
            Cost::Pure(epsilon) => return Ok(Curve::pure(*epsilon)),
            Cost::Plans(plans) => plans,
        };
        // Deltas that are too small for a privacy loss distribution are out of reach; a larger floor then costs a few per cent.
        let floor = |share: f64| Delta::new(delta.get() * share / runs.mean().max(1.0));
        Curve::of(plans, floor(1e-3)?).or_else(|_| Curve::of(plans, floor(0.1)?))
    }

    fn renyi(&self, d: impl Fn(f64) -> f64, runs: Runs, delta: Delta) -> Result<Epsilon, AccountingError> {
        match &self.0 {
            Cost::Pure(epsilon) => renyi::epsilon(|order| pure_divergence(*epsilon, order), d, runs, delta),
            Cost::Plans(plans) => {
                // Checks that a divergence exists: caps cost delta and have none.
                for plan in plans {
                    rdp::divergence(plan, rdp::Order::new(2.0)?)?;
                }
                let curves = plans.iter().map(RenyiDivergence::of).collect::<Result<Vec<_>, _>>()?;
                let worst = |order: f64| largest(curves.iter().map(|curve| curve.at(order)));
                renyi::epsilon(worst, d, runs, delta)
            }
        }
    }

    /// The pure trial with the largest epsilon whose search is within the budget.
    ///
    /// # Errors
    /// The budget is 0.
    pub fn largest_pure(runs: Runs, search: Budget) -> Result<Epsilon, AccountingError> {
        let target = search.epsilon;
        if !(target.get() > 0.0) {
            let hint = "use a small positive epsilon";
            return Err(out_of_range("epsilon of a search", "above 0", target.get(), hint));
        }
        let fits = |epsilon: f64| -> Result<bool, AccountingError> {
            Ok(Self::pure(Epsilon::new(epsilon)?).price(runs, search.delta)?.epsilon() <= target)
        };
        // A search costs at least as much as one trial, and at most (2 + eta) times as much. With a Poisson number, the factor is not bounded.
        let (mut low, mut high) = (0.0, target.get());
        if fits(high)? {
            return Epsilon::new(high);
        }
        while high - low > 1e-4 * high && high > 1e-9 {
            let mid = 0.5 * (low + high);
            if fits(mid)? { low = mid } else { high = mid }
        }
        Epsilon::new(low)
    }
}

/// The largest of these costs. Unlike `f64::max`, this keeps a NaN.
fn largest(costs: impl Iterator<Item = f64>) -> f64 {
    costs.fold(0.0, |a, b| if a >= b { a } else { b })
}
