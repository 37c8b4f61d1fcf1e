//! The vault on several ranks: the same mechanism as in one process.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::{sync::Arc, time::Duration};

use sordino_accounting::{Cap, ClipNorm, Entry, NoiseMultiplier, Plan, Sampling, SamplingRate, Steps};
use sordino_privacy::{
    ClipRule, Coefficients, Communicator, NormStatistic, PrivacyError, Randomness, Ranks, Terms, Vault,
};
use sordino_testing::{Folder, Rows, ThreadRank, on_connected, on_ranks, rows, terms};

const RECORDS: usize = 23;

/// Records with values that are not exact in binary, some of them clipped, one of them absent.
fn records() -> Vec<Vec<f32>> {
    let row = |i: usize| match i {
        11 => Vec::new(),
        _ => vec![0.1 * i as f32, 1.0 / (1.0 + i as f32), -0.3],
    };
    (0..RECORDS).map(row).collect()
}

fn share(ranks: &Ranks, records: &[Vec<f32>]) -> Rows {
    let dimension = records.iter().map(Vec::len).max().unwrap();
    Rows { dimension, ..rows(records[ranks.share()].to_vec()) }
}

fn terms_of(sampling: Sampling, multipliers: &[f64]) -> Terms {
    let releases = multipliers.iter().map(|&z| NoiseMultiplier::new(z).unwrap()).collect();
    let entry = Entry::new(sampling, releases, Steps::new(12).unwrap()).unwrap();
    Terms::unprotected(Plan::new(vec![entry]), RECORDS as u64, "a test")
}

fn rate(rate: f64) -> SamplingRate {
    SamplingRate::new(rate).unwrap()
}

/// All ways of drawing a batch.
fn samplings() -> [Sampling; 5] {
    let population = RECORDS as u64;
    [
        Sampling::Poisson { rate: rate(0.4), cap: None },
        Sampling::Poisson { rate: rate(0.4), cap: Some(Cap { max_batch_size: 20, population }) },
        Sampling::FixedSize { batch_size: 7, population },
        Sampling::Rotating { rate: rate(0.7), groups: 3 },
        Sampling::FullBatch,
    ]
}

#[test]
fn the_shares_of_the_ranks_are_all_slots_once() {
    for (size, slots) in [(1, 5), (2, 5), (3, 3), (4, 3), (7, 1000), (5, 0)] {
        let all = ThreadRank::connected(size, Duration::from_secs(1)).into_iter();
        let shares: Vec<usize> = all.flat_map(|rank| Ranks::among(rank, slots).share()).collect();
        assert!(shares.into_iter().eq(0..slots), "{slots} slots on {size} ranks");
    }
}

