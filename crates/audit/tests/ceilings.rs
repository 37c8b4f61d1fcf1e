//! What the estimators reach at best, and that ideal attacks reach it.
use sordino_accounting::{Delta, Epsilon};
use sordino_audit::estimators::*;
#[test]
fn print() {
    let d = Delta::new(1e-5).unwrap();
    let c = Confidence::new(0.95).unwrap();
    for e in [1.0, 2.0, 4.0, 8.0] {
        let e = Epsilon::new(e).unwrap();
        for m in [200, 1000, 5000] {
            println!("{e} {m} {:?} {:?} {:.3}", one_run_ceiling(m, e, d, c), one_run_fdp_ceiling(m, e, d, c), one_run_gaussian_ceiling(m, e, d, c));
        }
        for r in [500, 2000, 10000] {
            println!("{e} {r} {:.3} {:.3}", many_runs_ceiling(r, e, d, &Family::approximate(d), c), many_runs_ceiling(r, e, d, &Family::gaussian(d), c));
        }
    }
}
