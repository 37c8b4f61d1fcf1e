//! The batch of a step.

use std::ops::Range;

use rand::seq::index;
use rand_chacha::rand_core::Rng;
use sordino_accounting::Sampling;

/// Whether every slot is drawn independently of all others, so that ranks can draw their slots separately.
pub(crate) fn is_independent(sampling: Sampling) -> bool {
    match sampling {
        Sampling::Poisson { cap, .. } => cap.is_none(),
        Sampling::Rotating { .. } | Sampling::FullBatch => true,
        Sampling::FixedSize { .. } | Sampling::Stateful { .. } => false,
    }
}

/// Draws a batch from these slots, in ascending order. The cost is proportional to the batch. `turn` counts the steps of the plan entry.
pub(crate) fn draw(
    sampling: Sampling,
    turn: u64,
    slots: Range<usize>,
    rng: &mut impl Rng,
    batch: &mut Vec<usize>,
) {
    batch.clear();
    let population = slots.len();
    match sampling {
        // A vault refuses stateful plans.
        Sampling::Stateful { .. } => {}
        Sampling::Rotating { rate, groups } => {
            // Slot `i` belongs to group `i mod groups`, whichever other slots hold records and whichever rank holds it.
            let groups = usize::try_from(groups).unwrap_or(usize::MAX);
            #[expect(clippy::cast_possible_truncation, reason = "less than the number of groups")]
            let group = (turn % groups as u64) as usize;
            // The first member at or after the first slot.
            let skipped = (group + groups - slots.start % groups) % groups;
            let members = population.saturating_sub(skipped).div_ceil(groups);
            poisson(rate.get(), members, rng, batch);
            for slot in &mut *batch {
                *slot = *slot * groups + skipped;
            }
        }
        Sampling::Poisson { rate, cap } => {
            poisson(rate.get(), population, rng, batch);
            if let Some(cap) = cap {
                // Which records are dropped does not matter: a cap costs the probability that the batch exceeds it.
                batch.truncate(usize::try_from(cap.max_batch_size).unwrap_or(usize::MAX));
            }
        }
        Sampling::FixedSize { batch_size, .. } => {
            let size = usize::try_from(batch_size).unwrap_or(usize::MAX).min(population);
            batch.extend(index::sample(rng, population, size));
            batch.sort_unstable();
        }
        Sampling::FullBatch => batch.extend(0..population),
    }
    batch.iter_mut().for_each(|slot| *slot += slots.start);
}

/// Chooses every record with probability `rate`, by jumping from one chosen record to the next.
///
/// The number of records that are skipped is geometric: `Pr[gap >= k] = (1 - q)^k`, and `u <= (1 - q)^k` for a uniform `u` in
/// (0, 1) exactly when `floor(ln u / ln(1 - q)) >= k`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; never negative")]
fn poisson(rate: f64, population: usize, rng: &mut impl Rng, batch: &mut Vec<usize>) {
    let ln_absent = (-rate).ln_1p();
    let mut gap = || (uniform(rng).ln() / ln_absent) as usize;
    let mut next = gap();
    while next < population {
        batch.push(next);
        next = next.saturating_add(1).saturating_add(gap());
    }
}

/// A uniform number in (0, 1) with 53 significant bits however small it is, so that long gaps also have accurate probabilities.
///
/// The exponent is geometric, and the other bits are uniform. (Multiples of 2^-53 would be off by 2^-53 in the probability of
/// each gap, and the errors would add up.)
pub(crate) fn uniform(rng: &mut impl Rng) -> f64 {
    let mut exponent = 0;
    let mut bits = rng.next_u64();
    while bits == 0 && exponent < 512 {
        exponent += 64;
        bits = rng.next_u64();
    }
    #[expect(clippy::cast_possible_wrap, reason = "at most 64")]
    let exponent = exponent + bits.leading_zeros() as i32 + 1;
    // An odd multiple of 2^-52, so the sum is exact and between 1 and 2.
    #[expect(clippy::cast_precision_loss, reason = "at most 2^51")]
    let digits = 1.0 + ((rng.next_u64() >> 13) as f64 + 0.5) * 2.0_f64.powi(-51);
    digits * 2.0_f64.powi(-exponent)
}

#[cfg(test)]
mod tests {
    use rand_chacha::{ChaCha20Rng, rand_core::SeedableRng};
    use sordino_accounting::{Cap, SamplingRate};

    use super::*;
    use crate::randomness::GivenWords;

    fn at_rate(rate: f64) -> Sampling {
        Sampling::Poisson { rate: SamplingRate::new(rate).unwrap(), cap: None }
    }

    fn batches(sampling: Sampling, population: usize, count: usize) -> Vec<Vec<usize>> {
        let mut rng = ChaCha20Rng::seed_from_u64(11);
        let one = |_| {
            let mut batch = Vec::new();
            draw(sampling, 0, 0..population, &mut rng, &mut batch);
            batch
        };
        (0..count).map(one).collect()
    }

    /// How far `hits` of `trials` lie from `rate`, in standard deviations.
    fn deviation(hits: usize, trials: usize, rate: f64) -> f64 {
        let (hits, trials) = (hits as f64, trials as f64);
        (hits - trials * rate) / (trials * rate * (1.0 - rate)).sqrt()
    }

