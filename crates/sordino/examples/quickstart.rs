//! A private model on arrays in memory: `cargo run --example quickstart`.

use sordino::{Dataset, Model, Trainer};

fn main() -> Result<(), sordino::Error> {
    // Two features per record, and whether they lie inside a circle.
    let x: Vec<[f32; 2]> = (0..5000).map(|i| [point(i, 0.618), point(i, 0.414)]).collect();
    let y: Vec<bool> = x.iter().map(|[a, b]| a * a + b * b < 0.5).collect();

    let data = Dataset::from_rows(&x, &y)?;
    let fitted = Trainer::new(Model::mlp(&[64])).budget(1.0, 1e-5)?.fit(&data)?;
    println!("{}", fitted.guarantee());

    let new_rows = [[0.1, 0.2], [0.9, -0.9]];
    println!("{:?} {:?}", fitted.predict(&new_rows)?, fitted.predict_proba(&new_rows)?);
    Ok(())
}

/// Points that fill the interval from -1 to 1 evenly.
fn point(index: u32, step: f64) -> f32 {
    (2.0 * (f64::from(index) * step).fract() - 1.0) as f32
}
