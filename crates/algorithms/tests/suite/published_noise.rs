//! The noise of the papers, as plans and steps use it.

use sordino_accounting::{Accountant, Delta, Epsilon, NoiseMultiplier, Steps, calibrate::Budget};
use sordino_algorithms::{Algorithm, NoiseSource, RunFacts};
use sordino_privacy::Randomness;

use crate::toy_quadratic::{Priced, Scratch, Training, config, facts_for, spring, toy};

/// The setting of the DP-C4 paper on Mushroom.
fn mushroom() -> RunFacts {
    let claim = Budget { epsilon: Epsilon::new(1.0).unwrap(), delta: Delta::new(1e-5).unwrap() };
    RunFacts { steps: Steps::new(1269).unwrap(), claim: Some(claim), ..facts_for(6499, 256.0 / 6499.0, 1269) }
}

fn unused() -> NoiseSource {
    NoiseSource::Multiplier(NoiseMultiplier::new(1.0).unwrap())
}

/// The multipliers of the first entry of a plan with this number of releases.
fn multipliers(text: &str, facts: &RunFacts, releases: usize) -> Vec<f64> {
    let plan = config(text).plan(facts, unused()).unwrap();
    let entry = plan.entries().iter().find(|entry| entry.releases().len() == releases).unwrap();
    entry.releases().iter().map(|z| z.get()).collect()
}

#[test]
fn dice_has_a_multiplier_of_46_65_on_mushroom() {
    let facts = mushroom();
    for text in ["dice-published", r#"{"type":"dice-published","automatic":true}"#] {
        let [z] = multipliers(text, &facts, 1)[..] else { panic!("one release") };
        assert!((z - 46.65).abs() < 0.005, "{z}");
    }
    // 349.2 sqrt(C_1^2 + C_2^2) / C_1.
    let [z] = multipliers(r#"{"type":"dice-published","noise":"dp-c4-paper"}"#, &facts, 1)[..] else {
        panic!("one release")
    };
    assert!((z / (349.2 * 2.0_f64.sqrt()) - 1.0).abs() < 1e-3, "{z}");
}

/// The multiplier of the paper, and the price of its plan by the exact accountant.
#[test]
fn the_noise_of_the_dp_c4_paper_is_sixty_five_times_the_exact_noise_on_mushroom() {
    let facts = mushroom();
    let claim = facts.claim.unwrap();
    let [z] = multipliers(r#"{"type":"dp-sgd","noise":"dp-c4-paper"}"#, &facts, 1)[..] else {
        panic!("one release")
    };
    let exact = config("dp-sgd").plan(&facts, NoiseSource::Budget(claim, Accountant::Pld)).unwrap();
    let ratio = z / exact.entries()[0].releases()[0].get();
    assert!((ratio - 65.0).abs() < 1.0, "{ratio}");
    for text in [
        r#"{"type":"dp-sgd","noise":"dp-c4-paper"}"#,
        r#"{"type":"dp-svrg","noise":"dp-c4-paper","anchor_batch":4096,"routine":1}"#,
        r#"{"type":"dp-svrg","noise":"dp-c4-paper","anchor_batch":4096,"routine":4}"#,
        r#"{"type":"dp-svrg","noise":"dp-c4-paper","anchor_batch":512,"update_probability":1,"routine":4}"#,
    ] {
        let plan = config(text).plan(&facts, unused()).unwrap();
        let proved = Accountant::Pld.price(&plan, claim.delta).unwrap().epsilon.get();
        assert!(proved < 0.1, "{text}: {proved}");
    }
}

