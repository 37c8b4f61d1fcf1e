//! Layers that users write: wrong ones cannot exceed their bound, and impossible ones are refused.
#![expect(clippy::unwrap_used, reason = "a test stops at the first error")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use sordino_nn::layers::{Linear, Own};
use sordino_nn::{
    Description, Engine, Init, Inputs, Loss, Network, Outcome, Parameter, Pass, RecordLayer, Shape, Targets,
    WeightRule,
};

/// What a wrong layer does; the faults with a condition concern only [`BAD`] records.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// Gradients differ from call to call.
    Counts,
    ForwardNan,
    BackwardNan,
    ForwardPanics,
    BackwardPanics,
    InputGradientInfinite,
}

/// `p x` for one parameter `p`, with a fault.
#[derive(Debug)]
struct Wrong {
    fault: Fault,
    calls: AtomicUsize,
}

/// Records whose first feature is beyond this are affected.
const BAD: f32 = 5.0;

impl RecordLayer for Wrong {
    fn output_shape(&self, input: Shape) -> Result<Shape, String> {
        Ok(input)
    }

    /// Has one more parameter at every call.
    fn parameters(&self, _: Shape) -> Vec<Parameter> {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        (0..=calls).map(|p| Parameter::new(&format!("p{p}"), &[1], Init::Constant(0.7))).collect()
    }

    fn forward(&self, params: &[f32], input: &[f32], output: &mut [f32]) {
        output.iter_mut().zip(input).for_each(|(y, x)| *y = params[0] * x);
        match self.fault {
            Fault::ForwardNan if input[0] > BAD => output[1] = f32::NAN,
            Fault::ForwardPanics if input[0] > BAD => panic!("a wrong layer"),
            _ => {}
        }
    }

    fn backward(&self, params: &[f32], input: &[f32], dy: &[f32], dx: &mut [f32], gradient: &mut [f32]) {
        dx.iter_mut().zip(dy).for_each(|(dx, dy)| *dx = params[0] * dy);
        gradient[0] = input.iter().zip(dy).map(|(x, dy)| x * dy).sum();
        match self.fault {
            Fault::Counts => gradient[0] = 1e3 * self.calls.fetch_add(1, Ordering::Relaxed) as f32,
            Fault::BackwardNan if input[0] > BAD => gradient[0] = f32::NAN,
            Fault::BackwardPanics if input[0] > BAD => panic!("a wrong layer"),
            Fault::InputGradientInfinite if input[0] > BAD => dx[0] = f32::INFINITY,
            _ => {}
        }
    }
}

fn total(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}

/// A network with a wrong layer, which is the first one or follows a trained layer.
fn wrong(fault: Fault, first: bool) -> Description {
    let description = Description::new(Shape::Features(3));
    let description = match first {
        true => description,
        false => description.named("a", Linear { bias: false, ..Linear::new(3) }),
    };
    let layer = Own::new(Wrong { fault, calls: AtomicUsize::new(0) });
    description.named("wrong", layer).named("b", Linear::new(2))
}

