//! Variance reduction follows its pseudocode, with all four routines that move an anchor.

use rand_chacha::{
    ChaCha20Rng,
    rand_core::{Rng, SeedableRng},
};

use sordino_accounting::Sampling;

use crate::{
    toy_quadratic::{config, terms},
    transcript::{
        Batch, RECORDS, STEPS, Vector, clip, clipped, facts, gradient, norm, plus, run, scaled, sum,
    },
};

/// The state of a step of variance reduction.
struct Anchored {
    x: Vector,
    /// The anchor, and the batch over which its gradient is taken.
    w: Vector,
    anchor_batch: Batch,
    /// Whether the anchor has just moved here.
    fresh: bool,
    /// The batch of the differences; empty where `x = w`, where there are no differences.
    batch: Batch,
    /// The fraction of the run that is complete after this step.
    part: f64,
}

/// Anchors that move with probability or frequency 1/4 by one of the four routines of the DP-C4 paper.
fn anchored(
    routine: u8,
    mut estimate: impl FnMut(&Anchored) -> Vector,
) -> impl FnMut(&mut dyn FnMut() -> Batch, Vector, usize) -> Vector {
    let (mut random, mut before, mut state) = (ChaCha20Rng::from_seed([0; 32]), [0.0; 2], None::<Anchored>);
    move |draw, x, k| {
        let w = match &state {
            None => x,
            Some(state) => {
                // What line 13 decided at the end of step k - 1.
                let coin = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
                let moves = if routine % 2 == 1 { coin < 0.25 } else { (k - 1) % 4 == 1 };
                let there = if routine <= 2 { before } else { x };
                if moves { there } else { state.w }
            }
        };
        let fresh = state.as_ref().is_none_or(|state| state.w != w);
        let anchor_batch = match state.take() {
            Some(state) if !fresh => state.anchor_batch,
            _ => draw(),
        };
        let batch = if x == w { Vec::new() } else { draw() };
        before = x;
        let part = (k + 1) as f64 / STEPS as f64;
        estimate(state.insert(Anchored { x, w, anchor_batch, fresh, batch, part }))
    }
}

/// Batches of 0.5 and anchors of 0.8 of all records.
fn with_anchors(name: &str, routine: u8, scales: &str, estimate: impl FnMut(&Anchored) -> Vector) {
    let options = r#""anchor_batch":30,"update_probability":0.25,"routine":"#;
    let text = format!(r#"{{"type":"{name}",{scales}{options}{routine}}}"#);
    run(&text, &facts(0.5)).follows(&text, anchored(routine, estimate));
}

const BATCH: f64 = 0.5 * RECORDS as f64;
const ANCHOR_BATCH: f64 = 30.0;

/// `C_1 = 0.8` and `C_2 = 1.7`.
const SCALES: &str = r#""difference_scale":0.8,"anchor_scale":1.7,"#;

fn plain(batch: &[Vector], x: Vector) -> Vector {
    sum(batch.iter().map(|&record| gradient(record, x)))
}

impl Anchored {
    /// The gradients of the batch, less those at the anchor.
    fn differences(&self) -> impl Iterator<Item = Vector> {
        self.batch.iter().map(|&record| plus(gradient(record, self.x), -1.0, gradient(record, self.w)))
    }

    /// `|grad f(w)|`
    fn length(&self) -> f64 {
        norm(plain(&self.anchor_batch, self.w)) / ANCHOR_BATCH
    }

    /// Lines 8, 9 and 11 of Algorithms 3 and 4.
    fn coupled(&self, c_1k: f64, c_2k: f64) -> Vector {
        let coupled = sum(self.differences().map(|difference| clip(difference, c_1k)));
        let anchor = clipped(&self.anchor_batch, self.w, c_2k);
        plus(scaled(1.0 / BATCH, coupled), 1.0 / ANCHOR_BATCH, anchor)
    }
}

#[test]
fn variance_reduction_is_that_of_algorithm_2_of_the_dp_c4_paper() {
    for routine in 1..=4 {
        with_anchors("dp-svrg", routine, "", |step| {
            let (here, there) = (clipped(&step.batch, step.x, 1.0), clipped(&step.batch, step.w, 1.0));
            let anchor = scaled(1.0 / ANCHOR_BATCH, clipped(&step.anchor_batch, step.w, 1.0));
            plus(anchor, 1.0 / BATCH, plus(here, -1.0, there))
        });
    }
}

#[test]
fn published_coupled_clipping_is_that_of_algorithms_3_and_4() {
    for routine in 1..=4 {
        with_anchors("dp-c4-published", routine, SCALES, |step| {
            let c_1k = (0.8 * norm(sum(step.differences())) / BATCH).min(1.0);
            step.coupled(c_1k, (1.7 * step.length()).min(1.0))
        });
        // Line 3: C_2 |grad f(w^-1)| = C.
        let mut wanted = 1.0_f64;
        with_anchors("dp-c4-plus-published", routine, SCALES, |step| {
            let c_2k = wanted.min(1.0);
            wanted = 1.7 * step.length();
            step.coupled((0.8 * norm(plus(step.x, -1.0, step.w))).min(1.0), c_2k)
        });
    }
}

#[test]
fn sound_coupled_clipping_takes_its_clipping_norms_from_releases() {
    for routine in 1..=4 {
        let (mut c_2j, mut next, mut thresholds) = (1.0_f64, 1.0_f64, Vec::new());
        with_anchors("dp-c4", routine, SCALES, |step| {
            if step.fresh {
                c_2j = next;
                thresholds.push(c_2j);
                // Without noise there is nothing to subtract from the length.
                let released = norm(clipped(&step.anchor_batch, step.w, c_2j)) / ANCHOR_BATCH;
                next = (1.7 * released).clamp(1e-3, 1.0);
            }
            step.coupled((0.8 * norm(plus(step.x, -1.0, step.w))).clamp(1e-3, 1.0), c_2j)
        });
        assert!(thresholds.len() > 2 && thresholds.iter().any(|c| *c < 1.0), "{thresholds:?}");
    }
}

/// DP-SVRG^TD of appendix B, with `C_k` from 1 down to 1/10. An anchor keeps the clipping norm of its own step.
#[test]
fn time_decayed_variance_reduction_clips_to_its_schedule() {
    for routine in [3, 4] {
        let mut anchor = [0.0; 2];
        with_anchors("dp-svrg", routine, r#""clip_schedule":"0:1/1:0.1","#, |step| {
            let c_k = 0.1_f64.powf(step.part);
            if step.fresh {
                anchor = scaled(1.0 / ANCHOR_BATCH, clipped(&step.anchor_batch, step.w, c_k));
            }
            let (here, there) = (clipped(&step.batch, step.x, c_k), clipped(&step.batch, step.w, c_k));
            plus(anchor, 1.0 / BATCH, plus(here, -1.0, there))
        });
    }
}

