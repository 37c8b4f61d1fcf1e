//! The naive twin: one record at a time, in double precision, written from the definitions; gradients by central
//! differences of the loss.

use std::collections::HashMap;

use sordino_nn::layers::{
    Attention, AveragePool, BagOfWords, Conv2d, Embedding, GroupNorm, Gru, LayerNorm, Lora, Lstm, MaxPool,
    PooledStages, Residual, Segments, TemperedSigmoid,
};
use sordino_nn::{Description, Layer, LayerDescription, Layout, Loss};

/// A record on its way through the network.
#[derive(Clone)]
pub(crate) enum Value {
    Features(Vec<f64>),
    /// Channels, height, width, values in this order.
    Image(usize, usize, usize, Vec<f64>),
    Sequence(Vec<Vec<f64>>),
    Tokens(Vec<usize>),
}

pub(crate) enum Target {
    Class(usize),
    Values(Vec<f64>),
    NextTokens { tokens: Vec<usize>, from: usize },
}

/// The number of tokens in all networks of these tests.
pub(crate) const VOCABULARY: usize = 5;

pub(crate) type Weights = HashMap<String, Vec<f64>>;

/// The gradient of a record's loss with respect to the parameters that are trained, by central differences; none if there is
/// a kink within reach, where the loss has no gradient.
pub(crate) fn gradient(
    description: &Description,
    layout: &Layout,
    loss: &Loss,
    params: &[f64],
    record: &Value,
    target: &Target,
) -> Option<Vec<f64>> {
    let mut weights: Weights = layout
        .slices()
        .iter()
        .map(|slice| (slice.name.clone(), params[slice.range.clone()].to_vec()))
        .collect();
    let tokens = match record {
        Value::Tokens(tokens) => tokens.clone(),
        _ => Vec::new(),
    };
    let at = |weights: &Weights| {
        let outputs = forward(&description.layers, "", "", weights, record.clone(), &tokens);
        match (outputs, target) {
            (Value::Features(outputs), target) => loss_of(loss, &outputs, target),
            (Value::Sequence(rows), Target::NextTokens { tokens, from }) => {
                let one = |position: usize| {
                    loss_of(&Loss::cross_entropy(), &rows[position - 1], &Target::Class(tokens[position]))
                };
                let count = tokens.len().saturating_sub(*from).max(1);
                (*from..tokens.len()).map(one).sum::<f64>() / count as f64
            }
            _ => panic!("loss and output fit"),
        }
    };
    let center = at(&weights);
    let mut gradient = vec![0.0; layout.len()];
    for slice in layout.slices().iter().filter(|slice| !slice.frozen) {
        for index in 0..slice.range.len() {
            let step = 1e-5;
            let mut moved = |by: f64| {
                weights.get_mut(&slice.name).expect("it was put there")[index] += by;
                at(&weights)
            };
            let above = moved(step);
            let below = moved(-2.0 * step);
            moved(step);
            if (above - 2.0 * center + below).abs() > 3e-3 * step {
                return None;
            }
            gradient[slice.range.start + index] = (above - below) / (2.0 * step);
        }
    }
    Some(gradient)
}

fn loss_of(loss: &Loss, z: &[f64], target: &Target) -> f64 {
    match (loss, target) {
        (Loss::CrossEntropy { label_smoothing }, Target::Class(class)) => {
            let sum: f64 = z.iter().map(|z| z.exp()).sum();
            let s = f64::from(*label_smoothing);
            let q = |c: usize| s / z.len() as f64 + if c == *class { 1.0 - s } else { 0.0 };
            (0..z.len()).map(|c| -q(c) * (z[c] - sum.ln())).sum()
        }
        (Loss::Logistic, Target::Class(y)) => (1.0 + z[0].exp()).ln() - *y as f64 * z[0],
        (Loss::Hinge, Target::Class(y)) => (1.0 - (2.0 * *y as f64 - 1.0) * z[0]).max(0.0),
        (Loss::SquaredError, Target::Values(y)) => z.iter().zip(y).map(|(z, y)| (z - y).powi(2)).sum(),
        (Loss::Huber { delta }, Target::Values(y)) => {
            let c = f64::from(*delta);
            let one = |d: f64| if d <= c { 0.5 * d * d } else { c * (d - 0.5 * c) };
            z.iter().zip(y).map(|(z, y)| one((z - y).abs())).sum()
        }
        _ => panic!("loss and target fit"),
    }
}

