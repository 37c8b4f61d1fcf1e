//! Every algorithm follows its pseudocode, transcribed from the formulas of the papers (and of `docs/algorithms.md` for Sordino's own
//! forms), on the batches that the vault has drawn.

use sordino_accounting::{ClipNorm, Entry, NoiseMultiplier, Plan};
use sordino_algorithms::{Algorithm, NoiseSource, RunFacts};
use sordino_optim::{Optimizer, OptimizerConfig};
use sordino_privacy::Terms;

use crate::{
    toy_quadratic::{QUIET, config, cubic, quiet, quiet_plan},
    transcript::{
        AFTER_MARGIN, Batch, RATE, Run, STEPS, Vector, clip, clipped, facts, gradient, norm, normalise, plus,
        records, run, scaled, sum,
    },
};

#[test]
fn clipped_and_normalised_sums_are_those_of_the_papers() {
    let facts = facts(0.6);
    let per_batch = 1.0 / facts.expected_batch_size;
    for name in ["dp-sgd", "noise-decay-zcdp", "noise-decay-tcdp"] {
        run(name, &facts).follows(name, |draw, x, _| scaled(per_batch, clipped(&draw(), x, 1.0)));
    }
    run("none", &facts).follows("none", |draw, x, _| {
        scaled(per_batch, sum(draw().into_iter().map(|record| gradient(record, x))))
    });
    for (text, r) in
        [("auto-clip", 0.01), ("dp-nsgd", 0.01), (r#"{"type":"dp-nsgd","regulariser":0.7}"#, 0.7)]
    {
        run(text, &facts).follows(text, |draw, x, _| {
            scaled(per_batch, sum(draw().into_iter().map(|record| normalise(gradient(record, x), 1.0, r))))
        });
    }
    // Equation 12 of Du et al.: C_t = C_0 rho_c^(-t / T), t = 1 .. T.
    run(r#"{"type":"dynamic","clip_decay":5}"#, &facts).follows("dynamic", |draw, x, step| {
        let threshold = 5.0_f64.powf(-(step as f64 + 1.0) / STEPS as f64);
        scaled(per_batch, clipped(&draw(), x, threshold))
    });
}

#[test]
fn quantiles_are_followed_as_in_andrew_et_al() {
    let facts = facts(0.6);
    let (batch_size, mut threshold) = (facts.expected_batch_size, 1.0_f64);
    let text = r#"{"type":"quantile","quantile":0.8,"rate":0.3,"unit_steps":false}"#;
    run(text, &facts).follows("quantile", |draw, x, _| {
        let batch = draw();
        let v = scaled(1.0 / batch_size, clipped(&batch, x, threshold));
        let signs =
            batch.iter().map(|&record| if norm(gradient(record, x)) <= threshold { 0.5 } else { -0.5 });
        let below = 0.5 + signs.sum::<f64>() / batch_size;
        threshold *= (-0.3 * (below - 0.8)).exp();
        v
    });
    assert!((threshold - 1.0).abs() > 0.2, "{threshold}");
}

/// Algorithm 2 of DC-SGD, with the smaller of the two indices, where the paper has the larger.
fn histogram(batch: &[Vector], x: Vector, range: f64, bins: usize) -> Vec<f64> {
    let mut counts = vec![0.0; bins];
    for &record in batch {
        let index = (bins as f64 * norm(gradient(record, x)) / range).floor() as usize;
        counts[index.min(bins - 1)] += 1.0;
    }
    counts
}

/// Every batch has all records, and their number is a prime, so that no count lies exactly on a limit.
#[test]
fn clipping_norms_of_dc_sgd_come_from_histograms_as_in_algorithms_3_and_4() {
    let facts = facts(1.0);
    let batch_size = facts.expected_batch_size;
    let (mut threshold, mut range) = (1.0, 1.0);
    let text = r#"{"type":"dc-sgd-p","percentile":0.43,"bins":16,"unit_steps":false}"#;
    run(text, &facts).follows("dc-sgd-p", |draw, x, _| {
        let batch = draw();
        let v = scaled(1.0 / batch_size, clipped(&batch, x, threshold));
        let counts = histogram(&batch, x, range, 16);
        let mut reached = 0.0;
        for (bin, count) in counts.iter().enumerate() {
            reached += count;
            threshold = (bin as f64 + 0.5) * range / 16.0;
            if reached >= 0.43 * counts.iter().sum::<f64>() {
                break;
            }
        }
        range = 2.0 * threshold;
        v
    });
    // The range begins at b clipping norms. From 0.02 it must grow, from 60 both must fall.
    let mut ranges = Vec::new();
    for start in [0.02, 1.0, 60.0] {
        let facts = RunFacts { max_grad_norm: ClipNorm::new(start).unwrap(), ..facts };
        let (mut threshold, mut range) = (start, 20.0 * start);
        run(r#"{"type":"dc-sgd-e","unit_steps":false}"#, &facts).follows("dc-sgd-e", |draw, x, _| {
            let batch = draw();
            let v = scaled(1.0 / batch_size, clipped(&batch, x, threshold));
            let counts = histogram(&batch, x, range, 20);
            let total: f64 = counts.iter().sum();
            // Equation 4, with the multiplier 8 of the facts and two parameters.
            let error = |c: f64| {
                let variance = (8.0 * c / batch_size).powi(2) * 2.0;
                let bias = |(bin, count): (usize, &f64)| {
                    count * ((bin as f64 + 0.5) * range / 20.0 - c).max(0.0).powi(2) / total
                };
                variance + counts.iter().enumerate().map(bias).sum::<f64>()
            };
            loop {
                let mut best = 1;
                for i in 2..=20 {
                    if error(f64::from(i) * threshold / 10.0) < error(f64::from(best) * threshold / 10.0) {
                        best = i;
                    }
                }
                threshold *= f64::from(best) / 10.0;
                if best != 1 && best != 20 {
                    break;
                }
            }
            if counts[19] >= 0.5 * total {
                range *= 2.0;
            } else if counts[10..].iter().sum::<f64>() <= total / 20.0 {
                range *= 0.5;
            }
            v
        });
        ranges.push(range / start);
    }
    assert!(ranges[0] > 40.0 && ranges[1] < 20.0 && ranges[2] < 1.0, "{ranges:?}");
}

