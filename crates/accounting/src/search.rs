//! One-dimensional minimisation.

/// The minimum over positive arguments of a function with a single valley: moves downhill from `start` by factors of two, then
/// narrows the interval until its ends differ by a factor of `1 + tolerance`.
///
/// Returns the argument and the value there. A NaN counts as infinity.
pub fn minimum(f: impl Fn(f64) -> f64, start: f64, tolerance: f64) -> (f64, f64) {
    const FARTHEST: f64 = 100.0;
    let f = |ln_x: f64| {
        let value = f(ln_x.exp());
        if value.is_nan() { f64::INFINITY } else { value }
    };
    let stride = std::f64::consts::LN_2;
    let origin = start.ln();
    let (mut x, mut lowest) = (origin, f(origin));
    let right = f(origin + stride);
    // Where the function is infinite, the search moves to the left: moments are finite at small arguments.
    let direction = if right < lowest { stride } else { -stride };
    while (x - origin).abs() < FARTHEST {
        let value = f(x + direction);
        if value < lowest || lowest.is_infinite() {
            (x, lowest) = (x + direction, value);
        } else {
            break;
        }
    }
    golden_section(f, x - stride, x + stride, tolerance, (x, lowest))
}

/// Narrows the interval around the minimum by golden-section search.
fn golden_section(
    f: impl Fn(f64) -> f64,
    mut a: f64,
    mut b: f64,
    tolerance: f64,
    mut lowest: (f64, f64),
) -> (f64, f64) {
    let ratio = 0.5 * (5.0_f64.sqrt() - 1.0);
    let (mut x, mut y) = (b - ratio * (b - a), a + ratio * (b - a));
    let (mut fx, mut fy) = (f(x), f(y));
    loop {
        for point in [(x, fx), (y, fy)] {
            if point.1 < lowest.1 {
                lowest = point;
            }
        }
        if b - a <= tolerance {
            return (lowest.0.exp(), lowest.1);
        }
        if fx <= fy {
            (b, y, fy) = (y, x, fx);
            x = b - ratio * (b - a);
            fx = f(x);
        } else {
            (a, x, fx) = (x, y, fy);
            y = a + ratio * (b - a);
            fy = f(y);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_valleys_near_and_far() {
        for bottom in [1e-9_f64, 0.3, 1.0, 7e8] {
            let (x, value) = minimum(|x| (x / bottom).ln().powi(2) + 1.0, 1.0, 1e-4);
            assert!((x / bottom - 1.0).abs() < 1e-3 && (value - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn leaves_regions_of_infinite_values() {
        let (x, _) = minimum(|x| if x > 1e-3 { f64::INFINITY } else { (x - 1e-4).abs() }, 5.0, 1e-4);
        assert!((x / 1e-4 - 1.0).abs() < 1e-3);
        let (x, _) = minimum(|x| if x > 3.0 { f64::NAN } else { (x - 2.0).abs() }, 1.0, 1e-4);
        assert!((x / 2.0 - 1.0).abs() < 1e-3);
    }
}
