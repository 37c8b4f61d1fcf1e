//! Filters with mean 0 and variance 1.
//!
//! A filter `w` of `n` taps with mean `m` and variance `v` is used as `u = (w - m) / s` with `s = sqrt(v + 1e-10)`. With the gradient `g`
//! of `u`, the gradient of `w` is `(g - mean(g) - u mean(g u)) / s`: a linear map of `g` that depends on the weights only. Each
//! record's gradient is mapped before its norm is computed, since the norm is that of the gradient of `w`.

use super::Conv2dOperation;

/// Added to the variance, which may be 0.
const LEAST_VARIANCE: f64 = 1e-10;

/// The standardised filters, in the order of written-out gradients: group by group, tap by tap, the filters of a group together.
pub(super) struct Standardised {
    values: Vec<f64>,
    /// `s` for each filter.
    deviations: Vec<f64>,
}

/// The mean and the deviation of a filter.
fn moments(filter: &[f32]) -> (f64, f64) {
    let count = filter.len() as f64;
    let mean = filter.iter().map(|w| f64::from(*w)).sum::<f64>() / count;
    let variance = filter.iter().map(|w| (f64::from(*w) - mean).powi(2)).sum::<f64>() / count;
    (mean, (variance + LEAST_VARIANCE).sqrt())
}

/// The standardised filters, in the order of the parameters.
pub(super) fn standardise(filters: &mut [f32], taps: usize) {
    for filter in filters.chunks_exact_mut(taps) {
        let (mean, deviation) = moments(filter);
        filter.iter_mut().for_each(|w| *w = ((f64::from(*w) - mean) / deviation) as f32);
    }
}

impl Standardised {
    pub(super) fn new(conv: &Conv2dOperation, params: &[f32]) -> Standardised {
        let (taps, inputs, outputs) = (conv.taps(), conv.group_inputs(), conv.group_outputs());
        let places = conv.kernel * conv.kernel;
        let mut values = vec![0.0; conv.weights()];
        let mut deviations = Vec::with_capacity(conv.output.channels);
        for (index, filter) in params[..conv.weights()].chunks_exact(taps).enumerate() {
            let (mean, deviation) = moments(filter);
            deviations.push(deviation);
            let (group, output) = (index / outputs, index % outputs);
            for (tap, w) in filter.iter().enumerate() {
                let row = tap % places * inputs + tap / places;
                values[(group * taps + row) * outputs + output] = (f64::from(*w) - mean) / deviation;
            }
        }
        Standardised { values, deviations }
    }

    /// Adds `sign` times the mapped gradient to `sum`; all are in the order of written-out gradients.
    pub(super) fn add_mapped(&self, conv: &Conv2dOperation, gradient: &[f32], sign: f64, sum: &mut [f64]) {
        let (taps, outputs) = (conv.taps(), conv.group_outputs());
        let groups = gradient.chunks_exact(taps * outputs).zip(self.values.chunks_exact(taps * outputs));
        let sums = sum.chunks_exact_mut(taps * outputs).zip(self.deviations.chunks_exact(outputs));
        let (mut mean, mut along) = (vec![0.0; outputs], vec![0.0; outputs]);
        for ((gradient, values), (sum, deviations)) in groups.zip(sums) {
            mean.fill(0.0);
            along.fill(0.0);
            for (g, u) in gradient.chunks_exact(outputs).zip(values.chunks_exact(outputs)) {
                for o in 0..outputs {
                    mean[o] += f64::from(g[o]) / taps as f64;
                    along[o] += f64::from(g[o]) * u[o] / taps as f64;
                }
            }
            let rows = gradient.chunks_exact(outputs).zip(values.chunks_exact(outputs));
            for (sum, (g, u)) in sum.chunks_exact_mut(outputs).zip(rows) {
                for o in 0..outputs {
                    sum[o] += sign * (f64::from(g[o]) - mean[o] - u[o] * along[o]) / deviations[o];
                }
            }
        }
    }
}