/// `C_2` grows from 0.2 to 2 along the run. An anchor keeps the `C_2` of its own step.
#[test]
fn a_growing_anchor_scale_takes_effect_when_the_anchor_moves() {
    const GROWING: &str = r#""difference_scale":0.8,"anchor_scale":"0:0.2/1:2","#;
    let scale = |step: &Anchored| 0.2 * 10.0_f64.powf(step.part);
    for routine in [3, 4] {
        let (mut c_2k, mut used) = (0.0, Vec::new());
        with_anchors("dp-c4-published", routine, GROWING, |step| {
            if step.fresh {
                c_2k = (scale(step) * step.length()).min(1.0);
                used.push(scale(step));
            }
            step.coupled((0.8 * norm(sum(step.differences())) / BATCH).min(1.0), c_2k)
        });
        assert!(used.windows(2).all(|pair| pair[0] < pair[1]) && used.len() > 2, "{used:?}");
        let mut before = None;
        let (mut c_2k, mut later) = (0.0, 0.0);
        with_anchors("dp-c4-plus-published", routine, GROWING, |step| {
            c_2k = later;
            if step.fresh {
                c_2k = before.map_or(1.0, |length: f64| (scale(step) * length).min(1.0));
                later = (scale(step) * step.length()).min(1.0);
                before = Some(step.length());
            }
            step.coupled((0.8 * norm(plus(step.x, -1.0, step.w))).min(1.0), c_2k)
        });
        let mut released = None;
        with_anchors("dp-c4", routine, GROWING, |step| {
            if step.fresh {
                c_2k = released.map_or(1.0, |length: f64| (scale(step) * length).clamp(1e-3, 1.0));
                released = Some(norm(clipped(&step.anchor_batch, step.w, c_2k)) / ANCHOR_BATCH);
            }
            step.coupled((0.8 * norm(plus(step.x, -1.0, step.w))).clamp(1e-3, 1.0), c_2k)
        });
    }
}

/// With `p = 1` in routines 3 and 4 the anchor is always the current point, so no step evaluates differences.
#[test]
fn anchors_that_always_move_to_the_newest_point_leave_no_differences() {
    for routine in [3, 4] {
        let anchors_only = |name: &str, scales: &str, c_2k: &mut dyn FnMut(f64, &[Vector], Vector) -> f64| {
            let options = format!(r#""anchor_batch":30,"update_probability":1,"routine":{routine}"#);
            let text = format!(r#"{{"type":"{name}",{scales}{options}}}"#);
            let plan = terms(&config(&text), &facts(0.5)).plan;
            let [anchors] = plan.entries() else { panic!("{text}: {:?}", plan.entries()) };
            assert_eq!(anchors.steps().get(), STEPS as u64);
            assert!(
                matches!(anchors.sampling(), Sampling::Poisson { rate, .. } if rate.get() == 30.0 / 37.0)
            );
            run(&text, &facts(0.5)).follows(&text, |draw, x, _| {
                let batch = draw();
                let threshold = c_2k(norm(plain(&batch, x)) / ANCHOR_BATCH, &batch, x);
                scaled(1.0 / ANCHOR_BATCH, clipped(&batch, x, threshold))
            });
        };
        anchors_only("dp-svrg", "", &mut |_, _, _| 1.0);
        anchors_only("dp-c4-published", SCALES, &mut |length, _, _| (1.7 * length).min(1.0));
        let mut before = 1.0;
        anchors_only("dp-c4-plus-published", SCALES, &mut |length, _, _| {
            std::mem::replace(&mut before, (1.7 * length).min(1.0))
        });
        let mut before = 1.0;
        anchors_only("dp-c4", SCALES, &mut |_, batch, x| {
            let released = norm(clipped(batch, x, before)) / ANCHOR_BATCH;
            std::mem::replace(&mut before, (1.7 * released).clamp(1e-3, 1.0))
        });
    }
}
