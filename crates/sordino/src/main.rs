//! t
use sordino_accounting::*;
fn main() {
    let b = calibrate::Budget { epsilon: Epsilon::new(2.0).unwrap(), delta: Delta::new(1e-5).unwrap() };
    let cal = |q: f64, t: u64| calibrate::noise_multiplier(b, SamplingRate::new(q).unwrap(), Steps::new(t).unwrap(), Accountant::Pld).unwrap().value.get();
    for (q, t) in [(0.02, 150u64), (0.02, 250), (0.02, 500), (0.02, 1000), (256./50000., 586), (0.01, 300), (1024./50000., 150)] {
        let plain = cal(q, t);
        print!("{q} {t}: ");
        for w in [1u64, 4, 8, 16, 38] {
            let k = (0.01f64 + 0.81 / w as f64).sqrt();
            let q2 = q * (w + 1) as f64;
            if q2 <= 1.0 { print!("W={w} {:.3}  ", cal(q2, t.div_ceil(w + 1)) * k / plain); }
        }
        println!();
    }
}