    /// Fixed seeds; each of the 300 statistics would leave 5 standard deviations by chance once in 1.7 million.
    #[test]
    fn every_record_is_chosen_at_the_rate_and_independently_of_others_and_of_other_steps() {
        const STEPS: usize = 20_000;
        for rate in [0.01, 0.3, 0.97] {
            let batches = batches(at_rate(rate), 50, STEPS);
            let has = |step: usize, record: usize| batches[step].binary_search(&record).is_ok();
            for record in 0..50 {
                let hits = (0..STEPS).filter(|&step| has(step, record)).count();
                assert!(deviation(hits, STEPS, rate).abs() < 5.0, "rate {rate}, record {record}: {hits}");
                let with_next =
                    (0..STEPS).filter(|&step| has(step, record) && has(step, (record + 1) % 50)).count();
                assert!(
                    deviation(with_next, STEPS, rate * rate).abs() < 5.0,
                    "rate {rate}, records {record} and next: {with_next}"
                );
                let again = (1..STEPS).filter(|&step| has(step - 1, record) && has(step, record)).count();
                assert!(
                    deviation(again, STEPS - 1, rate * rate).abs() < 5.0,
                    "rate {rate}, record {record} twice: {again}"
                );
            }
        }
    }

    #[test]
    fn uniform_numbers_have_53_different_digits_and_are_never_1() {
        let with_digits = |digits: u64| uniform(&mut GivenWords(vec![1 << 63, digits << 13].into_iter()));
        let (first, last) = (with_digits(0), with_digits((1 << 51) - 1));
        assert!(first > 0.5 && last < 1.0 && first - 0.5 == 1.0 - last);
        assert!((0..100).all(|digits| with_digits(digits) < with_digits(digits + 1)));
    }

    /// Fixed seed; the Kolmogorov-Smirnov statistic exceeds 2.2 / sqrt(n) with probability 1.3e-4.
    #[test]
    fn uniform_numbers_are_uniform_even_near_zero() {
        let mut rng = ChaCha20Rng::seed_from_u64(2);
        let mut values: Vec<f64> = (0..100_000).map(|_| uniform(&mut rng)).collect();
        assert!(values.iter().all(|&u| u > 0.0 && u < 1.0));
        values.sort_unstable_by(f64::total_cmp);
        let n = values.len() as f64;
        let distance =
            values.iter().enumerate().fold(0.0_f64, |worst, (i, u)| worst.max((u - i as f64 / n).abs()));
        assert!(distance < 2.2 / n.sqrt(), "{distance}");
        // Of 100,000 about 97.7 lie below 2^-10; their own halves, quarters, ... are as likely as they should be.
        let tiny = values.iter().filter(|&&u| u < 2.0_f64.powi(-10)).count() as f64;
        assert!((tiny - 97.7).abs() < 5.0 * 9.9, "{tiny}");
    }

    #[test]
    fn the_size_of_a_poisson_batch_is_binomial() {
        // Mean 600, variance 594: over 4,000 batches the mean is within 5 * 0.39, the variance within 5 * 13.3.
        let sizes: Vec<f64> =
            batches(at_rate(0.01), 60_000, 4000).iter().map(|batch| batch.len() as f64).collect();
        let mean = sizes.iter().sum::<f64>() / 4000.0;
        let variance = sizes.iter().map(|size| (size - mean).powi(2)).sum::<f64>() / 4000.0;
        assert!((mean - 600.0).abs() < 1.95, "{mean}");
        assert!((variance - 594.0).abs() < 66.5, "{variance}");
    }

    #[test]
    fn extreme_rates_choose_all_records_or_almost_none() {
        assert_eq!(batches(at_rate(1.0), 5, 3), vec![vec![0, 1, 2, 3, 4]; 3]);
        assert!(batches(at_rate(1e-300), usize::MAX, 3).iter().all(Vec::is_empty));
        assert!(batches(at_rate(0.5), 0, 3).iter().all(Vec::is_empty));
        assert_eq!(batches(Sampling::FullBatch, 3, 1), vec![vec![0, 1, 2]]);
    }

    #[test]
    fn groups_take_turns_and_records_never_change_their_group() {
        let mut rng = ChaCha20Rng::seed_from_u64(4);
        let mut batch = Vec::new();
        let all = Sampling::Rotating { rate: SamplingRate::new(1.0).unwrap(), groups: 3 };
        for (turn, members) in [(0, vec![0, 3, 6]), (1, vec![1, 4, 7]), (2, vec![2, 5]), (3, vec![0, 3, 6])] {
            draw(all, turn, 0..8, &mut rng, &mut batch);
            assert_eq!(batch, members);
        }
        let half = Sampling::Rotating { rate: SamplingRate::new(0.5).unwrap(), groups: 3 };
        let mut hits = [0; 8];
        for turn in 0..60_000 {
            draw(half, turn, 0..8, &mut rng, &mut batch);
            assert!(batch.iter().all(|record| *record as u64 % 3 == turn % 3));
            batch.iter().for_each(|record| hits[*record] += 1);
        }
        // Fixed seed; each would leave 5 standard deviations by chance once in 1.7 million.
        assert!(hits.iter().all(|hits| deviation(*hits, 20_000, 0.5).abs() < 5.0), "{hits:?}");
    }

    #[test]
    fn a_cap_is_never_exceeded() {
        let cap = Some(Cap { max_batch_size: 4, population: 10 });
        let sampling = Sampling::Poisson { rate: SamplingRate::new(0.9).unwrap(), cap };
        assert!(batches(sampling, 10, 100).iter().all(|batch| batch.len() <= 4));
    }

    #[test]
    fn fixed_size_batches_are_distinct_records_each_equally_often() {
        let sampling = Sampling::FixedSize { batch_size: 5, population: 20 };
        let batches = batches(sampling, 20, 20_000);
        let mut hits = [0; 20];
        for batch in &batches {
            assert!(batch.len() == 5 && batch.windows(2).all(|pair| pair[0] < pair[1]));
            for &record in batch {
                hits[record] += 1;
            }
        }
        assert!(hits.iter().all(|&hits| deviation(hits, 20_000, 0.25).abs() < 5.0), "{hits:?}");
    }
}
