//! The contribution of synthetic records, as the network computes it.

use sordino_privacy::{Gradients, Sum};

/// The largest norm of what one of these records adds to a sum that is clipped to `clip`, in units of `clip`. It exceeds 1 if
/// the engine reports norms that are too small.
///
/// # Errors
/// Those of the engine.
pub fn largest_contribution<G: Gradients>(
    engine: &mut G,
    at: &G::Point,
    records: std::ops::Range<usize>,
    clip: f64,
) -> Result<f64, G::Error> {
    let mut largest = 0.0_f64;
    for record in records {
        let rule = |norms: &[f64], weights: &mut [f32]| {
            let norm = norms.iter().map(|norm| norm * norm).sum::<f64>().sqrt();
            weights.fill((clip / norm).min(1.0) as f32);
        };
        let mut sums = [Sum { step: 0.0, values: vec![0.0; engine.dimension()] }];
        engine.pass(at, None, &[record], Some(&rule), [0; 32], &mut sums)?;
        let squares: f64 = sums[0].values.iter().map(|value| value * value).sum();
        // A sum that is not finite counts as too large.
        largest = if squares.is_finite() { largest.max(squares.sqrt() / clip) } else { f64::MAX };
    }
    Ok(largest)
}
