//! The search for the least noise within a budget.

use super::{Budget, Calibrated, no_noise};
use crate::{Accountant, AccountingError, Entry, Guarantee, Plan, Steps};

/// How far below the target the result may stay, relative to it.
const TOLERANCE: f64 = 1e-3;
/// Where in the permitted range the search aims.
const AIM: f64 = 1.0 - 0.4 * TOLERANCE;
/// More evaluations than this mean that the accountant's answers do not fit together.
const MAX_EVALUATIONS: usize = 80;
/// The factors of noise between which solutions are sought.
const RANGE: (f64, f64) = (1e-4, 1e9);

/// A plan of a dozen entries that costs about the same: a guide for searches, never a price.
pub(super) fn sketch(plan: &Plan) -> Plan {
    const ENTRIES: usize = 12;
    let stride = plan.entries().len().div_ceil(ENTRIES).max(1);
    let middle = |run: &[Entry]| {
        let steps = run.iter().map(|entry| entry.steps().get()).sum();
        Entry::new(run[run.len() / 2].sampling(), run[run.len() / 2].releases().to_vec(), Steps::new(steps)?)
    };
    plan.entries().chunks(stride).filter_map(|run| middle(run).ok()).collect()
}

/// What is interval of the price: `too_little` is too little noise, `enough` is within the budget. Noise as a logarithm.
#[derive(Default)]
struct SearchInterval {
    too_little: Option<f64>,
    enough: Option<(f64, Guarantee)>,
}

impl SearchInterval {
    /// Whether this noise could still be the answer.
    fn admits(&self, ln_noise: f64) -> bool {
        self.too_little.is_none_or(|too_little| ln_noise > too_little)
            && self.enough.is_none_or(|(enough, _)| ln_noise < enough)
    }

    /// The middle of what is left, or a step beyond the only end there is.
    fn middle(&self) -> f64 {
        match (self.too_little, self.enough) {
            (Some(too_little), Some((enough, _))) => 0.5 * (too_little + enough),
            (Some(too_little), None) => too_little + 0.5,
            (None, Some((enough, _))) => enough - 0.5,
            (None, None) => 0.0,
        }
    }
}

/// The smallest noise whose price is within the budget.
///
/// Renyi's epsilon of a sketch of the plan is a fast guide: the price is nearly a power of it. Each price tells that power
/// better, and the next noise is where the guide says that the price is right; three or four prices are enough. Where
/// the guide fails, halving goes on.
pub(super) fn least_noise(
    plan: impl Fn(f64) -> Result<Plan, AccountingError>,
    sketch: impl Fn(f64) -> Result<Plan, AccountingError>,
    budget: Budget,
    accountant: Accountant,
) -> Result<Calibrated<f64>, AccountingError> {
    let target = budget.epsilon.get();
    if target <= 0.0 {
        return Err(no_noise("an epsilon of 0 is not calibrated for; give a small positive epsilon"));
    }
    let guide = |ln_noise: f64| -> f64 {
        let epsilon = sketch(ln_noise.exp()).and_then(|plan| Accountant::Rdp.price(&plan, budget.delta));
        epsilon.map_or(f64::INFINITY, |guarantee| guarantee.epsilon.get())
    };
    let mut interval = SearchInterval::default();
    let (mut law, mut start) = (PowerLaw::default(), 0.0);
    let mut refusal = None;
    for evaluation in 0..MAX_EVALUATIONS {
        let guided = (evaluation < 12).then(|| crossing(guide, law.guide_for(AIM * target), start));
        let next = guided.filter(|next| interval.admits(*next)).unwrap_or_else(|| interval.middle());
        start = next;
        if !(RANGE.0.ln()..=RANGE.1.ln()).contains(&next) {
            break;
        }
        match plan(next.exp()).and_then(|plan| accountant.price(&plan, budget.delta)) {
            Ok(found) if found.epsilon <= budget.epsilon => {
                if found.epsilon.get() >= (1.0 - TOLERANCE) * target {
                    return Ok(Calibrated { value: next.exp(), guarantee: found });
                }
                law.learn(guide(next), found.epsilon.get());
                interval.enough = Some((next, found));
            }
            Ok(found) => {
                law.learn(guide(next), found.epsilon.get());
                interval.too_little = Some(next);
            }
            // Too little noise for this accountant: more is needed in any case.
            Err(error @ (AccountingError::OutOfReach { .. } | AccountingError::Unsupported { .. }))
                if interval.enough.is_some() || next < 3.0 =>
            {
                interval.too_little = Some(next);
                refusal = Some(error);
                // Between "enough" and what the accountant refuses, the target is not to be had.
                if interval.enough.is_some_and(|(enough, _)| enough - next < 0.05) {
                    break;
                }
                continue;
            }
            Err(error) => return Err(error),
        }
        refusal =
            refusal.filter(|_| interval.enough.is_some_and(|(enough, _)| enough.total_cmp(&next).is_eq()));
        if let (Some(too_little), Some((enough, found))) = (interval.too_little, interval.enough) {
            // An accountant with a jump: nothing lies between "too much" and "enough".
            if enough - too_little < 1e-9 {
                return Ok(Calibrated { value: enough.exp(), guarantee: found });
            }
        }
    }
    if let Some(refusal) = refusal {
        return Err(refusal);
    }
    // Less and less noise was always enough.
    if let (None, Some((enough, guarantee))) = (interval.too_little, interval.enough) {
        return Ok(Calibrated { value: enough.exp(), guarantee });
    }
    Err(no_noise(&format!("none between {:e} and {:e} reaches epsilon = {target}", RANGE.0, RANGE.1)))
}

/// `price = constant * guide^exponent`, from the last two pairs.
struct PowerLaw {
    ln_guide: f64,
    ln_price: f64,
    exponent: f64,
    learnt: bool,
}

impl Default for PowerLaw {
    fn default() -> Self {
        Self { ln_guide: 0.0, ln_price: 0.0, exponent: 1.0, learnt: false }
    }
}

impl PowerLaw {
    fn learn(&mut self, guide: f64, price: f64) {
        let (ln_guide, ln_price) = (guide.ln(), price.ln());
        if !(ln_guide.is_finite() && ln_price.is_finite()) {
            return;
        }
        let exponent = (ln_price - self.ln_price) / (ln_guide - self.ln_guide);
        if self.learnt && (0.2..5.0).contains(&exponent) {
            self.exponent = exponent;
        }
        (self.ln_guide, self.ln_price, self.learnt) = (ln_guide, ln_price, true);
    }

    fn guide_for(&self, price: f64) -> f64 {
        (self.ln_guide + (price.ln() - self.ln_price) / self.exponent).exp()
    }
}

/// Where a falling function crosses a value, found from `start` by ever longer strides and then by halving.
fn crossing(f: impl Fn(f64) -> f64, value: f64, start: f64) -> f64 {
    let too_little = |ln_noise: f64| f(ln_noise) > value;
    let direction = if too_little(start) { 1.0 } else { -1.0 };
    let (mut near, mut stride) = (start, 0.1);
    let mut far = start + direction * stride;
    while too_little(far) == (direction > 0.0) && far.abs() < RANGE.1.ln() {
        stride *= 2.0;
        (near, far) = (far, far + direction * stride);
    }
    let (mut low, mut high) = if direction > 0.0 { (near, far) } else { (far, near) };
    while high - low > 1e-4 {
        let mid = 0.5 * (low + high);
        if too_little(mid) { low = mid } else { high = mid }
    }
    high
}
