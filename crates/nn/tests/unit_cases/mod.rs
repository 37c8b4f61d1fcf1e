//! Networks with layers of every kind, records of different lengths, and units of them.

use sordino_nn::layers::{
    Attention, BagOfWords, ClassToken, Conv2d, Embedding, FirstStep, Flatten, GlobalAveragePool, Gru,
    LastStep, LayerNorm, Linear, Lora, Lstm, MeanOverSteps, Own, Positions, Residual, Segments, Tanh,
    TiedOutput,
};
use sordino_nn::{
    Description, Engine, Init, Inputs, Layer, Loss, Network, Parameter, RecordLayer, Records, Shape, Targets,
    Units,
};

use super::basics::numbers;
use super::networks::networks;

/// Multiplies each value by a learned factor.
#[derive(Debug)]
struct Scale;

impl RecordLayer for Scale {
    fn output_shape(&self, input: Shape) -> Result<Shape, String> {
        Ok(input)
    }

    fn parameters(&self, input: Shape) -> Vec<Parameter> {
        vec![Parameter::new("factor", &[input.len()], Init::Constant(1.0))]
    }

    fn forward(&self, params: &[f32], input: &[f32], output: &mut [f32]) {
        for i in 0..input.len() {
            output[i] = params[i] * input[i];
        }
    }

    fn backward(&self, params: &[f32], input: &[f32], dy: &[f32], dx: &mut [f32], gradient: &mut [f32]) {
        for i in 0..input.len() {
            (dx[i], gradient[i]) = (params[i] * dy[i], input[i] * dy[i]);
        }
    }
}

/// A network and records of different lengths.
pub(crate) struct Case {
    pub(crate) description: Description,
    pub(crate) loss: Loss,
    pub(crate) values: Vec<f32>,
    pub(crate) tokens: Vec<u32>,
    pub(crate) starts: Vec<usize>,
    pub(crate) classes: Vec<u32>,
    pub(crate) from: Vec<usize>,
}

pub(crate) const RECORDS: usize = 26;

impl Case {
    pub(crate) fn new(description: Description) -> Case {
        let shape = description.input;
        let network = Network::new(&description).unwrap();
        let loss = match network.output() {
            Shape::Sequence { .. } => Loss::NextToken,
            _ => Loss::cross_entropy(),
        };
        // Pairs of records have equal lengths; some have the maximum length.
        let lengths = (0..RECORDS).map(|record| 1 + record / 2 * 17 % shape.steps());
        let starts: Vec<usize> = std::iter::once(0)
            .chain(lengths.scan(0, |end, length| {
                *end += length;
                Some(*end)
            }))
            .collect();
        let per_step = shape.len() / shape.steps();
        let count = match shape {
            Shape::Sequence { .. } => starts[RECORDS] * per_step,
            Shape::Tokens { .. } => 0,
            _ => RECORDS * shape.len(),
        };
        let vocabulary = match shape {
            Shape::Tokens { vocabulary, .. } => vocabulary as u32,
            _ => 1,
        };
        Case {
            loss,
            values: numbers(count, 3),
            tokens: (0..starts[RECORDS] as u32).map(|i| i * i % vocabulary.min(40)).collect(),
            starts,
            classes: (0..RECORDS as u32).map(|record| record % 3).collect(),
            from: (0..RECORDS).map(|record| 1 + record % 3).collect(),
            description,
        }
    }

    pub(crate) fn engine(&self, workers: usize) -> Engine {
        Engine::with_workers(Network::new(&self.description).unwrap(), self.loss, workers).unwrap()
    }

    pub(crate) fn records(&self, engine: &Engine) -> Records<'_> {
        let inputs = match self.description.input {
            Shape::Tokens { .. } => Inputs::Tokens { tokens: &self.tokens, starts: &self.starts },
            Shape::Sequence { .. } => Inputs::Sequences { values: &self.values, starts: &self.starts },
            _ => Inputs::Dense(&self.values),
        };
        let targets = match self.loss {
            Loss::NextToken => Targets::NextTokens { from: &self.from },
            _ => Targets::Classes(&self.classes),
        };
        engine.records(inputs, targets).unwrap()
    }
}

/// Networks with layers of every kind.
pub(crate) fn cases() -> Vec<Case> {
    let tokens = |vocabulary, width| {
        Description::new(Shape::Tokens { steps: 20, vocabulary }).then(Embedding { width })
    };
    let short = |vocabulary, width| {
        Description::new(Shape::Tokens { steps: 5, vocabulary }).then(Embedding { width })
    };
    let classifier =
        |layer: Layer, last: Layer| tokens(60, 6).then(Positions).then(layer).then(last).then(Linear::new(3));
    let lora = |joint| Attention { lora: Some(Lora { rank: 2, alpha: 4.0, joint }), ..Attention::new(2) };
    let image = |channels, side| Description::new(Shape::Image { channels, height: side, width: side });
    let mut all = vec![
        classifier(Lstm { hidden: 5 }.into(), LastStep.into()),
        classifier(Gru { hidden: 5 }.into(), LastStep.into()),
        classifier(lora(false).into(), MeanOverSteps.into()),
        classifier(lora(true).into(), MeanOverSteps.into()),
        classifier(Segments { separator: Some(4) }.into(), MeanOverSteps.into()),
        classifier(ClassToken.into(), FirstStep.into()),
        // Matrices so wide that norms come from Gram matrices even for bags.
        short(60, 60).then(Linear::new(90)).then(Tanh).then(MeanOverSteps).then(Linear::new(3)),
        short(60, 60).then(Lstm { hidden: 40 }).then(LastStep).then(Linear::new(3)),
        // The same for a convolution.
        image(128, 2).then(Conv2d::new(300, 1, 1, 0)).then(GlobalAveragePool).then(Linear::new(3)),
        image(2, 6)
            .then(Conv2d { groups: 2, ..Conv2d::new(4, 3, 1, 1) })
            .then(Conv2d { standardised: true, ..Conv2d::new(4, 3, 1, 1) })
            .then(Flatten)
            .then(Linear::new(3)),
        Description::new(Shape::Tokens { steps: 20, vocabulary: 60 })
            .then(BagOfWords::default())
            .then(Linear::new(3)),
        Description::new(Shape::Features(30))
            .then(Own::new(Scale))
            .then(LayerNorm::default())
            .then(Linear::new(3)),
        // Language models whose matrix is written out, and whose norm comes from Gram matrices.
        tokens(9, 4).then(Positions).then(Attention::causal(2)).then(TiedOutput),
        short(300, 48)
            .then(Positions)
            .then(Residual::new(vec![Attention::causal(2).into()]))
            .then(TiedOutput),
    ];
    all.extend(networks().iter().map(|network| network.description().clone()));
    all.into_iter().map(Case::new).collect()
}

/// Units of 0 to 6 records that are not next to each other. Record 7 belongs to none.
pub(crate) fn units() -> Units {
    let sizes = [3, 1, 6, 2, 0, 5, 1, 2, 1, 4];
    let starts: Vec<usize> = std::iter::once(0)
        .chain(sizes.iter().scan(0, |end, size| {
            *end += size;
            Some(*end)
        }))
        .collect();
    let order = (0..RECORDS).map(|i| i * 11 % RECORDS).filter(|&record| record != 7);
    Units::new(order.take(25).collect(), starts).unwrap()
}
