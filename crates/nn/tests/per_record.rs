//! Norms, weighted sums and differences of random networks against gradients of one record at a time, which come from
//! finite differences in double precision.
#![expect(clippy::unwrap_used, reason = "a test stops at the first error")]

mod reference;

use proptest::test_runner::{Config, RngSeed, TestRunner};
use reference::{Target, VOCABULARY, Value, gradient};
use sordino_nn::layers::{
    Attention, AveragePool, BagOfWords, ClassToken, Conv2d, Embedding, FirstStep, Flatten, Gelu, GeluTanh,
    GlobalAveragePool, GroupNorm, Gru, ImageToSequence, LastStep, LayerNorm, Linear, Lora, Lstm, MaxPool,
    MeanOverSteps, PooledStages, Positions, Relu, Residual, Segments, Tanh, TemperedSigmoid, TiedOutput,
};
use sordino_nn::{
    Description, Engine, Inputs, Layer, LayerDescription, Loss, Network, Params, Pass, Shape, Targets,
};

/// Small reproducible choices.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }

    fn one_to(&mut self, n: usize) -> usize {
        1 + self.below(n)
    }

    /// In (-1, 1), a multiple of 2^-20 and so exact in single precision.
    fn number(&mut self) -> f32 {
        ((self.next() & 0x1F_FFFF) as f32 - 1_048_576.0) / 1_048_576.0
    }

    fn activation(&mut self) -> Layer {
        match self.below(5) {
            0 => Relu.into(),
            1 => Gelu.into(),
            4 => GeluTanh.into(),
            2 => Tanh.into(),
            _ => TemperedSigmoid { scale: 2.0, temperature: 1.5, offset: 0.5 }.into(),
        }
    }

    fn convolution(&mut self, channels: usize) -> Conv2d {
        let kernel = self.one_to(4);
        Conv2d {
            channels,
            kernel,
            stride: self.one_to(3),
            padding: self.below(kernel),
            groups: 1,
            bias: self.below(2) == 0,
            // With few taps, standardisation is nearly a sign function.
            standardised: kernel > 1 && self.below(4) == 0,
        }
    }

    fn vectors(&mut self) -> Description {
        let mut description = Description::new(Shape::Features(self.one_to(20)));
        for _ in 0..self.below(3) {
            // The norm of two values is nearly a sign function.
            description = description.then(Linear::new(2 + self.one_to(18)));
            description = match self.below(3) {
                0 => description.then(LayerNorm::default()),
                1 => description.then(self.activation()).then(self.activation()),
                _ => description.then(self.activation()),
            };
        }
        description
    }

    fn images(&mut self) -> Description {
        let (channels, height, width) = (2 * self.one_to(2), 5 + self.below(3), 5 + self.below(3));
        let mut description = Description::new(Shape::Image { channels, height, width });
        let filters = 2 * if self.below(4) == 0 { 9 } else { self.one_to(3) };
        description = description.then(match self.below(3) {
            0 => Conv2d { groups: 2, standardised: self.below(2) == 0, ..Conv2d::new(filters, 3, 1, 1) },
            1 => Conv2d { standardised: true, ..Conv2d::new(filters, 3, 1, 1) },
            _ => Conv2d::new(filters, 1 + 2 * self.below(2), 1, 1),
        });
        if self.below(2) == 0 {
            description = description.then(GroupNorm { groups: 2 });
        }
        description = description.then(self.activation());
        description = match self.below(4) {
            0 => description.then(MaxPool { kernel: 2, stride: 1, padding: 0 }),
            1 => description.then(MaxPool { kernel: 3, stride: 2, padding: 1 }),
            2 => description.then(AveragePool { kernel: 2, stride: 2 }),
            _ => {
                let same = |bias| Conv2d { bias, ..Conv2d::new(filters, 3, 2, 1) };
                let body: Vec<LayerDescription> =
                    vec![self.activation().into(), same(true).into(), GroupNorm { groups: 2 }.into()];
                let shortcut = vec![Conv2d { bias: false, ..Conv2d::new(filters, 1, 2, 0) }.into()];
                description.then(Residual { body, shortcut })
            }
        };
        let convolution = self.convolution(3);
        let longer = description.clone().then(convolution).then(self.activation());
        if Network::new(&longer.clone().then(Flatten)).is_ok() {
            description = longer;
        }
        match self.below(4) {
            0 | 1 => description.then(Flatten),
            2 => description.then(GlobalAveragePool),
            _ => self.patches(description),
        }
    }

    /// The pixels as a sequence, as in a vision transformer.
    fn patches(&mut self, description: Description) -> Description {
        let sequence =
            description.then(ImageToSequence).then(Linear::new(4)).then(ClassToken).then(Positions);
        let sequence = sequence.then(Residual::new(vec![Attention::new(2).into()]));
        match self.below(2) {
            0 => sequence.then(LastStep),
            _ => sequence.then(LayerNorm::default()).then(MeanOverSteps),
        }
    }

    fn attention(&mut self) -> Attention {
        let lora = match self.below(3) {
            0 => Some(Lora { rank: self.one_to(3), alpha: 2.0, joint: self.below(2) == 0 }),
            _ => None,
        };
        Attention { heads: 2, causal: self.below(2) == 0, lora }
    }

    fn bags(&mut self) -> Description {
        let (first, rank_power) = (self.below(VOCABULARY), self.below(3));
        let size = Some(self.one_to(VOCABULARY - first)).filter(|_| self.below(2) == 0);
        let bag = BagOfWords { first, size, rank_power, norm: 2.0 };
        Description::new(Shape::Tokens { steps: self.one_to(7), vocabulary: VOCABULARY }).then(bag)
    }

    /// Stages whose vectors have at least five entries. Normalising a vector of few entries is close to a sign function.
    fn stages(&mut self) -> PooledStages {
        let first = LayerDescription::named("first", Linear::new(5 + self.below(3)));
        let second = vec![self.activation().into(), Linear::new(6).into()];
        PooledStages { stages: vec![vec![first], second] }
    }

    fn sequences(&mut self) -> Description {
        if self.below(6) == 0 {
            return self.bags();
        }
        let (steps, width) = (self.one_to(7), 2 * self.one_to(4));
        let mut description = match self.below(2) {
            0 => Description::new(Shape::Sequence { steps, width }),
            _ => Description::new(Shape::Tokens { steps, vocabulary: VOCABULARY })
                .then(Embedding { width })
                .then(Segments { separator: Some(2).filter(|_| self.below(3) > 0) }),
        };
        if self.below(3) == 0 {
            description = description.then(ClassToken);
        }
        if self.below(3) == 0 {
            description = description.then(Positions);
        }
        description = match self.below(4) {
            0 => description.then(Lstm { hidden: self.one_to(5) }),
            1 => description.then(Gru { hidden: self.one_to(5) }),
            2 => description
                .then(Residual::new(vec![self.attention().into()]))
                .then(LayerNorm { epsilon: 0.25, affine: self.below(2) == 0 }),
            _ => description.then(Linear::new(self.one_to(18))).then(self.activation()),
        };
        match self.below(4) {
            0 => description.then(FirstStep),
            1 => description.then(LastStep),
            2 => description.then(self.stages()),
            _ => description.then(MeanOverSteps),
        }
    }
}

