//! A layer that the engine does not have: maxout (Goodfellow et al., 2013), `y_j = max_k (w_jk . x + b_jk)`.
//!
//! The user writes the forward and backward pass of one record. The engine takes the norm of each record's gradient, and the weight
//! rule clips it. No noise is added here; private training uses the same network through the trusted base.

use std::error::Error;

use sordino_nn::layers::{Linear, Own};
use sordino_nn::{
    Description, Engine, Init, Inputs, Loss, Network, Parameter, Pass, RecordLayer, Shape, Targets,
};

/// For each output, the largest of several linear functions.
#[derive(Debug)]
struct Maxout {
    outputs: usize,
    pieces: usize,
}

impl Maxout {
    /// For each output, the value and the index of the largest linear function.
    fn greatest(&self, params: &[f32], input: &[f32]) -> Vec<(f32, usize)> {
        let (weights, biases) = params.split_at(self.outputs * self.pieces * input.len());
        let value = |piece: usize| {
            let row = &weights[piece * input.len()..][..input.len()];
            biases[piece] + row.iter().zip(input).map(|(w, x)| w * x).sum::<f32>()
        };
        let first_pieces = (0..self.outputs).map(|output| output * self.pieces);
        first_pieces
            .map(|first| {
                let all = (first..first + self.pieces).map(|piece| (value(piece), piece));
                all.fold((f32::NEG_INFINITY, first), |best, next| if next.0 > best.0 { next } else { best })
            })
            .collect()
    }
}

impl RecordLayer for Maxout {
    fn output_shape(&self, input: Shape) -> Result<Shape, String> {
        match input {
            Shape::Features(_) => Ok(Shape::Features(self.outputs)),
            _ => Err(format!("needs a vector, gets {input}")),
        }
    }

    fn parameters(&self, input: Shape) -> Vec<Parameter> {
        let (rows, init) = (self.outputs * self.pieces, Init::uniform_fan_in(input.len()));
        vec![Parameter::new("weight", &[rows, input.len()], init), Parameter::new("bias", &[rows], init)]
    }

    fn forward(&self, params: &[f32], input: &[f32], output: &mut [f32]) {
        for (output, (value, _)) in output.iter_mut().zip(self.greatest(params, input)) {
            *output = value;
        }
    }

    fn backward(
        &self,
        params: &[f32],
        input: &[f32],
        output_gradient: &[f32],
        input_gradient: &mut [f32],
        gradient: &mut [f32],
    ) {
        let (weights, biases) = gradient.split_at_mut(self.outputs * self.pieces * input.len());
        for (dy, (_, piece)) in output_gradient.iter().zip(self.greatest(params, input)) {
            let row = piece * input.len()..(piece + 1) * input.len();
            for (i, weight) in row.clone().enumerate() {
                weights[weight] += dy * input[i];
                input_gradient[i] += dy * params[weight];
            }
            biases[piece] += dy;
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // Points on a grid; the class says whether a point lies within a circle.
    let points: Vec<[f32; 2]> =
        (0..400).map(|i| [(i % 20) as f32 / 10.0 - 0.95, (i / 20) as f32 / 10.0 - 0.95]).collect();
    let classes: Vec<u32> = points.iter().map(|[x, y]| u32::from(x * x + y * y < 0.5)).collect();

    let description = Description::new(Shape::Features(2))
        .named("maxout", Own::new(Maxout { outputs: 8, pieces: 4 }))
        .named("out", Linear::new(2));
    let mut engine = Engine::new(Network::new(&description)?, Loss::cross_entropy())?;
    let mut params = engine.network().init(1);
    let values = points.concat();
    let records = engine.records(Inputs::Dense(&values), Targets::Classes(&classes))?;
    let all: Vec<usize> = (0..points.len()).collect();

    let clip = |norms: &[f64], weights: &mut [f32]| {
        let norm = norms.iter().map(|norm| norm * norm).sum::<f64>().sqrt();
        weights.fill((1.0 / norm).min(1.0) as f32);
    };
    let mut sums = [vec![0.0; params.values().len()]];
    for step in 0..=300 {
        let outcome = engine.pass(&Pass::new(&params, &records, &all).weighed_by(&clip), &mut sums)?;
        if step % 100 == 0 {
            let loss = outcome.losses.iter().sum::<f64>() / points.len() as f64;
            println!("step {step:3}: mean loss {loss:.3}");
        }
        for (value, sum) in params.values_mut().iter_mut().zip(&sums[0]) {
            *value -= (2.0 * sum / points.len() as f64) as f32;
        }
    }
    Ok(())
}