#[test]
fn clipping_norms_of_dc_sgd_do_not_move_where_the_histogram_has_too_much_noise() {
    let facts = facts(1.0);
    let multipliers = [QUIET, 20.0].map(|z| NoiseMultiplier::new(z).unwrap());
    // 37 records are fewer than 3 * 20 * sqrt(20).
    let entry = Entry::new(facts.sampling, multipliers.to_vec(), facts.steps).unwrap();
    let plan = Plan::new(vec![entry]);
    let terms = Terms::unprotected(plan.clone(), facts.records, "a test");
    for name in ["dc-sgd-p", "dc-sgd-e"] {
        let factor = (RATE / facts.expected_batch_size) as f32;
        let run = Run::with(name, &facts, &plan, &terms, &records(), cubic, |release, point| {
            *point = [point[0] - factor * release[0], point[1] - factor * release[1]];
        });
        run.follows(name, |draw, x, _| scaled(1.0 / facts.expected_batch_size, clipped(&draw(), x, 1.0)));
    }
}

/// What clipping to 1 leaves of a gradient, itself clipped.
fn residual(g: Vector, threshold: f64) -> Vector {
    clip(plus(g, -1.0, clip(g, 1.0)), threshold)
}

fn residuals(batch: &[Vector], x: Vector, threshold: f64) -> Vector {
    sum(batch.iter().map(|&record| residual(gradient(record, x), threshold)))
}