impl Dice {
    /// A network that predicts the next token, with the embedding as the output layer or with an output layer of its own.
    fn language_model(&mut self) -> Description {
        let (steps, width) = (1 + self.below(12), 2 * self.one_to(3));
        let mut description = Description::new(Shape::Tokens { steps, vocabulary: VOCABULARY })
            .named("embedding", Embedding { width });
        description = match self.below(3) {
            0 => {
                description.then(Residual::new(vec![Attention::causal(2).into()])).then(LayerNorm::default())
            }
            1 => description.then(Gru { hidden: width }),
            _ => description.then(Positions).then(self.activation()),
        };
        match self.below(4) {
            0 => description.then(Linear::new(5)),
            _ => description.then(TiedOutput),
        }
    }
}

/// A network, its loss, and some records.
struct Case {
    description: Description,
    loss: Loss,
    values: Vec<f32>,
    tokens: Vec<u32>,
    starts: Vec<usize>,
    classes: Vec<u32>,
    wanted: Vec<f32>,
    from: Vec<usize>,
    params: Vec<f32>,
    records: usize,
}

impl Case {
    fn roll(seed: u64) -> Case {
        let mut dice = Dice(seed | 1);
        let kind = dice.below(4);
        let mut description = match kind {
            0 => dice.vectors(),
            1 => dice.images(),
            2 => dice.sequences(),
            _ => dice.language_model(),
        };
        let (loss, outputs) = match dice.below(5) {
            _ if kind == 3 => (Loss::NextToken, 5),
            0 => (Loss::CrossEntropy { label_smoothing: 0.1 }, 3),
            1 => (Loss::Logistic, 1),
            2 => (Loss::Hinge, 1),
            3 => (Loss::SquaredError, 2),
            _ => (Loss::Huber { delta: 0.5 }, 2),
        };
        if kind != 3 {
            description = description.then(Linear::new(outputs));
        }
        if description.layers.len() > 1 && dice.below(3) == 0 {
            let frozen = dice.below(description.layers.len() - 1);
            description.layers[frozen].frozen = true;
        }
        // Finite differences of images take long.
        let records = dice.one_to(if kind == 1 { 2 } else { 6 });
        let shape = description.input;
        let lengths: Vec<usize> = (0..records).map(|_| dice.one_to(shape.steps())).collect();
        let starts: Vec<usize> = std::iter::once(0)
            .chain(lengths.iter().scan(0, |end, length| {
                *end += length;
                Some(*end)
            }))
            .collect();
        let per_step = shape.len() / shape.steps();
        let count = match shape {
            Shape::Sequence { .. } => starts[records] * per_step,
            _ => records * shape.len(),
        };
        let network = Network::new(&description).unwrap();
        let params = network.init(dice.next()).values().iter().map(|w| w + 0.1 * dice.number()).collect();
        Case {
            loss,
            values: (0..count).map(|_| 2.0 * dice.number()).collect(),
            tokens: (0..starts[records]).map(|_| dice.below(5) as u32).collect(),
            starts,
            classes: (0..records).map(|_| dice.below(if outputs == 3 { 3 } else { 2 }) as u32).collect(),
            wanted: (0..records * outputs).map(|_| dice.number()).collect(),
            from: (0..records).map(|_| dice.one_to(3)).collect(),
            params,
            records,
            description,
        }
    }