fn forward(
    layers: &[LayerDescription],
    unnamed: &str,
    named: &str,
    weights: &Weights,
    mut value: Value,
    tokens: &[usize],
) -> Value {
    for (index, described) in layers.iter().enumerate() {
        let name = match &described.name {
            Some(name) => format!("{named}{name}"),
            None => format!("{unnamed}{index}"),
        };
        value = layer(&described.layer, &name, weights, value, tokens);
    }
    value
}

fn layer(layer: &Layer, name: &str, weights: &Weights, value: Value, tokens: &[usize]) -> Value {
    let get = |parameter: &str| weights.get(&format!("{name}.{parameter}")).map_or(&[][..], |v| &v[..]);
    match (layer.clone(), value) {
        (Layer::Linear(_), value) => rows(value, |x| affine(get("weight"), get("bias"), x)),
        (
            Layer::Conv2d(Conv2d { channels, kernel, stride, padding, groups, standardised, .. }),
            Value::Image(c, h, w, x),
        ) => {
            let (ho, wo) = ((h + 2 * padding - kernel) / stride + 1, (w + 2 * padding - kernel) / stride + 1);
            let (weight, bias, inputs, outputs) = (get("weight"), get("bias"), c / groups, channels / groups);
            let filters: Vec<f64> = match standardised {
                true => weight.chunks(inputs * kernel * kernel).flat_map(standardise).collect(),
                false => weight.to_vec(),
            };
            let mut y = vec![0.0; channels * ho * wo];
            for o in 0..channels {
                for oy in 0..ho {
                    for ox in 0..wo {
                        let mut sum = bias.get(o).copied().unwrap_or(0.0);
                        for i in 0..inputs {
                            for ky in 0..kernel {
                                for kx in 0..kernel {
                                    let (iy, ix) = (oy * stride + ky, ox * stride + kx);
                                    if (padding..h + padding).contains(&iy)
                                        && (padding..w + padding).contains(&ix)
                                    {
                                        let channel = o / outputs * inputs + i;
                                        sum += filters[((o * inputs + i) * kernel + ky) * kernel + kx]
                                            * x[(channel * h + iy - padding) * w + ix - padding];
                                    }
                                }
                            }
                        }
                        y[(o * ho + oy) * wo + ox] = sum;
                    }
                }
            }
            Value::Image(channels, ho, wo, y)
        }
        (Layer::Embedding(Embedding { width }), Value::Tokens(tokens)) => Value::Sequence(
            tokens.iter().map(|t| get("weight")[t * width..(t + 1) * width].to_vec()).collect(),
        ),
        (Layer::BagOfWords(BagOfWords { first, size, rank_power, norm }), Value::Tokens(tokens)) => {
            let size = size.unwrap_or(VOCABULARY - first);
            let weight = |entry: usize| {
                let rank = (entry + 1) as f64;
                let occurs = tokens.contains(&(first + entry));
                f64::from(u8::from(occurs))
                    * ((1.0 + rank).ln() / (1.0 + size as f64).ln()).powi(rank_power as i32)
            };
            let bag: Vec<f64> = (0..size).map(weight).collect();
            let length = bag.iter().map(|x| x * x).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
            Value::Features(bag.iter().map(|x| f64::from(norm) / length * x).collect())
        }
        (Layer::PooledStages(PooledStages { stages }), mut value) => {
            let (mut pooled, mut beside) = (Vec::new(), name.rsplitn(2, '.'));
            beside.next();
            let beside = beside.next().map_or(String::new(), |beside| format!("{beside}."));
            for (index, stage) in stages.iter().enumerate() {
                value = forward(stage, &format!("{name}.stage{index}."), &beside, weights, value, tokens);
                let Value::Sequence(rows) = &value else { panic!("a stage gives a sequence") };
                let mean = |j: usize| rows.iter().map(|row| row[j]).sum::<f64>() / rows.len() as f64;
                let mean: Vec<f64> = (0..rows[0].len()).map(mean).collect();
                pooled.extend(normalise(&mean, 1e-5));
            }
            Value::Features(pooled)
        }
        (Layer::ImageToSequence(_), Value::Image(c, h, w, x)) => Value::Sequence(
            (0..h * w).map(|pixel| (0..c).map(|channel| x[channel * h * w + pixel]).collect()).collect(),
        ),
        (Layer::ClassToken(_), Value::Sequence(rows)) => {
            Value::Sequence(std::iter::once(get("weight").to_vec()).chain(rows).collect())
        }
        (Layer::TiedOutput(_), value) => {
            let embedding = weights.get("embedding.weight").or(weights.get("0.weight"));
            rows(value, |x| affine(embedding.expect("the embedding comes first"), &[], x))
        }
        (Layer::Positions(_), Value::Sequence(rows)) => {
            let width = rows[0].len();
            let table = get("weight");
            let add = |(t, row): (usize, &Vec<f64>)| {
                row.iter().zip(&table[t * width..]).map(|(x, p)| x + p).collect()
            };
            Value::Sequence(rows.iter().enumerate().map(add).collect())
        }
        (Layer::Segments(Segments { separator }), Value::Sequence(rows)) => {
            let width = rows[0].len();
            let table = get("weight");
            let add = |(t, row): (usize, &Vec<f64>)| {
                let before = tokens.iter().take(t).any(|&token| Some(token as u32) == separator);
                row.iter().zip(&table[usize::from(before) * width..]).map(|(x, p)| x + p).collect()
            };
            Value::Sequence(rows.iter().enumerate().map(add).collect())
        }
        (Layer::LayerNorm(LayerNorm { epsilon, affine }), value) => rows(value, |x| {
            let normal = normalise(x, f64::from(epsilon)).into_iter();
            match affine {
                true => normal.zip(get("weight")).zip(get("bias")).map(|((x, g), b)| g * x + b).collect(),
                false => normal.collect(),
            }
        }),
        (Layer::GroupNorm(GroupNorm { groups }), Value::Image(c, h, w, x)) => {
            let (size, pixels) = (c / groups * h * w, h * w);
            let mut y = Vec::new();
            for group in x.chunks(size) {
                let mean = group.iter().sum::<f64>() / size as f64;
                let variance = group.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / size as f64;
                for x in group {
                    let channel = y.len() / pixels;
                    y.push(
                        get("weight")[channel] * (x - mean) / (variance + 1e-5).sqrt() + get("bias")[channel],
                    );
                }
            }
            Value::Image(c, h, w, y)
        }
        (Layer::Lstm(Lstm { hidden }), Value::Sequence(rows)) => {
            let (mut h, mut c) = (vec![0.0; hidden], vec![0.0; hidden]);
            let step = |x: &Vec<f64>| {
                let from_x = affine(get("weight_ih_l0"), get("bias_ih_l0"), x);
                let from_h = affine(get("weight_hh_l0"), get("bias_hh_l0"), &h);
                let gate = |k: usize, j: usize| from_x[k * hidden + j] + from_h[k * hidden + j];
                for j in 0..hidden {
                    c[j] = sigmoid(gate(1, j)) * c[j] + sigmoid(gate(0, j)) * gate(2, j).tanh();
                    h[j] = sigmoid(gate(3, j)) * c[j].tanh();
                }
                h.clone()
            };
            Value::Sequence(rows.iter().map(step).collect())
        }
        (Layer::Gru(Gru { hidden }), Value::Sequence(rows)) => {
            let mut h = vec![0.0; hidden];
            let step = |x: &Vec<f64>| {
                let i = affine(get("weight_ih_l0"), get("bias_ih_l0"), x);
                let s = affine(get("weight_hh_l0"), get("bias_hh_l0"), &h);
                for j in 0..hidden {
                    let (r, z) = (sigmoid(i[j] + s[j]), sigmoid(i[hidden + j] + s[hidden + j]));
                    let n = (i[2 * hidden + j] + r * s[2 * hidden + j]).tanh();
                    h[j] = (1.0 - z) * n + z * h[j];
                }
                h.clone()
            };
            Value::Sequence(rows.iter().map(step).collect())
        }
        (Layer::Attention(Attention { heads, causal, lora }), Value::Sequence(rows)) => {
            let width = rows[0].len();
            let head = width / heads;
            let adapt = |x: &Vec<f64>, name: &str, first: usize, y: &mut [f64]| {
                let Some(Lora { rank, alpha, .. }) = lora else { return };
                let down = affine(get(&format!("lora_A.{name}")), &[], x);
                let up = affine(get(&format!("lora_B.{name}")), &[], &down);
                let scale = f64::from(alpha) / rank as f64;
                y[first..].iter_mut().zip(&up).for_each(|(y, up)| *y += scale * up);
            };
            let project = |x: &Vec<f64>| {
                let mut y = affine(get("in_proj_weight"), get("in_proj_bias"), x);
                match lora {
                    Some(Lora { joint: true, .. }) => adapt(x, "weight", 0, &mut y),
                    _ => [("query", 0), ("value", 2 * width)]
                        .iter()
                        .for_each(|(name, first)| adapt(x, name, *first, &mut y)),
                }
                y
            };
            let qkv: Vec<Vec<f64>> = rows.iter().map(project).collect();
            let attend = |t: usize| {
                let mut joined = Vec::new();
                for h in 0..heads {
                    let q = &qkv[t][h * head..][..head];
                    let score = |s: usize| -> f64 {
                        let k = &qkv[s][width + h * head..][..head];
                        (q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>() / (head as f64).sqrt()).exp()
                    };
                    let reach = if causal { t + 1 } else { rows.len() };
                    let scores: Vec<f64> = (0..reach).map(score).collect();
                    let total: f64 = scores.iter().sum();
                    joined.extend((0..head).map(|j| {
                        (0..reach).map(|s| scores[s] / total * qkv[s][2 * width + h * head + j]).sum::<f64>()
                    }));
                }
                affine(get("out_proj.weight"), get("out_proj.bias"), &joined)
            };
            Value::Sequence((0..rows.len()).map(attend).collect())
        }
        (Layer::Relu(_), value) => each(value, |x| x.max(0.0)),
        (Layer::Gelu(_), value) => each(value, |x| x * normal_cdf(x)),
        (Layer::GeluTanh(_), value) => each(value, |x| {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
        }),
        (Layer::Tanh(_), value) => each(value, f64::tanh),
        (Layer::TemperedSigmoid(TemperedSigmoid { scale, temperature, offset }), value) => {
            each(value, |x| f64::from(scale) * sigmoid(f64::from(temperature) * x) - f64::from(offset))
        }
        (Layer::MaxPool(MaxPool { kernel, stride, padding }), value) => {
            pooled(value, kernel, stride, padding, |window| {
                window.iter().copied().fold(f64::NEG_INFINITY, f64::max)
            })
        }
        (Layer::AveragePool(AveragePool { kernel, stride }), value) => {
            pooled(value, kernel, stride, 0, |window| window.iter().sum::<f64>() / window.len() as f64)
        }
        (Layer::GlobalAveragePool(_), Value::Image(_, h, w, x)) => {
            Value::Features(x.chunks(h * w).map(|plane| plane.iter().sum::<f64>() / (h * w) as f64).collect())
        }
        (Layer::Flatten(_), Value::Image(_, _, _, x)) => Value::Features(x),
        (Layer::Dropout(_), value) => value,
        (Layer::Residual(Residual { body, shortcut }), value) => {
            let inner = |layers: &[LayerDescription], part: &str| {
                forward(
                    layers,
                    &format!("{name}.{part}."),
                    &format!("{name}."),
                    weights,
                    value.clone(),
                    tokens,
                )
            };
            match (inner(&body, "body"), inner(&shortcut, "shortcut")) {
                (Value::Image(c, h, w, x), Value::Image(_, _, _, y)) => Value::Image(c, h, w, sum(&x, &y)),
                (Value::Features(x), Value::Features(y)) => Value::Features(sum(&x, &y)),
                (Value::Sequence(x), Value::Sequence(y)) => {
                    Value::Sequence(x.iter().zip(&y).map(|(x, y)| sum(x, y)).collect())
                }
                _ => panic!("body and shortcut agree"),
            }
        }
        (Layer::FirstStep(_), Value::Sequence(rows)) => Value::Features(rows[0].clone()),
        (Layer::LastStep(_), Value::Sequence(rows)) => Value::Features(rows[rows.len() - 1].clone()),
        (Layer::MeanOverSteps(_), Value::Sequence(rows)) => {
            let mean = |j: usize| rows.iter().map(|row| row[j]).sum::<f64>() / rows.len() as f64;
            Value::Features((0..rows[0].len()).map(mean).collect())
        }
        (layer, _) => panic!("{} does not fit", layer.kind()),
    }
}

