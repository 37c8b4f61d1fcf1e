//! The files that `sordino schedule` writes.

use std::{fmt::Write, path::Path};

use sordino_report::{Axis, LineChart, Picture, Series};
use sordino_train::write_whole;

use super::{Answer, Arguments, Schedule, steps::Step};
use crate::cli::problem::Problem;

/// The points of a curve in a picture.
const CURVE: usize = 250;

/// Writes the files that the arguments name.
pub(super) fn write(arguments: &Arguments, answer: &Answer) -> Result<(), Problem> {
    if let Some(path) = &arguments.csv {
        write_whole(path, csv(answer).as_bytes())?;
    }
    if let (Some(path), [schedule]) = (&arguments.plan_out, &answer.schedules[..]) {
        write_whole(path, plan(schedule, path)?.as_bytes())?;
    }
    if let Some(path) = &arguments.figure {
        write_whole(path, figure(answer).to_svg().as_bytes())?;
    }
    Ok(())
}

/// The plan with an entry on each line.
fn plan(schedule: &Schedule, path: &Path) -> Result<String, Problem> {
    let entry = |entry| serde_json::to_string(entry).map_err(|error| Problem::malformed_plan(path, &error));
    let entries = schedule.plan.entries().iter().map(entry).collect::<Result<Vec<_>, _>>()?;
    Ok(format!("[{}]\n", entries.join(",\n ")))
}

/// All steps of all schedules. A step without an exact epsilon has an empty cell.
fn csv(answer: &Answer) -> String {
    let mut text = "algorithm,step,clip_norm,mu,noise_multiplier,noise_std,mu_spent,epsilon_pld,epsilon_rdp,epsilon_clt\n"
        .to_owned();
    for Schedule { algorithm, steps, .. } in &answer.schedules {
        let algorithm = algorithm.replace('"', "\"\"");
        for s in steps {
            let exact = s.epsilon_pld.map(|epsilon| epsilon.to_string()).unwrap_or_default();
            let Step { step, clip_norm, mu, noise_multiplier, noise_std, mu_spent, .. } = s;
            let _ = writeln!(
                text,
                "\"{algorithm}\",{step},{clip_norm},{mu},{noise_multiplier},{noise_std},{mu_spent},{exact},{},{}",
                s.epsilon_rdp, s.epsilon_clt
            );
        }
    }
    text
}

/// Figure 2 of the paper, `mu` spent against steps, above Figure 4, epsilon spent by each accountant.
fn figure(answer: &Answer) -> Picture {
    let axis = || Axis::linear("step");
    let mut mu = LineChart::new(format!(
        "mu spent, by the central limit theorem (epsilon = {})",
        answer.target_epsilon
    ))
    .x(axis())
    .y(Axis::linear("mu"));
    let mut epsilon = LineChart::new(format!("epsilon spent, at delta = {:e}", answer.delta))
        .x(axis())
        .y(Axis::linear("epsilon"));
    for schedule in &answer.schedules {
        let name = &schedule.algorithm;
        let curve = |title: String, value: &dyn Fn(&Step) -> Option<f64>| {
            let points = schedule.steps.iter().filter_map(|step| Some((step.step as f64, value(step)?)));
            let points: Vec<(f64, f64)> = points.collect();
            let stride = points.len().div_ceil(CURVE).max(1);
            // Counted from the end, so that the last step is drawn.
            let mut thinned: Vec<_> = points.into_iter().rev().step_by(stride).collect();
            thinned.reverse();
            Series::new(title, thinned)
        };
        mu = mu.series(curve(name.clone(), &|step| Some(step.mu_spent)));
        let of = |accountant: &str| match answer.schedules.len() {
            1 => accountant.to_owned(),
            _ => format!("{name}: {accountant}"),
        };
        epsilon = epsilon
            .series(curve(of("rdp (upper bound)"), &|step| Some(step.epsilon_rdp)))
            .series(curve(of("pld (exact)"), &|step| step.epsilon_pld))
            .series(curve(of("CLT (not a bound)"), &|step| Some(step.epsilon_clt)));
    }
    Picture::stacked("Dynamic schedules", [mu.picture(), epsilon.picture()])
}
