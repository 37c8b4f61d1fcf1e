//! The total cost of several runs on the same records.
//!
//! *Composed*: if all plans were fixed before the first run started, they form one long plan, which is priced at one delta. Plans that
//! no single accountant can price together are priced in parts, and the epsilons and deltas of the parts add up.
//!
//! *Summed*: the epsilons and deltas of all runs add up. This holds even if the settings of a run were chosen based on the releases
//! of earlier runs. Composition is not proved in that case (`docs/accounting.md`, "Several runs").
//!
//! # Guarantees
//! Both are for a record that takes part in every run. If some plans are priced under replace-one and others under zero-out, the total
//! is for zero-out: a null record is one of the records that replace-one permits.

use crate::{
    Accountant, AccountingError, Delta, Epsilon, Guarantee, Plan, Relation, Sampling, number::real,
    tuning::sequential_epsilon,
};

/// A plan, the guarantee of one run, and the number of runs.
#[derive(Debug, Clone, Copy)]
pub struct PricedRuns<'a> {
    /// The plan of each run; none for a search, whose guarantee is added to the others.
    pub plan: Option<&'a Plan>,
    /// The guarantee of each run.
    pub guarantee: Guarantee,
    /// The number of runs.
    pub runs: u64,
}

/// The guarantee of all runs together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Total {
    /// The epsilon of all runs together.
    pub epsilon: Epsilon,
    /// The delta of all runs together.
    pub delta: Delta,
    /// The neighbouring relation of the guarantee.
    pub relation: Relation,
    /// The number of epsilons that were added up: 1 if all plans were priced as one.
    pub parts: u64,
}

