//! Layers that users write agree with built-in layers and with finite differences.
#![expect(clippy::unwrap_used, reason = "a test stops at the first error")]

mod basics;

use std::sync::Mutex;

use basics::{in_order, numbers, total};
use sordino_nn::layers::{Conv2d, Dropout, Flatten, Linear, MeanOverSteps, Own, Relu, Residual, Tanh};
use sordino_nn::{
    Description, Engine, Init, Inputs, Layer, Loss, Network, Outcome, Parameter, Params, Pass, RecordLayer,
    Shape, Targets, WeightRule,
};

/// The same as [`Linear`] on vectors and sequences, and as a convolution with 1x1 filters on images.
#[derive(Debug)]
struct OwnLinear {
    inputs: usize,
    outputs: usize,
    /// The shape of a filter of the twin.
    filter: &'static [usize],
    /// Whether features are one after another for each position, or positions for each channel.
    by_channel: bool,
}

impl OwnLinear {
    /// Calls `f(position's index of input i, of output o, weight's index)` for each product.
    fn each(&self, len: usize, mut f: impl FnMut(usize, usize, usize)) {
        let (inputs, outputs, positions) = (self.inputs, self.outputs, len / self.inputs);
        for position in 0..positions {
            for o in 0..outputs {
                for i in 0..inputs {
                    match self.by_channel {
                        true => f(i * positions + position, o * positions + position, o * inputs + i),
                        false => f(position * inputs + i, position * outputs + o, o * inputs + i),
                    }
                }
            }
        }
    }
}

impl RecordLayer for OwnLinear {
    fn output_shape(&self, input: Shape) -> Result<Shape, String> {
        Ok(match input {
            Shape::Sequence { steps, .. } => Shape::Sequence { steps, width: self.outputs },
            Shape::Image { height, width, .. } => Shape::Image { channels: self.outputs, height, width },
            _ => Shape::Features(self.outputs),
        })
    }

    fn parameters(&self, _: Shape) -> Vec<Parameter> {
        let init = Init::uniform_fan_in(self.inputs);
        let shape: Vec<usize> = [&[self.outputs, self.inputs], self.filter].concat();
        vec![Parameter::new("weight", &shape, init), Parameter::new("bias", &[self.outputs], init)]
    }

    fn forward(&self, params: &[f32], input: &[f32], output: &mut [f32]) {
        let (weights, bias) = params.split_at(self.inputs * self.outputs);
        let positions = output.len() / self.outputs;
        for (index, output) in output.iter_mut().enumerate() {
            *output = bias[if self.by_channel { index / positions } else { index % self.outputs }];
        }
        self.each(input.len(), |i, o, w| output[o] += weights[w] * input[i]);
    }

    fn backward(&self, params: &[f32], input: &[f32], dy: &[f32], dx: &mut [f32], gradient: &mut [f32]) {
        let (weights, bias) = gradient.split_at_mut(self.inputs * self.outputs);
        self.each(input.len(), |i, o, w| {
            weights[w] += dy[o] * input[i];
            dx[i] += dy[o] * params[w];
        });
        let positions = dy.len() / self.outputs;
        for (index, dy) in dy.iter().enumerate() {
            bias[if self.by_channel { index / positions } else { index % self.outputs }] += dy;
        }
    }
}

fn own_linear(inputs: usize, outputs: usize) -> Layer {
    Own::new(OwnLinear { inputs, outputs, filter: &[], by_channel: false }).into()
}

fn own_conv(inputs: usize, outputs: usize) -> Layer {
    Own::new(OwnLinear { inputs, outputs, filter: &[1, 1], by_channel: true }).into()
}

fn engine(description: &Description, workers: usize) -> Engine {
    Engine::with_workers(Network::new(description).unwrap(), Loss::cross_entropy(), workers).unwrap()
}

/// Norms by layer and sums of a pass with dropout over records of different lengths; also the outputs.
type Findings = (Vec<Vec<f64>>, Outcome, Vec<Vec<f64>>, Vec<f32>);