/// Mean 0 and variance 1.
fn standardise(filter: &[f64]) -> Vec<f64> {
    normalise(filter, 1e-10)
}

fn normalise(x: &[f64], epsilon: f64) -> Vec<f64> {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    x.iter().map(|x| (x - mean) / (variance + epsilon).sqrt()).collect()
}

fn sum(x: &[f64], y: &[f64]) -> Vec<f64> {
    x.iter().zip(y).map(|(x, y)| x + y).collect()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The normal distribution function by its Taylor series, exact for the moderate arguments of these tests.
fn normal_cdf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for k in 1..200 {
        term *= x * x / f64::from(2 * k + 1);
        sum += term;
    }
    0.5 + sum * (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

fn affine(weight: &[f64], bias: &[f64], x: &[f64]) -> Vec<f64> {
    let row = |(index, row): (usize, &[f64])| {
        row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>() + bias.get(index).copied().unwrap_or(0.0)
    };
    weight.chunks(x.len()).enumerate().map(row).collect()
}

fn rows(value: Value, f: impl Fn(&[f64]) -> Vec<f64>) -> Value {
    match value {
        Value::Features(x) => Value::Features(f(&x)),
        Value::Sequence(rows) => Value::Sequence(rows.iter().map(|row| f(row)).collect()),
        _ => panic!("rows belong to vectors and sequences"),
    }
}

fn each(value: Value, f: impl Fn(f64) -> f64) -> Value {
    let all = |x: Vec<f64>| x.into_iter().map(&f).collect();
    match value {
        Value::Features(x) => Value::Features(all(x)),
        Value::Image(c, h, w, x) => Value::Image(c, h, w, all(x)),
        Value::Sequence(rows) => Value::Sequence(rows.into_iter().map(all).collect()),
        Value::Tokens(_) => panic!("tokens are embedded first"),
    }
}

fn pooled(value: Value, kernel: usize, stride: usize, padding: usize, f: impl Fn(&[f64]) -> f64) -> Value {
    let Value::Image(c, h, w, x) = value else { panic!("pooling is for images") };
    let (ho, wo) = ((h + 2 * padding - kernel) / stride + 1, (w + 2 * padding - kernel) / stride + 1);
    let mut y = Vec::new();
    for channel in 0..c {
        for oy in 0..ho {
            for ox in 0..wo {
                let mut window = Vec::new();
                for iy in oy * stride..oy * stride + kernel {
                    for ix in ox * stride..ox * stride + kernel {
                        if (padding..h + padding).contains(&iy) && (padding..w + padding).contains(&ix) {
                            window.push(x[(channel * h + iy - padding) * w + ix - padding]);
                        }
                    }
                }
                y.push(f(&window));
            }
        }
    }
    Value::Image(c, ho, wo, y)
}
