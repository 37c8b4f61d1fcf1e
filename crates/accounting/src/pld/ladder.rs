//! A ladder of a few dozen noise multipliers, the rungs, that enclose thousands of different ones.
//!
//! Discretising and transforming thousands of multipliers would be slow. Only the rungs are discretised; a step between two rungs is
//! enclosed by mixtures of their curves.
//!
//! Let `u(mu)` be the total variation distance of N(0, 1) and N(mu, 1). As a function of `u`, the hockey-stick curve of the
//! sampled Gaussian is convex at every loss: with `dh/dmu = q phi(e/mu - mu/2)` and `du/dmu = phi(mu/2)`,
//!
//! ```text
//! d2h/dmu2 + (mu/4) dh/dmu = dh/dmu e^2/mu^3 >= 0.
//! ```
//!
//! So between two rungs `mu_a < mu < mu_b`, with `s = (u(mu) - u(mu_a)) / (u(mu_b) - u(mu_a))`, a step is enclosed by
//! two mixtures, in which the adversary sees which part was drawn:
//!
//! - from above by the chord, `(1-s) h_a + s h_b`;
//! - from below by the tangent, `(1-s) h_a + s (h_a + (u(mu_b) - u(mu_a)) dh_a/du)`.
//!
//! The end of the tangent is itself the curve of a pair: the density of the loss changes with `mu` by a factor of
//! `1 - (1/mu + t - t^2/mu) stretch` at `t` standard deviations, which is positive everywhere as long as
//! `stretch < mu / (1 + mu^2/4)`. Rungs are far closer than that.
//!
//! The error is of second order in the distance of the rungs. A step costs one weighted sum of two spectra.

use std::collections::BTreeMap;

use super::pair::Pair;
use crate::{gaussian, number::real_length};

/// Up to this many different multipliers per sampling rate have a rung each, without mixtures.
const MAX_SEPARATE: usize = 24;
/// If there are more positions between two rungs than this, they are rounded outwards to this many levels.
const BLEND_LEVELS: usize = 128;

/// One rung: a pair, and the far end of its interval if there are steps inside the interval.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rung {
    pub pair: Pair,
    pub far: Option<FarEnd>,
}

/// The far end of an interval, and the length of the tangent towards it in `mu`.
#[derive(Debug, Clone, Copy)]
pub(super) struct FarEnd {
    pub pair: Pair,
    pub stretch: f64,
}

/// A group of identical steps: their rung, and their position `s` between the rung and its far end, rounded down and up.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepGroup {
    pub rung: usize,
    pub blend_low: f64,
    pub blend_high: f64,
    pub count: u64,
}

/// All steps of a plan, assigned to rungs.
#[derive(Debug, Clone)]
pub(super) struct Ladder {
    pub rungs: Vec<Rung>,
    pub step_groups: Vec<StepGroup>,
}

/// Assigns pairs, with their counts, to a ladder whose rungs have a relative distance of `spacing` in `mu`.
pub(super) fn ladder(pairs: &[(Pair, u64)], spacing: f64) -> Ladder {
    let mut by_rate: BTreeMap<(u64, u32), Vec<(Pair, u64)>> = BTreeMap::new();
    for &(pair, count) in pairs {
        // Rates are positive, and positive floating-point numbers have the same order as their bits.
        by_rate.entry((pair.rate.to_bits(), pair.group)).or_default().push((pair, count));
    }
    let mut ladder = Ladder { rungs: Vec::new(), step_groups: Vec::new() };
    for mut family in by_rate.into_values() {
        family.sort_by(|(a, _), (b, _)| a.mu.total_cmp(&b.mu));
        // Convexity is proved for one record. For groups of records every multiplier has a rung.
        if family.len() <= MAX_SEPARATE || family[0].0.group > 1 {
            ladder.add_separately(&family);
        } else {
            ladder.add_between_rungs(&family, spacing);
        }
    }
    ladder
}

impl Ladder {
    fn add_separately(&mut self, family: &[(Pair, u64)]) {
        for &(pair, count) in family {
            let rung = self.rungs.len();
            self.rungs.push(Rung { pair, far: None });
            self.step_groups.push(StepGroup { rung, blend_low: 0.0, blend_high: 0.0, count });
        }
    }

