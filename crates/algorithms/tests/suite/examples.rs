//! Examples from the papers about the bias of clipping and normalising.

use sordino_accounting::ClipNorm;
use sordino_algorithms::RunFacts;

use crate::{
    toy_quadratic::{Point, facts_for, spring},
    transcript::{AFTER_MARGIN, RATE, Run},
};

/// The slope of a parabola that goes on as a straight line from where it is as steep as 2, in the first coordinate.
fn bounded_spring(record: &[f32; 2], at: &Point) -> Point {
    [(at[0] - record[0]).clamp(-2.0, 2.0), 0.0]
}

/// Appendix B.1 of DiceSGD with `C = 1`, so that `C' = 2`: records at -1, -1 and 2, whose gradients add up to 0 at `x = 0`.
///
/// The paper has clipped descent end at `C' / (C' + C)`, which is wrong: 2/3 here, where clipped gradients are 1, 1 and -1. They add
/// up to 0 where `C' (x + 1) = C`, which is `x = C / C' - 1`, and -1/2 here. (Nor is the bias always 1/2 or more: `C = 10` has 1/11.)
#[test]
fn error_feedback_removes_the_bias_of_clipping_where_its_clipping_norms_cover_the_gradients() {
    // Each three times, so that the three groups of a window of 2 are equal.
    let records: Vec<[f32; 2]> = [-1.0, -1.0, 2.0].into_iter().flat_map(|x| [[x, 0.0]; 3]).collect();
    let end = |text: &str, rate: f64| {
        let facts = facts_for(9, rate, 1000);
        let run = Run::new(text, &facts, &records, bounded_spring, RATE);
        f64::from(run.points[999][0])
    };
    let biased = |threshold: f64| AFTER_MARGIN * threshold / 2.0 - 1.0;
    assert!((biased(1.0) + 0.5).abs() < 1e-3);
    for (text, rate, expected) in [
        ("none", 1.0, 0.0),
        ("dp-sgd", 1.0, biased(1.0)),
        (r#"{"type":"dice","window":2,"residual_clip":1.5}"#, 1.0 / 3.0, 0.0),
        (r#"{"type":"dice","window":2,"residual_clip":0.5}"#, 1.0 / 3.0, biased(1.5)),
        (r#"{"type":"dice-two-release","residual_clip":1.5}"#, 1.0, 0.0),
        (r#"{"type":"dice-two-release","residual_clip":0.5}"#, 1.0, biased(1.5)),
        ("dice-published", 1.0, 0.0),
    ] {
        let found = end(text, rate);
        assert!((found - expected).abs() < 1e-4, "{text} ends at {found} where {expected} is expected");
    }
}

/// Section 3.1 of DiceSGD: at a fixed point the gradient is 0 and the clipped error equals the mean clipped gradient, so `C_2` must be at least its
/// length. `C_2 >= C_1` is enough for every problem. In the example above that length is 1/3 at the solution, and with a smaller `C_2` the
/// error grows without bound and the model ends where the mean clipped gradient is `C_2`: `(2 (x + 1) - 1) / 3 = C_2`.
#[test]
fn error_feedback_as_published_ends_elsewhere_where_its_clipping_norm_is_too_small() {
    let records = [-1.0, -1.0, 2.0].map(|x| [x, 0.0]);
    let end = |second: f64| {
        let text = format!(r#"{{"type":"dice-published","feedback_clip":{second}}}"#);
        let run = Run::new(&text, &facts_for(3, 1.0, 1000), &records, bounded_spring, RATE);
        f64::from(run.points[999][0])
    };
    for second in [0.4, 1.0, 3.0] {
        let found = end(second);
        assert!(found.abs() < 1e-4, "C_2 = {second} ends at {found}");
    }
    for second in [0.05, 0.2, 0.3] {
        let (found, expected) = (end(second), (3.0 * second + AFTER_MARGIN) / 2.0 - 1.0);
        assert!((found - expected).abs() < 1e-4, "C_2 = {second} ends at {found}, not at {expected}");
        assert!(found < -0.04, "C_2 = {second} ends at {found}");
    }
}

/// Example 3.1 of DP-NSGD: a third of gradients is `s + t`, two thirds are `s - t / 2`. `A` is the mean gradient `s` times the mean
/// of what is released.
///
/// The paper: `A < 0` for `s <= t^2 / (10 r)`. With its formula that holds for `t < 2.62 r` (the root of `u^2 + 5 u = 20`), so under
/// `r > t`, which its theorem requires, but not for every `r`: the last case.
#[test]
fn normalised_steps_can_ascend_where_clipped_ones_descend_as_in_example_3_1() {
    for (s, t, r, ascends) in [
        (0.02, 1.0, 1.0, true),
        (0.1, 1.0, 1.0, true),
        (0.13, 1.0, 1.0, true),
        (0.2, 1.0, 1.0, false),
        (0.04, 1.0, 2.5, true),
        (0.48, 1.0, 0.1, false),
    ] {
        let facts = RunFacts { max_grad_norm: ClipNorm::new(2.0).unwrap(), ..facts_for(3, 1.0, 1) };
        let records = [-s - t, t / 2.0 - s, t / 2.0 - s].map(|x| [x as f32, 0.0]);
        // One step with the rate 1 from 0.
        let product = |text: &str| -s * f64::from(Run::new(text, &facts, &records, spring, 1.0).points[0][0]);
        let formula = (s.powi(3) + (3.0 * r + t / 2.0) * s * s - t * t * s / 2.0)
            / (3.0 * (r + t + s) * (r + t / 2.0 - s));
        // The rule has C = 2 in place of the paper's 1.
        let normalised = product(&format!(r#"{{"type":"dp-nsgd","regulariser":{r}}}"#)) / 2.0;
        assert!((normalised - formula).abs() < 1e-6, "{s} {t} {r}: {normalised}, {formula}");
        assert_eq!(normalised < 0.0, ascends, "{s} {t} {r}: {normalised}");
        let printed = s <= t * t / (10.0 * r);
        assert!(!printed || ascends || t > 2.62 * r, "{s} {t} {r}");
        let clipped = product("dp-sgd");
        assert!((clipped - s * s).abs() < 1e-6 && clipped > 0.0, "{s} {t} {r}: {clipped}");
    }
}