/// With a seed, any number of ranks gives the releases of one process, bit by bit: sums, statistics of norms, residuals, noise and
/// disclosures, for every way of drawing a batch.
#[test]
fn any_number_of_ranks_gives_the_releases_of_one_process() {
    let rule = ClipRule::flat(ClipNorm::new(0.5).unwrap()).unwrap();
    let residual = ClipRule::flat(ClipNorm::new(0.25).unwrap()).unwrap();
    let histogram = NormStatistic::histogram(ClipNorm::new(2.0).unwrap(), 5).unwrap();
    let coefficients = Coefficients::new(&[0.8, 0.5, -0.2]).unwrap();
    for (sampling, correlated) in samplings().into_iter().flat_map(|one| [(one, false), (one, true)]) {
        let rotating = matches!(sampling, Sampling::Rotating { .. });
        if correlated && !rotating {
            continue;
        }
        let terms = terms_of(sampling, if rotating { &[1.0] } else { &[1.0, 2.0] });
        let run = |size: usize| {
            on_ranks(size, |communicator| {
                let ranks = Ranks::among(communicator, RECORDS);
                let gradients = share(&ranks, &records());
                let mut vault =
                    Vault::seal_among(&ranks, gradients, &terms, Randomness::seeded(5), None).unwrap();
                let mut all: Vec<Vec<f32>> = Vec::new();
                while let Some(taken) = vault
                    .round(|round| {
                        if rotating && correlated {
                            let sum = round.gradients(&[]).correlated_sum(&rule, &coefficients)?;
                            return Ok::<_, PrivacyError>(vec![round.release(sum)?.into_inner()]);
                        }
                        if rotating {
                            let sum = round.gradients(&[]).banded_sum(&rule, &residual)?;
                            return Ok::<_, PrivacyError>(vec![round.release(sum)?.into_inner()]);
                        }
                        let (sum, counts) = round.gradients(&[]).clipped_sum_and(&rule, &histogram)?;
                        let plain = round.gradients(&[]).plain_sum()?;
                        Ok(vec![
                            round.release(sum)?.into_inner(),
                            round.release(counts)?.into_inner(),
                            round.noise(3.0)?.into_inner(),
                            round.disclose(plain, "a test")?.into_inner(),
                        ])
                    })
                    .unwrap()
                {
                    all.extend(taken.unwrap());
                }
                all
            })
        };
        let alone = run(1).remove(0);
        assert!(alone.len() >= 12);
        for size in [2, 3, 5, 30] {
            for (rank, releases) in run(size).into_iter().enumerate() {
                let near = |(one, other): (&Vec<f32>, &Vec<f32>)| {
                    one.iter().zip(other).all(|(one, other)| (one - other).abs() <= 1e-6 * one.abs().max(1.0))
                };
                assert_eq!(releases.len(), alone.len());
                assert!(releases.iter().zip(&alone).all(near), "{sampling:?}, rank {rank} of {size}");
            }
        }
    }
}

/// Without a seed every rank draws its own slots. There is no fixed seed here. A sound mechanism leaves 6.5 standard deviations once in 12
/// billion for each of 80 statistics.
#[test]
fn ranks_with_their_own_randomness_draw_every_slot_at_the_rate_and_independently() {
    const COUNT: usize = 20;
    const STEPS: usize = 4000;
    const RATE: f64 = 0.25;
    let one_hot = |i| (0..COUNT).map(|j| if i == j { 1.0 } else { 0.0 }).collect();
    let records: Vec<Vec<f32>> = (0..COUNT).map(one_hot).collect();
    let terms = terms(COUNT, &[1e-6], RATE, STEPS as u64);
    let rule = ClipRule::flat(ClipNorm::new(1.0).unwrap()).unwrap();
    let releases = on_ranks(2, |communicator| {
        let ranks = Ranks::among(communicator, COUNT);
        let randomness = Randomness::from_os().unwrap();
        let mut vault = Vault::seal_among(&ranks, share(&ranks, &records), &terms, randomness, None).unwrap();
        let step = |_| {
            let release = vault.round(|round| {
                let sum = round.gradients(&[]).clipped_sum(&rule)?;
                round.release(sum)
            });
            release.unwrap().unwrap().unwrap().iter().map(|v| *v > 0.5).collect::<Vec<bool>>()
        };
        (0..STEPS).map(step).collect::<Vec<_>>()
    });
    assert_eq!(releases[0], releases[1]);
    let near = |hits: usize, trials: usize, rate: f64, what: &str| {
        let deviation = (hits as f64 - trials as f64 * rate) / (trials as f64 * rate * (1.0 - rate)).sqrt();
        assert!(deviation.abs() < 6.5, "{what}: {deviation:.1} standard deviations off");
    };
    let chosen = &releases[0];
    for i in 0..COUNT {
        near(chosen.iter().filter(|step| step[i]).count(), STEPS, RATE, "frequency");
        // The record at the same place of the other rank, which ranks with the same seed would draw together.
        let other = (i + COUNT / 2) % COUNT;
        near(chosen.iter().filter(|step| step[i] && step[other]).count(), STEPS, RATE * RATE, "pairs");
        let next = (i + 1) % COUNT;
        near(chosen.iter().filter(|step| step[i] && step[next]).count(), STEPS, RATE * RATE, "neighbours");
        let again = chosen.windows(2).filter(|pair| pair[0][i] && pair[1][i]).count();
        near(again, STEPS - 1, RATE * RATE, "steps in a row");
    }
}

