//! The table of `docs/audit.md`.

use sordino_audit::estimators::{
    Family, many_runs_ceiling, one_run_ceiling, one_run_fdp_ceiling, one_run_gaussian_ceiling,
};

use crate::simulation::{claim, confidence, delta};

fn ceiling(estimator: &str, count: u64, epsilon: f64) -> f64 {
    let (claim, delta, confidence) = (claim(epsilon), delta(), confidence());
    match estimator {
        "one run" => one_run_ceiling(count, claim, delta, confidence).epsilon,
        "one run, f-DP" => one_run_fdp_ceiling(count, claim, delta, confidence).epsilon,
        "one run, difference of means" => one_run_gaussian_ceiling(count, claim, delta, confidence),
        "many runs, Clopper-Pearson" => {
            many_runs_ceiling(count, claim, delta, &Family::approximate(delta), confidence)
        }
        "many runs, Gaussian curve" => {
            many_runs_ceiling(count, claim, delta, &Family::gaussian(delta), confidence)
        }
        other => panic!("{other} is not an estimator"),
    }
}

#[test]
fn the_table_has_the_ceilings_of_the_estimators() {
    let page = include_str!("../../../../docs/audit.md");
    let mut rows = 0;
    for row in page.lines().filter(|line| line.starts_with("| one run") || line.starts_with("| many runs")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        for (cell, epsilon) in cells[3..7].iter().zip([1.0, 2.0, 4.0, 8.0]) {
            let got = ceiling(cells[1], cells[2].parse().unwrap(), epsilon);
            assert_eq!(format!("{got:.2}"), *cell, "{row}, epsilon {epsilon}");
        }
        rows += 1;
    }
    assert_eq!(rows, 15);
}