#[test]
fn sound_error_feedback_is_that_of_dice_c_and_dice_a() {
    for (window, rate) in [(1, 0.4), (2, 0.3), (4, 0.2)] {
        let facts = facts(rate);
        let text = format!(r#"{{"type":"dice","window":{window},"residual_clip":1.3}}"#);
        let mut left: Vec<Vector> = Vec::new();
        run(&text, &facts).follows(&text, |draw, x, step| {
            let batch = draw();
            left.push(residuals(&batch, x, 1.3));
            let fed = sum((1..=window).filter(|l| *l <= step).map(|l| left[step - l]));
            let y = plus(clipped(&batch, x, 1.0), 1.0 / window as f64, fed);
            scaled(1.0 / facts.expected_batch_size, y)
        });
    }
    let facts = facts(0.6);
    let per_batch = 1.0 / facts.expected_batch_size;
    for feedback in [0.3, 5.0] {
        let text = format!(r#"{{"type":"dice-two-release","residual_clip":1.3,"feedback_clip":{feedback}}}"#);
        let mut e: Vector = [0.0; 2];
        run(&text, &facts).follows(&text, |draw, x, _| {
            let batch = draw();
            // The error consists of releases: it is clipped without a margin for rounding.
            let fed = scaled((feedback / norm(e).max(1e-300)).min(1.0), e);
            e = plus(plus(e, per_batch, residuals(&batch, x, 1.3)), -1.0, fed);
            plus(fed, per_batch, clipped(&batch, x, 1.0))
        });
    }
}

/// Lines 5 and 7 of Algorithms 2 and 4 of DiceSGD.
fn dice_as_published(
    facts: &RunFacts,
    bound: fn(Vector, f64) -> Vector,
    [first, second]: [f64; 2],
) -> impl FnMut(&mut dyn FnMut() -> Batch, Vector, usize) -> Vector {
    let per_batch = 1.0 / facts.expected_batch_size;
    let mut e = [0.0; 2];
    move |draw, x, _| {
        let gradients: Vec<Vector> = draw().into_iter().map(|record| gradient(record, x)).collect();
        let mean = scaled(per_batch, sum(gradients.iter().map(|&g| bound(g, first))));
        // The error is disclosed, so it is clipped without a margin for rounding.
        let v = plus(mean, 1.0, bound(e, second / AFTER_MARGIN));
        e = plus(plus(e, per_batch, sum(gradients)), -1.0, v);
        v
    }
}

#[test]
fn published_error_feedback_is_that_of_algorithms_2_and_4() {
    let facts = facts(0.6);
    let automatic: fn(Vector, f64) -> Vector = |g, threshold| normalise(g, threshold, 0.0);
    let most = 1.0 / facts.expected_batch_size;
    for (options, norms) in [
        (r#""thresholds":"experiments""#, [1.0, 1.0]),
        (r#""feedback_clip":3"#, [1.0, 3.0]),
        (r#""feedback_clip":0.2"#, [1.0, 0.2]),
        (r#""thresholds":"theorem""#, [most, most]),
        (r#""thresholds":"theorem","gradient_clip":0.02"#, [0.02, 0.02]),
        (r#""thresholds":"theorem","gradient_clip":0.01,"feedback_clip":0.04"#, [0.01, 0.04]),
    ] {
        for (flag, bound) in [("false", clip as fn(Vector, f64) -> Vector), ("true", automatic)] {
            let text = format!(r#"{{"type":"dice-published",{options},"automatic":{flag}}}"#);
            run(&text, &facts).follows(&text, dice_as_published(&facts, bound, norms));
        }
    }
}

/// Read with `t` from 1, since from 0 it divides by 0, and with `epsilon_1` next to the square root, as in Adam, and not under it.
#[test]
fn published_error_feedback_with_adam_is_that_of_algorithm_3() {
    let facts = facts(0.6);
    let text = "dice-published";
    let plan =
        config(text).plan(&facts, NoiseSource::Multiplier(NoiseMultiplier::new(1.0).unwrap())).unwrap();
    let config = OptimizerConfig::named("adam").unwrap();
    let mut adam = Optimizer::new(&config, std::iter::once(0..2).collect(), 2).unwrap();
    let per_batch = (1.0 / facts.expected_batch_size) as f32;
    let run = Run::with(
        text,
        &facts,
        &quiet_plan(&plan),
        &quiet(&plan, facts.records),
        &records(),
        cubic,
        |release, point| {
            adam.step(release.scaled(per_batch), RATE, point);
        },
    );
    let mut v = dice_as_published(&facts, clip, [1.0, 1.0]);
    let (mut first, mut second) = ([0.0; 2], [0.0; 2]);
    run.follows("dice-published with adam", |draw, x, step| {
        let v = v(draw, x, step);
        first = plus(scaled(0.9, first), 0.1, v);
        second = plus(scaled(0.999, second), 0.001, [v[0] * v[0], v[1] * v[1]]);
        let t = step as i32 + 1;
        let unbiased = |i: usize| (second[i] / (1.0 - 0.999_f64.powi(t))).sqrt() + 1e-8;
        let first = scaled(1.0 / (1.0 - 0.9_f64.powi(t)), first);
        [first[0] / unbiased(0), first[1] / unbiased(1)]
    });
}