impl Total {
    /// The cost of runs whose plans were all fixed beforehand.
    ///
    /// ```
    /// use sordino_accounting::{Accountant, Delta, NoiseMultiplier, Plan, SamplingRate, Steps};
    /// use sordino_accounting::total::{PricedRuns, Total};
    ///
    /// let plan = Plan::dp_sgd(NoiseMultiplier::new(5.0)?, SamplingRate::new(0.04)?, Steps::new(1000)?);
    /// let guarantee = Accountant::Pld.price(&plan, Delta::new(1e-5)?)?;
    /// let ten = [PricedRuns { plan: Some(&plan), guarantee, runs: 10 }];
    /// let (composed, summed) = (Total::composed(&ten)?, Total::summed(&ten)?);
    /// assert!(composed.epsilon.get() < 0.5 * summed.epsilon.get());
    /// assert!(composed.delta == guarantee.delta && summed.delta.get() >= 9.99e-5);
    /// # Ok::<(), sordino_accounting::AccountingError>(())
    /// ```
    ///
    /// # Errors
    /// There are no runs; a guarantee is not proved; the deltas add up to 1 or more.
    pub fn composed(runs: &[PricedRuns<'_>]) -> Result<Self, AccountingError> {
        let mut parts = Parts::default();
        for accountant in [Some(Accountant::Pld), Some(Accountant::Rdp), None] {
            let kind: Vec<_> = runs
                .iter()
                .filter(|run| run.plan.and_then(joint_accountant) == accountant)
                .copied()
                .collect();
            if kind.is_empty() {
                continue;
            }
            match accountant.map(|accountant| price_together(&kind, accountant)) {
                Some(Ok((epsilon, delta))) => parts.add(epsilon, delta, 1),
                // These plans cannot be priced together.
                _ => kind.iter().for_each(|run| parts.add_each(run)),
            }
        }
        parts.total(runs)
    }

    /// The cost of runs whose settings may have been chosen based on the releases of earlier runs.
    ///
    /// # Errors
    /// As [`composed`](Self::composed).
    pub fn summed(runs: &[PricedRuns<'_>]) -> Result<Self, AccountingError> {
        let mut parts = Parts::default();
        runs.iter().for_each(|run| parts.add_each(run));
        parts.total(runs)
    }
}

/// The accountant that can price these plans together, or `None` if they must be priced one by one.
fn joint_accountant(plan: &Plan) -> Option<Accountant> {
    let stateful = |entry: &crate::Entry| matches!(entry.sampling(), Sampling::Stateful { .. });
    match plan.relation() {
        _ if plan.entries().iter().any(stateful) => None,
        Relation::ZeroOut => Some(Accountant::Pld),
        Relation::ReplaceOne => Some(Accountant::Rdp),
    }
}

/// The epsilon of all these runs at the largest of their deltas.
fn price_together(
    runs: &[PricedRuns<'_>],
    accountant: Accountant,
) -> Result<(Epsilon, Delta), AccountingError> {
    let plans = runs.iter().filter_map(|run| run.plan.map(|plan| plan.repeated(run.runs)));
    let plans = plans.collect::<Result<Vec<_>, _>>()?;
    let delta = runs
        .iter()
        .map(|run| run.guarantee.delta)
        .fold(runs[0].guarantee.delta, |a, b| if a < b { b } else { a });
    Ok((sequential_epsilon(&plans, accountant, delta)?, delta))
}

/// The sums of epsilons and deltas.
#[derive(Default)]
struct Parts {
    epsilon: f64,
    delta: f64,
    count: u64,
}

impl Parts {
    fn add(&mut self, epsilon: Epsilon, delta: Delta, times: u64) {
        self.epsilon += epsilon.get() * real(times);
        self.delta += delta.get() * real(times);
        self.count += times;
    }

    fn add_each(&mut self, run: &PricedRuns<'_>) {
        self.add(run.guarantee.epsilon, run.guarantee.delta, run.runs);
    }

    fn total(self, runs: &[PricedRuns<'_>]) -> Result<Total, AccountingError> {
        let none = |reason: String| AccountingError::NoSolution { what: "epsilon of all runs", reason };
        let [first, rest @ ..] = runs else { return Err(none("there are no runs".to_owned())) };
        if let Some(run) = runs.iter().find(|run| !run.guarantee.proved()) {
            return Err(none(format!("the guarantee of {} is not proved", run.guarantee.accountant)));
        }
        // A margin for rounding, unless there is only one summand.
        let (margin, delta) =
            if self.count > 1 { (1.0 + 1e-12, shortened(self.delta)) } else { (1.0, self.delta) };
        let delta = Delta::new(delta)
            .map_err(|_| none(format!("the deltas of {} runs add up to {}", self.count, self.delta)))?;
        let same = rest.iter().all(|run| run.guarantee.relation == first.guarantee.relation);
        let relation = if same { first.guarantee.relation } else { Relation::ZeroOut };
        Ok(Total { epsilon: Epsilon::new(self.epsilon * margin)?, delta, relation, parts: self.count })
    }
}

/// Removes the rounding of binary fractions, so that three times 1e-5 is 3e-5. A sum with more digits is rounded up.
fn shortened(sum: f64) -> f64 {
    let short: f64 = format!("{sum:.8e}").parse().unwrap_or(f64::INFINITY);
    if (short / sum - 1.0).abs() < 1e-12 { short } else { sum * (1.0 + 1e-12) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entry, NoiseMultiplier, SamplingRate, Steps};

    fn delta() -> Delta {
        Delta::new(1e-5).unwrap()
    }

    fn runs(plan: &Plan, accountant: Accountant, runs: u64) -> PricedRuns<'_> {
        PricedRuns { plan: Some(plan), guarantee: accountant.price(plan, delta()).unwrap(), runs }
    }

    fn entry(sampling: Sampling, z: f64, steps: u64) -> Plan {
        let z = NoiseMultiplier::new(z).unwrap();
        Plan::new(vec![Entry::new(sampling, vec![z], Steps::new(steps).unwrap()).unwrap()])
    }

    fn rate(rate: f64) -> SamplingRate {
        SamplingRate::new(rate).unwrap()
    }

    /// dp_accounting 0.6.0 gives 3.5912 for ten runs of the default on Mushroom (grid 1e-4, rounded up).
    #[test]
    fn repeats_are_priced_as_one_long_plan() {
        let plan = Plan::of_numbers(5.329_42, 256.0 / 6499.0, 1269);
        let total = Total::composed(&[runs(&plan, Accountant::Pld, 10)]).unwrap();
        let long = Plan::of_numbers(5.329_42, 256.0 / 6499.0, 12_690);
        assert_eq!(total.epsilon, Accountant::Pld.price(&long, delta()).unwrap().epsilon);
        assert!((total.epsilon.get() / 3.5912 - 1.0).abs() < 2e-3, "{total:?}");
        assert_eq!((total.delta, total.parts), (delta(), 1));
        let summed = Total::summed(&[runs(&plan, Accountant::Pld, 10)]).unwrap();
        assert!((summed.epsilon.get() - 9.996).abs() < 1e-2 && summed.delta.get() == 1e-4, "{summed:?}");
    }

    /// The last rotation may be incomplete in every run, so exposures are counted run by run.
    #[test]
    fn repeated_groups_expose_a_record_as_often_as_separate_runs() {
        let plan = entry(Sampling::Rotating { rate: rate(0.1), groups: 7 }, 2.0, 29);
        let twice = Total::composed(&[runs(&plan, Accountant::Pld, 2)]).unwrap();
        let listed = Total::composed(&[runs(&plan, Accountant::Pld, 1); 2]).unwrap();
        assert_eq!(twice.epsilon, listed.epsilon);
        let exposed = Accountant::Pld.price(&Plan::of_numbers(2.0, 0.1, 10), delta()).unwrap().epsilon;
        assert!((twice.epsilon.get() / exposed.get() - 1.0).abs() < 1e-9, "{twice:?} {exposed}");
    }

    #[test]
    fn plans_that_cannot_be_composed_add_up() {
        let poisson = Plan::of_numbers(3.0, 0.02, 100);
        let stateful = entry(Sampling::Stateful { rate: rate(0.02), later_shift: 2.0 }, 30.0, 50);
        let fixed = entry(Sampling::FixedSize { batch_size: 20, population: 1000 }, 5.0, 100);
        let (a, b, c) = (
            runs(&poisson, Accountant::Pld, 3),
            runs(&stateful, Accountant::FirstParticipation, 2),
            runs(&fixed, Accountant::Rdp, 2),
        );
        let parts = [a, c].map(|part| Total::composed(&[part]).unwrap().epsilon.get());
        let all = Total::composed(&[a, b, c]).unwrap();
        let expected = parts[0] + parts[1] + 2.0 * b.guarantee.epsilon.get();
        assert!((all.epsilon.get() - expected).abs() < 1e-9, "{all:?} {expected}");
        assert_eq!((all.delta.get(), all.parts, all.relation), (4e-5, 4, Relation::ZeroOut));
        assert_eq!(Total::composed(&[c]).unwrap().relation, Relation::ReplaceOne);
        assert_eq!(Total::summed(&[a, b, c]).unwrap().delta.get(), 7e-5);
    }

    #[test]
    fn the_cost_of_a_search_is_added() {
        let plan = Plan::of_numbers(3.0, 0.02, 100);
        let run = runs(&plan, Accountant::Pld, 3);
        let search = PricedRuns { plan: None, runs: 2, ..run };
        let parts = Total::composed(&[run]).unwrap().epsilon.get() + 2.0 * run.guarantee.epsilon.get();
        let both = Total::composed(&[run, search]).unwrap();
        assert!((both.epsilon.get() - parts).abs() < 1e-9 && both.parts == 3, "{both:?}");
        assert_eq!(both.delta.get(), 3e-5);
    }

    #[test]
    fn approximations_and_deltas_above_one_are_refused() {
        let plan = Plan::of_numbers(3.0, 0.02, 100);
        assert!(Total::composed(&[]).is_err());
        assert!(Total::composed(&[runs(&plan, Accountant::GdpClt, 2)]).is_err());
        assert!(Total::summed(&[runs(&plan, Accountant::Pld, 100_000)]).is_err());
        assert!(Total::composed(&[runs(&plan, Accountant::Pld, 100_000)]).is_ok());
    }
}