/// A plan with rotating groups is resumed with another number of ranks: every slot stays in its group.
#[test]
fn a_slot_stays_in_its_group_on_any_number_of_ranks() {
    let sampling = Sampling::Rotating { rate: rate(1.0), groups: 3 };
    let one_hot = |i| (0..RECORDS).map(|j| if i == j { 1.0 } else { 0.0 }).collect();
    let records: Vec<Vec<f32>> = (0..RECORDS).map(one_hot).collect();
    let rule = ClipRule::flat(ClipNorm::new(1.0).unwrap()).unwrap();
    let folder = Folder::new("groups");
    let (ledger, terms) = (folder.file("ledger"), terms_of(sampling, &[1e-6]));
    let mut turn = 0;
    for size in [1, 2, 4] {
        let seen = on_ranks(size, |communicator| {
            let ranks = Ranks::among(communicator, RECORDS);
            let (gradients, randomness) = (share(&ranks, &records), Randomness::from_os().unwrap());
            let mut vault = match turn {
                0 => Vault::seal_among(&ranks, gradients, &terms, randomness, Some(&ledger)),
                _ => Vault::resume_among(&ranks, gradients, &terms, randomness, &ledger),
            }
            .unwrap();
            assert_eq!(vault.position(), turn);
            let step = |_| {
                let release = vault.round(|round| {
                    let sum = round.gradients(&[]).clipped_sum(&rule)?;
                    round.release(sum)
                });
                release.unwrap().unwrap().unwrap().into_inner()
            };
            let releases: Vec<Vec<f32>> = (0..4).map(step).collect();
            vault.close().unwrap();
            releases
        });
        for release in &seen[0] {
            let chosen = release.iter().enumerate().filter(|(_, v)| **v > 0.5).map(|(i, _)| i);
            assert!(
                chosen.eq((0..RECORDS).filter(|i| *i as u64 % 3 == turn % 3)),
                "step {turn} on {size} ranks"
            );
            turn += 1;
        }
    }
}

/// How a rank takes part in a sum, and what it makes of a message of rank 0.
type ChangedSum = fn(&dyn Communicator, &mut [f64]) -> Result<(), String>;
type ChangedMessage = fn(&mut Vec<u8>);

/// A rank whose messages are changed.
struct Changed {
    rank: Arc<dyn Communicator>,
    sum: ChangedSum,
    message: ChangedMessage,
}

impl Communicator for Changed {
    fn rank(&self) -> usize {
        self.rank.rank()
    }

    fn size(&self) -> usize {
        self.rank.size()
    }

    fn broadcast(&self, numbers: &mut [f32]) -> Result<(), String> {
        self.rank.broadcast(numbers)
    }

    fn broadcast_bytes(&self, bytes: &mut Vec<u8>) -> Result<(), String> {
        self.rank.broadcast_bytes(bytes)?;
        (self.message)(bytes);
        Ok(())
    }

    fn sum(&self, values: &mut [f64]) -> Result<(), String> {
        (self.sum)(self.rank.as_ref(), values)
    }
}

/// What ranks 0 and 1 obtain if rank 1 changes its messages.
fn with_change(sum: ChangedSum, message: ChangedMessage) -> Vec<Result<(), String>> {
    let terms = terms(4, &[1.0], 1e-9, 3);
    let rule = ClipRule::flat(ClipNorm::new(1.0).unwrap()).unwrap();
    on_connected(ThreadRank::connected(2, Duration::from_secs(1)), |rank| {
        let rank = match rank.rank() {
            0 => rank,
            _ => Arc::new(Changed { rank, sum, message }) as Arc<dyn Communicator>,
        };
        let ranks = Ranks::among(rank, 4);
        let gradients = share(&ranks, &vec![vec![1.0, 0.0]; 4]);
        let mut vault = Vault::seal_among(&ranks, gradients, &terms, Randomness::seeded(1), None).unwrap();
        for _ in 0..3 {
            let taken = vault.round(|round| {
                let sum = round.gradients(&[]).clipped_sum(&rule)?;
                round.release(sum).map(drop)
            });
            taken.and_then(|taken| taken.unwrap()).map_err(|error| error.to_string())?;
        }
        Ok(())
    })
}