#[test]
fn a_plan_has_the_noise_that_the_algorithm_states() {
    let facts = mushroom();
    for (text, releases) in [
        (r#"{"type":"dp-sgd","noise":"dp-c4-paper"}"#, 1),
        (r#"{"type":"dp-svrg","noise":"dp-c4-paper","routine":1}"#, 2),
        (r#"{"type":"dp-svrg","noise":"dp-c4-paper","routine":3}"#, 2),
        (r#"{"type":"dice-published","feedback_clip":0.3}"#, 1),
    ] {
        let stated = config(text).published_noise(&facts).unwrap();
        let stated: Vec<f64> = stated.iter().map(|noise| noise.noise_multiplier).collect();
        assert_eq!(multipliers(text, &facts, releases), stated[..releases], "{text}");
        if let [_, _, anchor] = stated[..] {
            assert_eq!(multipliers(text, &facts, 1), [anchor], "{text}");
        }
        assert!(config(text).noise_formula().is_some(), "{text}");
    }
    for text in ["dp-sgd", "dp-svrg", "dp-c4", "dynamic"] {
        assert!(config(text).noise_formula().is_none(), "{text}");
        assert!(config(text).published_noise(&facts).unwrap().is_empty(), "{text}");
    }
}

/// A record moves a later release by `C_1 + 2 B C_2`, in units of `C_1`.
#[test]
fn the_proved_shift_of_dice_depends_on_its_second_clipping_norm() {
    let facts = mushroom();
    let reach = |text: &str| {
        let config = config(text);
        let plan = config.plan(&facts, unused()).unwrap();
        let (plan, accountant) = config.provable_plan(&facts, &plan).unwrap();
        let sordino_accounting::Sampling::Stateful { later_shift, .. } = plan.entries()[0].sampling() else {
            panic!("a stateful plan")
        };
        (later_shift, accountant.price(&plan, facts.claim.unwrap().delta).unwrap().epsilon.get())
    };
    let (equal, small, large) = (
        reach("dice-published"),
        reach(r#"{"type":"dice-published","feedback_clip":0.25}"#),
        reach(r#"{"type":"dice-published","feedback_clip":3}"#),
    );
    assert_eq!((equal.0, small.0, large.0), (513.0, 129.0, 1537.0));
    assert!(small.1 < equal.1, "{small:?} {equal:?}");
    // The theorem's thresholds, C = 1 and B = 256, with C_1 below C_2.
    let options = r#""thresholds":"theorem","gradient_clip":0.001,"feedback_clip":0.003"#;
    let (theorem, _) = reach(&format!(r#"{{"type":"dice-published",{options}}}"#));
    assert!((theorem - (1.0 + 2.0 * 256.0 * 3.0)).abs() < 1e-6, "{theorem}");
}

#[test]
fn thresholds_outside_the_theorem_of_dice_are_refused() {
    let facts = mushroom();
    for (options, part) in [
        (r#""thresholds":"theorem","feedback_clip":0.005"#, "C_1 <= C_2 <= C / B"),
        (r#""thresholds":"theorem","feedback_clip":0.001"#, "C_2 = 0.001"),
        (r#""thresholds":"theorem","gradient_clip":0.003,"feedback_clip":0.002"#, "C_1 = 0.003"),
        (r#""thresholds":"theorem","gradient_clip":0.5"#, "0.00390625"),
    ] {
        let config = config(&format!(r#"{{"type":"dice-published",{options}}}"#));
        let message = config.plan(&facts, unused()).unwrap_err().to_string();
        assert!(message.contains(part), "{options}: {message}");
    }
    let refused = config(r#"{"type":"dice-published","gradient_clip":0.5}"#).check().unwrap_err().to_string();
    assert!(refused.contains("needs thresholds=theorem"), "{refused}");
    let permitted = r#""thresholds":"theorem","gradient_clip":0.001,"feedback_clip":0.00390625"#;
    assert!(config(&format!(r#"{{"type":"dice-published",{permitted}}}"#)).plan(&facts, unused()).is_ok());
}

#[test]
fn dice_notes_what_its_theorem_does_not_cover() {
    let notes = |facts: &RunFacts| {
        let config = config("dice-published");
        config.notes(facts, &config.plan(facts, unused()).unwrap())
    };
    assert!(notes(&mushroom()).is_empty());
    let large = notes(&RunFacts { claim: mushroom().claim, ..facts_for(1000, 0.25, 1000) });
    assert!(large.len() == 1 && large[0].contains("B / N is 0.250"), "{large:?}");
    let quiet = notes(&RunFacts { claim: mushroom().claim, ..facts_for(100_000, 0.001, 10) });
    assert!(quiet.len() == 1 && quiet[0].contains("multiplier above 8"), "{quiet:?}");
}

/// The releases of a run whose model stays at `[0, 0]` for four steps and then at `[5, 0]`, on 16 records in every batch.
fn releases(text: &str, records: [f32; 2], steps: u64) -> (Vec<[f64; 2]>, RunFacts) {
    let facts = facts_for(16, 1.0, steps);
    let ledger = Scratch::new(&format!("variance-{}", text.len()));
    let config = config(text);
    let plan = Priced::unprotected(config.plan(&facts, unused()).unwrap(), facts.records);
    let data = toy(vec![records; 16], spring);
    let mut training = Training::new(&config, &facts, &plan, data, Randomness::seeded(5), &ledger);
    training.vault.charge_by(u64::MAX);
    let mut found = Vec::new();
    while let Some(release) = training.release() {
        found.extend(release.map(|release| [f64::from(release[0]), f64::from(release[1])]));
        training.point = if found.len() < 4 { [0.0; 2] } else { [5.0, 0.0] };
    }
    (found.split_off(4), facts)
}

/// With `n` values the estimated variance has a relative standard deviation of `sqrt(2 / n)`. A difference of
/// more than five of them occurs by chance for fewer than one seed in 100,000 in each run. The seed is fixed.
#[test]
fn the_variance_of_a_published_step_is_that_of_its_formula() {
    let anchored = |name: &str, routine: u8, p: f64| {
        format!(
            r#"{{"type":"{name}","difference_scale":1000,"anchor_scale":1000,"anchor_batch":16,"update_probability":{p},"routine":{routine}}}"#
        )
    };
    let c4 = |p: f64, routine: u8| match routine {
        2 => (1.0 + p.sqrt()).powi(2),
        _ => ((1.0 - p).sqrt() + p.sqrt()).powi(2),
    };
    // sigma^2 = 4 T (2 ln(1/delta) + epsilon) / (|S| epsilon)^2, with T = 3000, epsilon = 2 and 16 records in a batch; C = 1.
    let unit = 4.0 * 3000.0 * (2.0 * 1e5_f64.ln() + 2.0) / (16.0_f64 * 2.0).powi(2);
    // Regular anchors move once, in the first four steps.
    let p = 1.0 / 4000.0;
    for (text, at, expected) in [
        // The gradients are 0 at the point of all records, so there is no error to feed back.
        ("dice-published".to_owned(), [5.0, 0.0], 96.0 * 3000.0 * 1e5_f64.ln() / (16.0_f64 * 2.0).powi(2)),
        (
            r#"{"type":"dice-published","automatic":true}"#.to_owned(),
            [5.0, 0.0],
            96.0 * 3000.0 * 1e5_f64.ln() / (16.0_f64 * 2.0).powi(2),
        ),
        (r#"{"type":"dice-published","noise":"dp-c4-paper"}"#.to_owned(), [5.0, 0.0], 2.0 * unit),
        (r#"{"type":"dp-sgd","noise":"dp-c4-paper"}"#.to_owned(), [5.0, 0.0], unit),
        (anchored("dp-c4-published", 2, p), [40.0, 30.0], c4(p, 2) * unit),
        (anchored("dp-c4-published", 4, p), [40.0, 30.0], c4(p, 4) * unit),
        (anchored("dp-c4-plus-published", 4, p), [40.0, 30.0], c4(p, 4) * unit),
    ] {
        let (found, facts) = releases(&text, at, 3000);
        let count = found.len() as f64;
        let variance = |i: usize| {
            let mean = found.iter().map(|release| release[i]).sum::<f64>() / count;
            found.iter().map(|release| (release[i] - mean).powi(2)).sum::<f64>() / count
        };
        // On means of 16 records.
        let variance = 0.5 * (variance(0) + variance(1)) / facts.expected_batch_size.powi(2);
        let limit = 5.0 * (2.0 / (2.0 * count)).sqrt();
        assert!((variance / expected - 1.0).abs() < limit, "{text}: {variance}, not {expected}");
    }
}
