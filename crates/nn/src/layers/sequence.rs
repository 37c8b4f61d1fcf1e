//! From a sequence to a vector.

use super::{Flow, Memory, Operation, Pass};
use crate::kernels::vector;
use crate::shape::Place;

/// The last step of each record.
pub(crate) struct LastStep {
    pub(crate) width: usize,
}

impl Operation for LastStep {
    fn forward(&self, pass: &Pass<'_>, x: &[f32], y: &mut [f32], _: &mut Memory) {
        let stride = Place::stride(self.width);
        for (record, &length) in pass.lengths.iter().enumerate() {
            let last = record * pass.steps + length - 1;
            y[record * stride..][..self.width].copy_from_slice(&x[last * stride..][..self.width]);
        }
    }

    fn backward(&self, pass: &Pass<'_>, flow: Flow<'_>, _: &mut Memory) {
        let Flow { dy, dx, .. } = flow;
        let Some(dx) = dx else { return };
        let stride = Place::stride(self.width);
        dx[..pass.records * pass.steps * stride].fill(0.0);
        for (record, &length) in pass.lengths.iter().enumerate() {
            let last = record * pass.steps + length - 1;
            dx[last * stride..][..self.width].copy_from_slice(&dy[record * stride..][..self.width]);
        }
    }
}

/// The mean over the steps of each record.
pub(crate) struct MeanOverSteps {
    pub(crate) width: usize,
}

impl Operation for MeanOverSteps {
    fn forward(&self, pass: &Pass<'_>, x: &[f32], y: &mut [f32], _: &mut Memory) {
        let stride = Place::stride(self.width);
        for (record, &length) in pass.lengths.iter().enumerate() {
            let y = &mut y[record * stride..][..self.width];
            y.fill(0.0);
            for step in 0..length {
                vector::add_scaled(
                    y,
                    1.0 / length as f32,
                    &x[(record * pass.steps + step) * stride..][..self.width],
                );
            }
        }
    }

    fn backward(&self, pass: &Pass<'_>, flow: Flow<'_>, _: &mut Memory) {
        let Flow { dy, dx, .. } = flow;
        let Some(dx) = dx else { return };
        let stride = Place::stride(self.width);
        for (record, &length) in pass.lengths.iter().enumerate() {
            let dy = &dy[record * stride..][..self.width];
            for step in 0..pass.steps {
                let dx = &mut dx[(record * pass.steps + step) * stride..][..self.width];
                match step < length {
                    true => vector::scaled(dx, 1.0 / length as f32, dy),
                    false => dx.fill(0.0),
                }
            }
        }
    }
}