#[test]
fn a_rank_that_skips_ends_or_is_at_another_step_is_an_error_and_not_a_release() {
    let honest: ChangedSum = |rank, values| rank.sum(values);
    assert_eq!(with_change(honest, |_| {}), [Ok(()), Ok(())]);
    // All batches of this plan are empty. The last value is the number of the step.
    let skips_empty: ChangedSum = |rank, values| match values[..values.len() - 1].iter().all(|v| *v == 0.0) {
        true => Ok(()),
        false => rank.sum(values),
    };
    let error = with_change(skips_empty, |_| {}).remove(0).unwrap_err();
    assert!(error.contains("rank 0: no message from rank 1"), "{error}");
    let error = with_change(|_, _| Err("the disk is gone".to_owned()), |_| {}).remove(0).unwrap_err();
    assert!(error.contains("rank 1"), "{error}");
    let twice: ChangedSum = |rank, values| rank.sum(values).and_then(|()| rank.sum(values));
    let error = with_change(twice, |_| {}).remove(0).unwrap_err();
    assert_eq!(error, "the ranks are not all at step 2, so nothing was released");
    // Rank 1 hears of the step after the one that it has reached.
    let error = with_change(honest, |message| message[0] += 1).remove(1).unwrap_err();
    assert_eq!(error, "this rank is at step 1, and rank 0 is at step 2");
}

#[test]
fn records_that_are_not_the_share_of_a_rank_are_refused() {
    let terms = terms(10, &[1.0], 0.5, 3);
    let refused = on_ranks(2, |rank| {
        let ranks = Ranks::among(rank, 10);
        // All ten records on each rank would count every record twice.
        let gradients = rows(vec![vec![1.0]; 10]);
        let vault = Vault::seal_among(&ranks, gradients, &terms, Randomness::seeded(1), None);
        vault.err().map(|error| error.to_string())
    });
    for message in refused {
        assert!(message.unwrap().contains("the share of this rank is 5 records, but it was given 10"));
    }
}

/// The noise follows from the rule and the rounding of rank 0, so a rank with another rule or another rounding must not take part.
#[test]
fn a_rank_with_another_rule_or_rounding_is_an_error_and_not_a_release() {
    let terms = terms(10, &[1.0], 0.5, 3);
    let outcome = |norm: f64, rounding: f64| {
        on_connected(ThreadRank::connected(2, Duration::from_secs(5)), |rank| {
            let (norm, rounding) = if rank.rank() == 0 { (1.0, 0.0) } else { (norm, rounding) };
            let rule = ClipRule::flat(ClipNorm::new(norm).unwrap()).unwrap();
            let ranks = Ranks::among(rank, 10);
            let gradients = Rows { rounding, ..share(&ranks, &vec![vec![1.0]; 10]) };
            let randomness = Randomness::from_os().unwrap();
            let mut vault = Vault::seal_among(&ranks, gradients, &terms, randomness, None).unwrap();
            let taken = vault.round(|round| {
                let sum = round.gradients(&[]).clipped_sum(&rule)?;
                round.release(sum).map(drop)
            });
            taken.unwrap().unwrap().map_err(|error| error.to_string())
        })
    };
    assert_eq!(outcome(1.0, 0.0), [Ok(()), Ok(())]);
    for (norm, rounding) in [(1000.0, 0.0), (1.0, 0.01)] {
        let outcomes = outcome(norm, rounding);
        assert!(outcomes[0].is_err(), "rank 0 releases nothing");
        assert!(
            outcomes[1].as_ref().unwrap_err().contains("rank 1 clips or rounds gradients in a different way")
        );
    }
}