/// Passes over the chosen ones of ten records, of which numbers 4 and 7 are [`BAD`].
fn pass_over(description: &Description, chosen: &[usize], rule: &WeightRule<'_>) -> (Outcome, Vec<f64>) {
    let network = Network::new(description).unwrap();
    let mut engine = Engine::with_workers(network, Loss::cross_entropy(), 2).unwrap();
    let mut params = engine.network().init(1);
    // The wrong layer reads the record itself.
    if let Some(weights) = params.slice_mut("a.weight") {
        weights.copy_from_slice(&[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
    }
    let mut values: Vec<f32> = (0..30).map(|i| (i as f32).sin()).collect();
    (values[12], values[21]) = (BAD + 1.0, BAD + 1.0);
    let classes: Vec<u32> = (0..10).map(|record| record % 2).collect();
    let records = engine.records(Inputs::Dense(&values), Targets::Classes(&classes)).unwrap();
    let mut sums = [vec![0.0; params.values().len()]];
    let outcome = engine.pass(&Pass::new(&params, &records, chosen).weighed_by(rule), &mut sums).unwrap();
    let [sum] = sums;
    (outcome, sum)
}

#[test]
fn a_record_on_which_an_own_layer_fails_adds_nothing() {
    let all: Vec<usize> = (0..10).collect();
    let good: Vec<usize> = all.iter().copied().filter(|record| ![4, 7].contains(record)).collect();
    let clip = |norms: &[f64], weights: &mut [f32]| weights.fill((0.5 / total(norms)).min(1.0) as f32);
    for (fault, first) in [
        (Fault::ForwardNan, false),
        (Fault::BackwardNan, false),
        (Fault::BackwardNan, true),
        (Fault::ForwardPanics, false),
        (Fault::BackwardPanics, false),
        (Fault::BackwardPanics, true),
        (Fault::InputGradientInfinite, false),
    ] {
        let (outcome, sum) = pass_over(&wrong(fault, first), &all, &clip);
        assert_eq!(outcome.non_finite, [4, 7], "{fault:?}");
        let (_, without) = pass_over(&wrong(fault, first), &good, &clip);
        for (found, expected) in sum.iter().zip(&without) {
            assert!((found - expected).abs() < 1e-6, "{fault:?}: {found} {expected}");
        }
    }
}

#[test]
fn the_sum_of_a_wrong_layer_has_the_reported_norm() {
    let description = wrong(Fault::Counts, false);
    for record in 0..10 {
        let reported = Mutex::new(0.0);
        let look = |norms: &[f64], weights: &mut [f32]| {
            *reported.lock().unwrap() = total(norms);
            weights.fill(1.0);
        };
        let (_, sum) = pass_over(&description, &[record], &look);
        let reported = *reported.lock().unwrap();
        assert!((total(&sum) - reported).abs() <= 1e-5 * reported, "{} {reported}", total(&sum));
        assert!(reported > 900.0 * (1 + record) as f64, "the layer counts");
    }
    let all: Vec<usize> = (0..10).collect();
    let clip = |norms: &[f64], weights: &mut [f32]| weights.fill((0.5 / total(norms)).min(1.0) as f32);
    let (_, sum) = pass_over(&description, &all, &clip);
    assert!(total(&sum) <= 5.0 * (1.0 + 1e-5), "{}", total(&sum));
}

#[test]
fn own_layers_are_not_read_from_or_written_to_files() {
    let text = "input = { features = 3 }\nlayers = [{ type = 'own', name = 'mine' }]";
    let error = toml::from_str::<Description>(text).unwrap_err().to_string();
    assert!(error.contains("cannot be read from a file; describe the network in Rust"), "{error}");
    let odd = || Own::new(Odd(Shape::Features(1), vec![1], Init::Constant(0.0)));
    let description = Description::new(Shape::Features(3)).then(odd());
    let error = serde_json::to_string(&description).unwrap_err().to_string();
    assert!(error.contains("cannot be written to a file: Odd"), "{error}");
    assert_eq!(description, description.clone());
    assert_ne!(description, Description::new(Shape::Features(3)).then(odd()));
}

/// A layer that returns this output shape and has a parameter of this shape.
#[derive(Debug)]
struct Odd(Shape, Vec<usize>, Init);

impl RecordLayer for Odd {
    fn output_shape(&self, _: Shape) -> Result<Shape, String> {
        Ok(self.0)
    }

    fn parameters(&self, _: Shape) -> Vec<Parameter> {
        vec![Parameter::new("p", &self.1, self.2)]
    }

    fn forward(&self, _: &[f32], _: &[f32], _: &mut [f32]) {}

    fn backward(&self, _: &[f32], _: &[f32], _: &[f32], _: &mut [f32], _: &mut [f32]) {}
}

#[test]
fn own_layers_with_impossible_shapes_are_refused() {
    let (vector, init) = (Shape::Features(2), Init::Constant(0.0));
    let sequence = Shape::Sequence { steps: 4, width: 2 };
    for (input, layer, message) in [
        (vector, Odd(Shape::Features(0), vec![1], init), "every dimension must be 1 to 16777216, got 0"),
        (vector, Odd(sequence, vec![1], init), "a sequence can be computed only from one with as many steps"),
        (
            Shape::Sequence { steps: 5, width: 2 },
            Odd(sequence, vec![1], init),
            "a sequence can be computed only from one with as many steps, got 4 steps of 2 from 5 steps of 2",
        ),
        (
            vector,
            Odd(Shape::Tokens { steps: 1, vocabulary: 3 }, vec![1], init),
            "the output must be real values, got 1 tokens of 3",
        ),
        (
            Shape::Tokens { steps: 4, vocabulary: 3 },
            Odd(vector, vec![1], init),
            "needs real values, gets 4 tokens of 3 from the input; put an embedding before it",
        ),
        (vector, Odd(vector, vec![0], init), "dimensions of p must be 1 to 16777216, got 0"),
        (vector, Odd(vector, vec![1 << 24; 3], init), "more than the 4294967296 permitted parameters"),
        (
            vector,
            Odd(vector, vec![1], Init::Normal(-1.0)),
            "initial values of p must be finite, got Normal(-1.0)",
        ),
        (vector, Odd(vector, vec![1], Init::Constant(f32::NAN)), "initial values of p must be finite"),
    ] {
        let error = Network::new(&Description::new(input).then(Own::new(layer))).err().unwrap().to_string();
        assert!(error.starts_with("layer 0 (own): ") && error.contains(message), "{error}");
    }
}