fn findings(description: &Description, anchored: bool) -> Findings {
    let mut engine = engine(description, 1);
    let shape = engine.network().input();
    let (here, there) = (engine.network().init(1), engine.network().init(2));
    let count = 20;
    let lengths: Vec<usize> = (0..count).map(|record| 1 + record % shape.steps()).collect();
    let starts: Vec<usize> = (0..=count).map(|end| lengths[..end].iter().sum()).collect();
    let values = numbers(shape.len() / shape.steps() * starts[count], 3);
    let inputs = match shape {
        Shape::Sequence { .. } => Inputs::Sequences { values: &values, starts: &starts },
        _ => Inputs::Dense(&values),
    };
    let classes: Vec<u32> = (0..count as u32).map(|record| record % 3).collect();
    let records = engine.records(inputs, Targets::Classes(&classes)).unwrap();
    let all: Vec<usize> = (0..count).collect();
    let by_layer = Mutex::new(Vec::new());
    let rule = |norms: &[f64], weights: &mut [f32]| {
        by_layer.lock().unwrap().push(norms.to_vec());
        let (first, second) = weights.split_at_mut(norms.len());
        first.fill((0.1 / total(norms)).min(1.0) as f32);
        second.iter_mut().zip(norms).for_each(|(weight, norm)| *weight = (0.1 / norm).min(1.0) as f32);
    };
    let pass = Pass::new(&here, &records, &all).weighed_by(&rule).with_dropout([5; 32]);
    let pass = if anchored { pass.minus(&there) } else { pass };
    let mut sums = vec![vec![f64::NAN; here.values().len()]; 2];
    let outcome = engine.pass(&pass, &mut sums).unwrap();
    let mut plain = vec![vec![f64::NAN; here.values().len()]];
    engine.pass(&Pass::new(&here, &records, &all), &mut plain).unwrap();
    sums.extend(plain);
    let outputs = engine.outputs(&here, &engine.unlabelled(inputs).unwrap(), &all).unwrap();
    (by_layer.into_inner().unwrap(), outcome, sums, outputs)
}

fn assert_close(what: &str, own: impl IntoIterator<Item = f64>, twin: impl IntoIterator<Item = f64>) {
    let (own, twin): (Vec<f64>, Vec<f64>) = (own.into_iter().collect(), twin.into_iter().collect());
    assert_eq!(own.len(), twin.len(), "{what}");
    let scale = twin.iter().fold(1e-3f64, |scale, value| scale.max(value.abs()));
    for (own, twin) in own.iter().zip(&twin) {
        assert!((own - twin).abs() <= 2e-5 * scale, "{what}: {own} {twin}");
    }
}

#[test]
fn an_own_layer_agrees_with_its_built_in_twin() {
    let vectors = |layer: Layer, last: Layer| {
        Description::new(Shape::Features(6))
            .named("a", Linear::new(5))
            .then(Tanh)
            .named("b", layer)
            .then(Tanh)
            .then(Dropout { rate: 0.2 })
            .named("c", last)
    };
    let sequences = |layer: Layer| {
        Description::new(Shape::Sequence { steps: 7, width: 4 })
            .named("a", Linear::new(5))
            .named("block", Residual::new(vec![Tanh.into(), layer.into()]))
            .then(MeanOverSteps)
            .named("c", Linear::new(3))
    };
    let images = |layer: Layer| {
        Description::new(Shape::Image { channels: 2, height: 5, width: 4 })
            .named("a", Conv2d::new(3, 3, 1, 1))
            .named("b", layer)
            .then(Relu)
            .named("c", Conv2d::new(2, 3, 2, 1))
            .then(Flatten)
            .named("d", Linear::new(3))
    };
    let frozen = |mut description: Description, layer: usize| {
        description.layers[layer].frozen = true;
        description
    };
    let built_in = vectors(Linear::new(4).into(), Linear::new(3).into());
    let pairs = [
        (vectors(own_linear(5, 4), own_linear(4, 3)), built_in.clone()),
        (frozen(vectors(own_linear(5, 4), Linear::new(3).into()), 0), frozen(built_in.clone(), 0)),
        (frozen(vectors(own_linear(5, 4), Linear::new(3).into()), 2), frozen(built_in, 2)),
        (sequences(own_linear(5, 5)), sequences(Linear::new(5).into())),
        (images(own_conv(3, 4)), images(Conv2d::new(4, 1, 1, 0).into())),
    ];
    for (own, twin) in &pairs {
        for anchored in [false, true] {
            let (own, twin) = (findings(own, anchored), findings(twin, anchored));
            assert_close("norms", own.0.concat(), twin.0.concat());
            assert_close("losses", own.1.losses, twin.1.losses);
            assert_close(
                "outputs",
                own.3.iter().map(|v| f64::from(*v)),
                twin.3.iter().map(|v| f64::from(*v)),
            );
            for (own, twin) in own.2.iter().zip(twin.2) {
                assert_close("sums", own.iter().copied(), twin);
            }
        }
    }
}