    fn inputs(&self) -> Inputs<'_> {
        match self.description.input {
            Shape::Tokens { .. } => Inputs::Tokens { tokens: &self.tokens, starts: &self.starts },
            Shape::Sequence { .. } => Inputs::Sequences { values: &self.values, starts: &self.starts },
            _ => Inputs::Dense(&self.values),
        }
    }

    fn targets(&self) -> Targets<'_> {
        match self.loss {
            Loss::NextToken => Targets::NextTokens { from: &self.from },
            Loss::SquaredError | Loss::Huber { .. } => {
                Targets::Values { values: &self.wanted, width: self.wanted.len() / self.records }
            }
            _ => Targets::Classes(&self.classes),
        }
    }

    fn record(&self, index: usize) -> Value {
        let wide = |values: &[f32]| values.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>();
        let steps = self.starts[index]..self.starts[index + 1];
        match self.description.input {
            Shape::Features(n) => Value::Features(wide(&self.values[index * n..][..n])),
            Shape::Image { channels, height, width } => {
                let n = channels * height * width;
                Value::Image(channels, height, width, wide(&self.values[index * n..][..n]))
            }
            Shape::Sequence { width, .. } => {
                Value::Sequence(steps.map(|step| wide(&self.values[step * width..][..width])).collect())
            }
            Shape::Tokens { .. } => Value::Tokens(self.tokens[steps].iter().map(|t| *t as usize).collect()),
        }
    }

    fn target(&self, index: usize) -> Target {
        let width = self.wanted.len() / self.records;
        match self.loss {
            Loss::NextToken => {
                let tokens = &self.tokens[self.starts[index]..self.starts[index + 1]];
                let tokens = tokens.iter().map(|token| *token as usize).collect();
                Target::NextTokens { tokens, from: self.from[index] }
            }
            Loss::SquaredError | Loss::Huber { .. } => {
                Target::Values(self.wanted[index * width..][..width].iter().map(|v| f64::from(*v)).collect())
            }
            _ => Target::Class(self.classes[index] as usize),
        }
    }

    /// Each record's gradient at these parameters; none if one of them is at a kink.
    fn gradients(&self, network: &Network, params: &[f32]) -> Option<Vec<Vec<f64>>> {
        let params: Vec<f64> = params.iter().map(|w| f64::from(*w)).collect();
        let one = |index: usize| {
            let (record, target) = (self.record(index), self.target(index));
            gradient(&self.description, network.layout(), &self.loss, &params, &record, &target)
        };
        (0..self.records).map(one).collect()
    }
}

fn norm(gradient: &[f64]) -> f64 {
    gradient.iter().map(|g| g * g).sum::<f64>().sqrt()
}

