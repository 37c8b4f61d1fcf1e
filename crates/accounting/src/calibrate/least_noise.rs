//! The search for the least noise within a privacy budget.

use super::{Budget, Calibrated, no_noise};
use crate::{Accountant, AccountingError, Entry, Guarantee, Plan, Steps};

/// How far below the target epsilon the result may be, relative to it.
const TOLERANCE: f64 = 1e-3;
/// The epsilon that the search aims at, relative to the target.
const AIM: f64 = 1.0 - 0.4 * TOLERANCE;
/// If the search needs more prices than this, the accountant is not monotone in the noise.
const MAX_EVALUATIONS: usize = 80;
/// The range of noise in which the search looks for solutions.
const RANGE: (f64, f64) = (1e-4, 1e9);

/// A sketch of the plan: at most a dozen entries that cost about the same. It guides the search and is never a result.
fn sketch(plan: &Plan) -> Plan {
    const ENTRIES: usize = 12;
    let stride = plan.entries().len().div_ceil(ENTRIES).max(1);
    let middle = |run: &[Entry]| {
        let steps = run.iter().map(|entry| entry.steps().get()).sum();
        Entry::new(run[run.len() / 2].sampling(), run[run.len() / 2].releases().to_vec(), Steps::new(steps)?)
    };
    plan.entries().chunks(stride).filter_map(|run| middle(run).ok()).collect()
}

/// The interval that contains the least noise within the budget. Noise is stored as its logarithm.
#[derive(Default)]
struct SearchInterval {
    /// The largest noise whose price is known to exceed the budget.
    too_little: Option<f64>,
    /// The smallest noise whose price is known to be within the budget.
    enough: Option<(f64, Guarantee)>,
}

impl SearchInterval {
    /// Whether this noise is inside the interval.
    fn admits(&self, ln_noise: f64) -> bool {
        self.too_little.is_none_or(|too_little| ln_noise > too_little)
            && self.enough.is_none_or(|(enough, _)| ln_noise < enough)
    }

    /// The middle of the interval, or a step beyond its only known end.
    fn middle(&self) -> f64 {
        match (self.too_little, self.enough) {
            (Some(too_little), Some((enough, _))) => 0.5 * (too_little + enough),
            (Some(too_little), None) => too_little + 0.5,
            (None, Some((enough, _))) => enough - 0.5,
            (None, None) => 0.0,
        }
    }

    /// The result of a search that has left the range of noise, or whose accountant has refused all remaining noise.
    fn at_the_end_of_the_range(
        self,
        refusal: Option<AccountingError>,
        target: f64,
    ) -> Result<Calibrated<f64>, AccountingError> {
        match (refusal, self.too_little, self.enough) {
            (Some(refusal), ..) => Err(refusal),
            // Even the least noise of the range is within the budget.
            (None, None, Some((enough, guarantee))) => Ok(Calibrated { value: enough.exp(), guarantee }),
            _ => Err(no_noise(&format!(
                "none between {:e} and {:e} gives epsilon = {target}",
                RANGE.0, RANGE.1
            ))),
        }
    }
}

/// The smallest factor of all multipliers with which the price of the plan is within the budget.
///
/// The epsilon of a sketch of the plan by Renyi divergences is fast to compute, and the price is nearly a power of it. Each price
/// gives a better estimate of that power, and the next noise is where the estimate meets the target. Three or four prices are
/// enough. Where the estimate leaves the interval, the search bisects.
pub(crate) fn least_noise(
    plan: &Plan,
    budget: Budget,
    price: impl Fn(&Plan) -> Result<Guarantee, AccountingError>,
) -> Result<Calibrated<f64>, AccountingError> {
    let target = budget.epsilon.get();
    if plan.entries().is_empty() {
        return Err(no_noise("the plan is empty"));
    }
    if target <= 0.0 {
        return Err(no_noise("an epsilon of 0 cannot be calibrated; use a small positive epsilon"));
    }
    let sketch = sketch(plan);
    let guide = |ln_noise: f64| -> f64 {
        let epsilon =
            sketch.scaled(ln_noise.exp()).and_then(|plan| Accountant::Rdp.price(&plan, budget.delta));
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
        match plan.scaled(next.exp()).and_then(|plan| price(&plan)) {
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
            // The accountant refuses this little noise, so the result needs more.
            Err(error @ (AccountingError::OutOfReach { .. } | AccountingError::Unsupported { .. }))
                if interval.enough.is_some() || next < 3.0 =>
            {
                interval.too_little = Some(next);
                refusal = Some(error);
                // The accountant refuses everything below `enough`, so the target cannot be met more closely.
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
            // The price jumps across the target, so the target cannot be met more closely.
            if enough - too_little < 1e-9 {
                return Ok(Calibrated { value: enough.exp(), guarantee: found });
            }
        }
    }
    interval.at_the_end_of_the_range(refusal, target)
}

/// `price = constant * guide^exponent`, fitted to the last two pairs.
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

/// The argument at which a decreasing function crosses a value: found from `start` by strides of growing length, then by bisection.
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
