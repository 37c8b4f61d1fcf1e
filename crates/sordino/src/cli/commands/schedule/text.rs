//! Schedules as the terminal shows them.

use crate::report::{Column, labelled, table};
use sordino_train::{
    Hint,
    format::{grouped, rounded_down, rounded_up},
};

use super::{Answer, Arguments, Schedule, calibration::Calibration, steps::Step};
use crate::cli::budget_arguments::BudgetArguments;

/// The number of steps that are shown.
const SHOWN: usize = 10;

pub(super) fn text(arguments: &Arguments, answer: &Answer) -> Hint {
    let mut text = String::new();
    for schedule in &answer.schedules {
        text += &format!("{}\n\n{}\n{}\n", schedule.algorithm, calibrations(schedule), steps(schedule));
    }
    let (budget, BudgetArguments { sample_rate, steps, .. }) = (arguments.budget.budget(), arguments.budget);
    let relation = answer.schedules.first().map(|schedule| schedule.calibrations[0].relation.clone());
    let mut rows = vec![
        (
            "target",
            format!(
                "epsilon {} at delta {}, which is mu_tot = {} (equation 1)",
                budget.epsilon,
                budget.delta,
                rounded_down(answer.mu_tot)
            ),
        ),
        ("protects", format!("one record, relation {}", relation.unwrap_or_default())),
        (
            "sampling",
            format!("Poisson at rate {sample_rate}, fresh at each of {} steps", grouped(steps.get())),
        ),
        (
            "noise",
            "sigma_t = C_t / mu_t on the sum at step t = 1..T; divide by the batch size for the mean"
                .to_owned(),
        ),
    ];
    if let [schedule] = &answer.schedules[..] {
        let first = &schedule.calibrations[0];
        rows.push(("true epsilon", format!("of the first column: {}", first.status)));
        if let Some(mu_0) = schedule.mu_0_of_equation_13 {
            rows.push(("equation 13", format!("mu_0 = {} for steps of equal mu", rounded_down(mu_0))));
        }
    }
    rows.push((
        "CLT",
        "APPROXIMATE, NOT A BOUND, and so is Corollary 2; each column states the true epsilon of its mu_0"
            .to_owned(),
    ));
    rows.push((
        "epsilon",
        format!(
            "spent so far, by pld at {} of the steps (--points); --json and --csv have every step, also by rdp and by the central limit theorem",
            arguments.points.min(steps.get())
        ),
    ));
    Hint::new(format!("{text}{}", labelled(&rows)))
}

/// The noise by each way to calibrate it.
fn calibrations(schedule: &Schedule) -> String {
    let row = |label: &str, value: &dyn Fn(&Calibration) -> String| {
        let mut row = vec![label.to_owned()];
        row.extend(schedule.calibrations.iter().map(value));
        row
    };
    let arrow = |[first, last]: [f64; 2]| format!("{} -> {}", rounded_up(first), rounded_up(last));
    let rows = [
        row("", &|calibration| calibration.noise_from.title().to_owned()),
        row("mu_0", &|calibration| rounded_down(calibration.mu_0)),
        row("largest mu_t", &|calibration| rounded_up(calibration.largest_mu)),
        row("noise multiplier", &|calibration| arrow(calibration.noise_multiplier)),
        row("clipping norm", &|calibration| arrow(calibration.clip_norm)),
        row("noise standard deviation", &|calibration| arrow(calibration.noise_std)),
        row("mu of all steps, by the CLT", &|calibration| rounded_up(calibration.mu_spent)),
        row("true epsilon, at most", &|calibration| rounded_up(calibration.epsilon)),
    ];
    let columns = [Column::Left(27), Column::Right(18), Column::Right(18), Column::Right(18)];
    let violated = schedule.calibrations.iter().any(|calibration| {
        calibration.noise_from == super::NoiseFrom::Corollary2 && calibration.largest_mu > 1.0
    });
    let note = match violated {
        true => "  Corollary 2 does not apply here: it requires mu_t <= 1 at every step.\n",
        false => "",
    };
    table(&columns, &rows) + note
}

/// A few steps of the schedule in the first column.
fn steps(schedule: &Schedule) -> String {
    let head = ["t", "C_t", "mu_t", "sigma_t", "mu so far", "epsilon (pld)", "(rdp)", "(CLT)"];
    let priced: Vec<&Step> = schedule.steps.iter().filter(|step| step.epsilon_pld.is_some()).collect();
    let stride = priced.len().div_ceil(SHOWN).max(1);
    let mut shown: Vec<&Step> = priced.into_iter().rev().step_by(stride).collect();
    shown.reverse();
    if let Some(first) =
        schedule.steps.first().filter(|first| shown.first().is_none_or(|other| other.step > first.step))
    {
        shown.insert(0, first);
    }
    let cells = |step: &&Step| {
        vec![
            grouped(step.step),
            rounded_up(step.clip_norm),
            // A smaller mu is more noise.
            rounded_down(step.mu),
            rounded_up(step.noise_std),
            rounded_up(step.mu_spent),
            step.epsilon_pld.map(rounded_up).unwrap_or_default(),
            rounded_up(step.epsilon_rdp),
            rounded_up(step.epsilon_clt),
        ]
    };
    let rows: Vec<Vec<String>> =
        std::iter::once(head.map(str::to_owned).to_vec()).chain(shown.iter().map(cells)).collect();
    table(&[Column::Right(7); 8], &rows)
}