/// `tanh(p x)` for one parameter `p`.
#[derive(Debug)]
struct Squash;

impl RecordLayer for Squash {
    fn output_shape(&self, input: Shape) -> Result<Shape, String> {
        Ok(input)
    }

    fn parameters(&self, _: Shape) -> Vec<Parameter> {
        vec![Parameter::new("p", &[1], Init::Constant(0.7))]
    }

    fn forward(&self, params: &[f32], input: &[f32], output: &mut [f32]) {
        output.iter_mut().zip(input).for_each(|(y, x)| *y = (params[0] * x).tanh());
    }

    fn backward(&self, params: &[f32], input: &[f32], dy: &[f32], dx: &mut [f32], gradient: &mut [f32]) {
        for (i, x) in input.iter().enumerate() {
            let slope = 1.0 - (params[0] * x).tanh().powi(2);
            dx[i] = params[0] * slope * dy[i];
            gradient[0] += x * slope * dy[i];
        }
    }
}

#[test]
fn gradients_agree_with_finite_differences() {
    let description = Description::new(Shape::Features(5))
        .named("a", Linear::new(4))
        .named("squash", Own::new(Squash))
        .named("b", Linear::new(3));
    let mut engine = engine(&description, 1);
    let params = engine.network().init(1);
    let values = numbers(5, 2);
    let records = engine.records(Inputs::Dense(&values), Targets::Classes(&[1])).unwrap();
    let mut sums = [vec![0.0; params.values().len()]];
    engine.pass(&Pass::new(&params, &records, &[0]), &mut sums).unwrap();
    let [gradient] = sums.clone();
    for (index, found) in gradient.iter().enumerate() {
        let step = 2f32.powi(-6);
        let mut loss = |by: f32| {
            let mut moved: Params = params.clone();
            moved.values_mut()[index] += by;
            engine.pass(&Pass::new(&moved, &records, &[0]), &mut sums).unwrap().losses[0]
        };
        let expected = (loss(step) - loss(-step)) / (2.0 * f64::from(step));
        assert!((found - expected).abs() < 2e-4, "{index}: {found} {expected}");
    }
}

#[test]
fn what_an_own_layer_adds_for_a_record_does_not_depend_on_others() {
    let description = Description::new(Shape::Features(3))
        .named("a", own_linear(3, 4))
        .then(Tanh)
        .named("b", own_linear(4, 2));
    let mut engine = engine(&description, 1);
    let params = engine.network().init(1);
    let (values, classes) = (numbers(300, 2), [1; 100]);
    let records = engine.records(Inputs::Dense(&values), Targets::Classes(&classes)).unwrap();
    let mut pass = |chosen: &[usize], rule: &WeightRule<'_>| {
        let mut sums = [vec![0.0; params.values().len()]];
        engine.pass(&Pass::new(&params, &records, chosen).weighed_by(rule), &mut sums).unwrap();
        sums
    };
    let all: Vec<usize> = (0..100).collect();
    for record in [0, 17, 99] {
        let together =
            pass(&all, &in_order(|place, _, weights| weights.fill(if place == record { 0.7 } else { 0.0 })));
        assert_eq!(together, pass(&[record], &|_, weights| weights.fill(0.7)));
    }
    assert!(engine.rounding(false) < 0.01 && engine.rounding(true) < 0.01);
}