/// Asks the engine for norms and two weighted sums, and compares with the truth to `tolerance`, relative to norms.
fn compare(
    case: &Case,
    engine: &mut Engine,
    params: &Params,
    anchor: Option<&Params>,
    truth: &[Vec<f64>],
    tolerance: f64,
) {
    let records = engine.records(case.inputs(), case.targets()).unwrap();
    // One of them twice.
    let chosen: Vec<usize> = std::iter::once(0).chain(0..case.records).collect();
    let layers = engine.network().layers().to_vec();
    let expected: Vec<Vec<f64>> = chosen.iter().map(|&record| truth[record].clone()).collect();
    let pass = |chosen| {
        let pass = Pass::new(params, &records, chosen);
        anchor.map_or(pass, |anchor| pass.minus(anchor))
    };
    // The norms of each record, in a pass of its own.
    let by_layer: Vec<Vec<f64>> = chosen
        .iter()
        .map(|record| {
            let seen = std::sync::Mutex::new(Vec::new());
            let look = |norms: &[f64], _: &mut [f32]| *seen.lock().unwrap() = norms.to_vec();
            engine.pass(&pass(std::slice::from_ref(record)).weighed_by(&look), &mut []).unwrap();
            seen.into_inner().unwrap()
        })
        .collect();
    // The first two sums have a weight for each record, the third one for each layer.
    let weight = |norms: &[f64], sum: usize, layer: usize| match sum {
        2 => layer as f32,
        _ => (9.0 * norms[0]).sin() as f32 * (sum as f32 + 0.5),
    };
    let rule = |norms: &[f64], weights: &mut [f32]| {
        for (index, chosen) in weights.iter_mut().enumerate() {
            *chosen = weight(norms, index / norms.len(), index % norms.len());
        }
    };
    let mut sums = vec![vec![f64::NAN; params.values().len()]; 3];
    let outcome = engine.pass(&pass(&chosen[..]).weighed_by(&rule), &mut sums).unwrap();
    assert!(outcome.non_finite.is_empty());
    let scale = expected.iter().map(|gradient| norm(gradient)).fold(1e-9, f64::max);
    for (place, gradient) in expected.iter().enumerate() {
        let found = outcome.norms[place];
        assert!(
            (found - norm(gradient)).abs() <= tolerance * scale,
            "norm {place}: {found} {}",
            norm(gradient)
        );
        for (layer, found) in layers.iter().zip(&by_layer[place]) {
            let truth = norm(&gradient[layer.range.clone()]);
            assert!((found - truth).abs() <= tolerance * scale, "{} {place}: {found} {truth}", layer.name);
        }
    }
    for (sum, found) in sums.iter().enumerate() {
        for (index, found) in found.iter().enumerate() {
            let of_layer = layers.iter().position(|layer| layer.range.contains(&index)).unwrap_or(0);
            let truth: f64 = expected
                .iter()
                .zip(&by_layer)
                .map(|(g, norms)| f64::from(weight(norms, sum, of_layer)) * g[index])
                .sum();
            let room = 12.0 * tolerance * scale;
            assert!((found - truth).abs() <= room, "sum {sum} at {index}: {found} {truth}");
        }
    }
}

/// Runs a check on random cases with fixed seeds; it must apply to most of them.
fn on_random_cases(cases: u32, check: impl Fn(&Case, u64) -> bool) {
    // A smaller seed is not a smaller case.
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 0,
        rng_seed: RngSeed::Fixed(7),
        ..Config::default()
    };
    let applied = std::cell::Cell::new(0);
    let run = |seed: u64| {
        applied.set(applied.get() + u32::from(check(&Case::roll(seed), seed)));
        Ok(())
    };
    TestRunner::new(config).run(&proptest::num::u64::ANY, run).unwrap();
    assert!(applied.get() > cases / 3, "only {} of {cases} cases apply", applied.get());
}

#[test]
fn norms_and_weighted_sums_equal_those_of_one_record_at_a_time() {
    on_random_cases(120, |case, seed| {
        let network = Network::new(&case.description).unwrap();
        let params = Params::new(network.layout().clone(), case.params.clone()).unwrap();
        let Some(truth) = case.gradients(&network, &case.params) else { return false };
        let mut engine = Engine::with_workers(network, case.loss, 1 + (seed % 3) as usize).unwrap();
        compare(case, &mut engine, &params, None, &truth, 2e-5);
        true
    });
}

#[test]
fn differences_keep_their_accuracy_when_the_points_are_close() {
    on_random_cases(80, |case, seed| {
        // A kink between two points is a property of the loss, not an error: only smooth networks here.
        let text = serde_json::to_string(&case.description).unwrap();
        if text.contains("relu") || text.contains("max_pool") || case.loss == Loss::Hinge {
            return false;
        }
        let network = Network::new(&case.description).unwrap();
        let here = Params::new(network.layout().clone(), case.params.clone()).unwrap();
        let Some(near) = case.gradients(&network, &case.params) else { return false };
        for (distance, tolerance) in [(0.3f32, 2e-5), (1e-4, 1e-2)] {
            let mut dice = Dice(seed ^ 5);
            let moved: Vec<f32> = case.params.iter().map(|w| w + distance * dice.number()).collect();
            let there = Params::new(network.layout().clone(), moved.clone()).unwrap();
            let Some(far) = case.gradients(&network, &moved) else { return false };
            let truth: Vec<Vec<f64>> =
                near.iter().zip(&far).map(|(a, b)| a.iter().zip(b).map(|(a, b)| a - b).collect()).collect();
            let mut engine =
                Engine::with_workers(Network::new(&case.description).unwrap(), case.loss, 2).unwrap();
            compare(case, &mut engine, &here, Some(&there), &truth, tolerance);
        }
        true
    });
}