    /// `family` is sorted by `mu`.
    fn add_between_rungs(&mut self, family: &[(Pair, u64)], spacing: f64) {
        let mut steps = family.iter().peekable();
        while let Some(&&(base, _)) = steps.peek() {
            // Each rung is at the first step beyond the previous interval.
            let next = base.mu * (1.0 + spacing / (1.0 + base.mu * base.mu));
            let distance = |mu: f64| Pair::total_variation_between(base.mu, mu);
            let whole = distance(next);
            let mut blends: BTreeMap<u64, (f64, u64)> = BTreeMap::new();
            while let Some((pair, count)) = steps.next_if(|(pair, _)| pair.mu < next) {
                let blend = (distance(pair.mu) / whole).clamp(0.0, 1.0);
                let entry = blends.entry(blend.to_bits()).or_insert((blend, 0));
                entry.1 += count;
            }
            let rung = self.rungs.len();
            let stretch = whole / gaussian::density(base.mu / 2.0);
            let far = FarEnd { pair: Pair { mu: next, ..base }, stretch };
            self.rungs.push(Rung { pair: base, far: Some(far) });
            self.step_groups.extend(rounded(blends, rung));
        }
    }
}

/// Groups of steps at these positions. Many positions are rounded outwards to [`BLEND_LEVELS`] levels.
fn rounded(blends: BTreeMap<u64, (f64, u64)>, rung: usize) -> Vec<StepGroup> {
    if blends.len() <= BLEND_LEVELS {
        // A margin for the rounding errors of the position.
        let step_group = |(blend, count): (f64, u64)| StepGroup {
            rung,
            blend_low: blend * (1.0 - 1e-9),
            blend_high: (blend * (1.0 + 1e-9)).min(1.0),
            count,
        };
        return blends.into_values().map(step_group).collect();
    }
    let levels = real_length(BLEND_LEVELS);
    let mut counts = vec![0; BLEND_LEVELS];
    for (blend, count) in blends.into_values() {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a position in [0, 1]")]
        let level = ((blend * levels) as usize).min(BLEND_LEVELS - 1);
        counts[level] += count;
    }
    let step_group = |(level, count)| StepGroup {
        rung,
        blend_low: f64::from(level) / levels,
        blend_high: f64::from(level + 1) / levels,
        count,
    };
    (0_u32..).zip(counts).filter(|(_, count)| *count > 0).map(step_group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(n: u32) -> Vec<(Pair, u64)> {
        (0..n)
            .map(|i| (Pair { rate: 0.01, mu: 0.2 * 10_f64.powf(f64::from(i) / f64::from(n)), group: 1 }, 1))
            .collect()
    }

    #[test]
    fn few_multipliers_have_a_rung_each() {
        let ladder = ladder(&family(20), 0.03);
        assert_eq!(ladder.rungs.len(), 20);
        assert!(ladder.step_groups.iter().all(|c| c.blend_high == 0.0));
    }

    #[test]
    fn every_step_is_on_the_ladder_once_and_inside_its_interval() {
        for n in [100_u32, 5000, 20_000] {
            let steps = family(n);
            let ladder = ladder(&steps, 0.03);
            assert_eq!(ladder.step_groups.iter().map(|c| c.count).sum::<u64>(), u64::from(n));
            assert!(ladder.rungs.len() < 200);
            // The ends of all tangents are curves of pairs.
            let convex = |rung: &Rung| {
                rung.far
                    .is_none_or(|far| far.stretch < 0.1 * rung.pair.mu / (1.0 + rung.pair.mu.powi(2) / 4.0))
            };
            assert!(ladder.rungs.iter().all(convex));
            assert!(ladder.step_groups.len() <= (n as usize).min(BLEND_LEVELS * ladder.rungs.len()));
            assert!(
                ladder
                    .step_groups
                    .iter()
                    .all(|c| 0.0 <= c.blend_low && c.blend_low <= c.blend_high && c.blend_high <= 1.0)
            );
        }
    }
}
